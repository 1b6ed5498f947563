// SPDX-License-Identifier: Apache-2.0
// The C API on a stream that the caller captures into a graph.
#include "conformance/exchange.hpp"
#include "doubles/support.hpp"

namespace ucclep::test {
namespace {

const gpu::DriverFacts& facts_of(ucclEpComm_t comm) {
  ucclEpCommInfo_t info = UCCLEP_COMM_INFO_INIT;
  ok(ucclEpCommGetInfo(comm, &info), "ucclEpCommGetInfo");
  return info.device == UCCLEP_DEVICE_HIP ? gpu::hip_facts : gpu::cuda_facts;
}

TEST_CASE("capture: a stream in capture is not waited for, and its operations record no event", "[driver][process]") {
  Scenario scenario;
  scenario.ranks = 1;
  run_ranks(1, [&](Rank& rank) {
    Session session(rank, scenario);
    Double dbl(facts_of(session.comm));
    Exchange exchange(rank, session.comm, scenario);
    dbl.set_capturing(session.stream, true);
    refused(ucclEpStreamSynchronize(session.comm, session.stream), ucclEpInvalidUsage, "ucclEpStreamSynchronize",
            {"is being captured"});
    {
      // An event recorded in a capture cannot be asked later: the operation must not try.
      const Setting failure("UCCLEP_DOUBLE_FAIL", "event_record:719");
      exchange.update(session.handle, session.stream);
      dbl.set_capturing(session.stream, false);
      refused(exchange.try_dispatch(session.handle, session.stream), ucclEpUnhandledDeviceError, "ucclEpDispatch",
              {"recording an event: unspecified launch failure"});
    }
    ok(ucclEpStreamSynchronize(session.comm, session.stream), "ucclEpStreamSynchronize");
  });
}

}  // namespace
}  // namespace ucclep::test
