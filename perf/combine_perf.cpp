// SPDX-License-Identifier: Apache-2.0
// Times and verifies the pair dispatch + combine (in HT behind its update) without a pause between them, and combine
// alone. What the experts return is computed from the seed, so a wrong dispatch cannot hide a wrong combine.
#include "runner.hpp"

using namespace ucclep::perf;

namespace {

std::vector<Plan> plan(Endpoint& endpoint) {
  const Part there{"dispatch", endpoint.shape().wire_row_bytes(), endpoint.dispatches_by_node()},
      back{"combine", endpoint.shape().combine_row_bytes(), endpoint.combines_by_node()};
  const auto dispatch = [&] {
    endpoint.update();
    endpoint.dispatch();
  };
  const auto combine = [&] { endpoint.combine(); };
  const auto pair = [dispatch, combine] {
    dispatch();
    combine();
  };
  const auto check_combine = [&] { return endpoint.check_combine(); };
  const auto check_pair = [&] {
    Tally tally = endpoint.check_dispatch();
    return tally += endpoint.check_combine();
  };
  const bool updates = endpoint.shape().mode == UCCLEP_MODE_HT;
  return {{updates ? "update+dispatch+combine" : "dispatch+combine", {there, back}, {}, pair, check_pair},
          {"combine", {back}, dispatch, combine, check_combine}};
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool(
      argc, argv,
      {"combine_perf",
       "Times MoE dispatch + combine, and combine alone, through the C API of libucclep, and verifies every "
       "received row and every combined token.",
       true, plan});
}
