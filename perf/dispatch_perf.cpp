// SPDX-License-Identifier: Apache-2.0
// Times and verifies dispatch. In HT also the update of the routing with its exchange of counts, which many dispatches
// may share, and both together.
#include "runner.hpp"

using namespace ucclep::perf;

namespace {

std::vector<Plan> plan(Endpoint& endpoint) {
  const size_t row = endpoint.shape().wire_row_bytes();
  const auto update = [&] { endpoint.update(); };
  const auto dispatch = [&] { endpoint.dispatch(); };
  const auto both = [&] {
    endpoint.update();
    endpoint.dispatch();
  };
  const auto check = [&] { return endpoint.check_dispatch(); };
  // A dispatch behind it shows what the update has arranged.
  const auto check_update = [&endpoint, dispatch] {
    endpoint.run(dispatch);
    return endpoint.check_dispatch();
  };
  const std::vector<Part> parts = {{"dispatch", row, endpoint.dispatches_by_node()}};
  if (endpoint.shape().mode == UCCLEP_MODE_LL) return {{"dispatch", parts, {}, dispatch, check}};
  return {{"update", {}, {}, update, check_update},
          {"dispatch", parts, update, dispatch, check},
          {"update+dispatch", parts, {}, both, check}};
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool(argc, argv,
                  {"dispatch_perf",
                   "Times MoE dispatch through the C API of libucclep, and verifies every received row.", false, plan});
}
