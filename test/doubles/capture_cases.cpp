// SPDX-License-Identifier: Apache-2.0
// The C API on a stream that the caller captures into a graph.
#include "conformance/exchange.hpp"
#include "doubles/support.hpp"
#include "support/graph.hpp"

namespace ucclep::test {
namespace {

TEST_CASE("capture: a stream in capture is not waited for, and its operations record no event", "[driver][process]") {
  Scenario scenario;
  scenario.ranks = 1;
  run_ranks(1, [&](Rank& rank) {
    Session session(rank, scenario);
    const GraphDriver driver(session.comm);
    Exchange exchange(rank, session.comm, scenario);
    void* graph = nullptr;
    GraphDriver::check(driver.api().begin_capture(session.stream, capture_global), "beginning a capture");
    refused(ucclEpStreamSynchronize(session.comm, session.stream), ucclEpInvalidUsage, "ucclEpStreamSynchronize",
            {"is being captured"});
    {
      // An event recorded in a capture cannot be asked later: the operation must not try.
      const Setting failure("UCCLEP_DOUBLE_FAIL", "event_record:719");
      exchange.update(session.handle, session.stream);
      GraphDriver::check(driver.api().end_capture(session.stream, &graph), "ending a capture");
      refused(exchange.try_dispatch(session.handle, session.stream), ucclEpUnhandledDeviceError, "ucclEpDispatch",
              {"recording an event failed: unspecified launch failure"});
    }
    GraphDriver::check(driver.api().destroy(graph), "destroying a graph");
    ok(ucclEpStreamSynchronize(session.comm, session.stream), "ucclEpStreamSynchronize");
  });
}

TEST_CASE("capture: graphs of libucclep are the host device's", "[driver][process]") {
  Scenario scenario;
  scenario.ranks = 1;
  run_ranks(1, [&](Rank& rank) {
    Session session(rank, scenario);
    const auto graph = reinterpret_cast<ucclEpGraph_t>(&scenario);
    ucclEpGraph_t made = nullptr;
    const auto elsewhere = [](ucclEpResult_t result, const char* call) {
      refused(result, ucclEpNotSupported, call, {"the GPU's own run-time"});
    };
    elsewhere(ucclEpStreamBeginCapture(session.comm, session.stream), "ucclEpStreamBeginCapture");
    elsewhere(ucclEpStreamEndCapture(session.comm, session.stream, &made), "ucclEpStreamEndCapture");
    elsewhere(ucclEpGraphLaunch(session.comm, graph, session.stream), "ucclEpGraphLaunch");
    elsewhere(ucclEpGraphDestroy(session.comm, graph), "ucclEpGraphDestroy");
  });
}

}  // namespace
}  // namespace ucclep::test
