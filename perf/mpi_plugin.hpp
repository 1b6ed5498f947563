// SPDX-License-Identifier: Apache-2.0
// What the tools need of MPI. The plugin ucclep_perf_mpi.so, the only part that links it, fills this table.
#pragma once
#include <cstddef>

namespace ucclep::perf {

struct MpiCalls {
  int rank;
  int size;
  int local_rank;                                         // among the ranks of this machine
  int (*allgather)(void* buffer, size_t bytes_per_rank);  // in place; 0 = success, here and below
  int (*barrier)();
  void (*abort)();  // ends the whole job
  void (*finalize)();
};

}  // namespace ucclep::perf

extern "C" int ucclep_perf_mpi_open(ucclep::perf::MpiCalls* calls);
