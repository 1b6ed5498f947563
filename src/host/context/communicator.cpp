// SPDX-License-Identifier: Apache-2.0
#include "host/context/communicator.hpp"

#include "base/error.hpp"
#include "base/log.hpp"

bool ucclEpComm::one_process() const {
  for (int r = 0; r < nranks(); ++r) {
    if (!bootstrap->same_process(r)) return false;
  }
  return true;
}

namespace ucclep {

ucclEpComm& usable(ucclEpComm_t comm) {
  if (comm == nullptr) fail(ucclEpInvalidArgument, "comm is NULL");
  comm->faults->throw_if_fatal();
  return *comm;
}

ucclEpStream_t checked_stream(const ucclEpComm& comm, ucclEpStream_t stream) {
  const bool host = comm.traits.kind == UCCLEP_DEVICE_HOST;
  if (host && stream != nullptr && comm.streams.count(stream) == 0) {
    fail(ucclEpInvalidArgument, "stream {} was not made by ucclEpStreamCreate on this communicator", stream);
  }
  return stream;
}

void refuse_in_capture(const ucclEpComm& comm) {
  for (const ucclEpStream_t stream : comm.streams) {
    if (comm.device->is_capturing(stream)) {
      fail(ucclEpInvalidUsage, "this call is not allowed while stream {} is being captured", stream);
    }
  }
}

void refuse_destruction_in_capture(const ucclEpComm& comm) {
  if (comm.faults->fatal()) return;
  try {
    refuse_in_capture(comm);
  } catch (const Error& error) {
    if (error.code() == ucclEpInvalidUsage) throw;
    log::warn("comm", "{}", error.what());
  }
}

void check_wait(const ucclEpComm& comm, ucclEpResult_t waited, const char* what) {
  comm.faults->throw_if_fatal();
  if (waited == ucclEpSuccess) return;
  fail(waited, "{} did not complete within {} ms", what, comm.timeout_ms());
}

}  // namespace ucclep
