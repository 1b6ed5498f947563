// SPDX-License-Identifier: Apache-2.0
#include "mpi_plugin.hpp"

#include <mpi.h>

#include <climits>

namespace {

int allgather(void* buffer, size_t bytes_per_rank) {
  if (bytes_per_rank > INT_MAX) return MPI_ERR_COUNT;
  return MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buffer, static_cast<int>(bytes_per_rank), MPI_BYTE,
                       MPI_COMM_WORLD);
}
int barrier() {
  return MPI_Barrier(MPI_COMM_WORLD);
}
void abort_job() {
  MPI_Abort(MPI_COMM_WORLD, 1);
}
void finalize() {
  MPI_Finalize();
}

}  // namespace

int ucclep_perf_mpi_open(ucclep::perf::MpiCalls* calls) {
  // Only the thread that calls this uses MPI.
  int provided = 0;
  if (int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided)) return error;
  MPI_Comm_rank(MPI_COMM_WORLD, &calls->rank);
  MPI_Comm_size(MPI_COMM_WORLD, &calls->size);
  MPI_Comm machine;
  if (int error = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine)) return error;
  MPI_Comm_rank(machine, &calls->local_rank);
  MPI_Comm_free(&machine);
  calls->allgather = allgather;
  calls->barrier = barrier;
  calls->abort = abort_job;
  calls->finalize = finalize;
  return 0;
}
