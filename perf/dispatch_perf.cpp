// SPDX-License-Identifier: Apache-2.0
// Times and verifies dispatch: the update of the routing included, in HT its exchange of counts, too.
#include "runner.hpp"

using namespace ucclep::perf;

namespace {

SizeResult measure(Endpoint& endpoint, int tokens) {
  const Options& o = endpoint.options();
  endpoint.begin_size(tokens, o.warmup + o.iterations);
  Step step;
  step.operation = [&] { endpoint.dispatch(); };
  step.check = [&] { return endpoint.check_dispatch(); };
  return {tokens, {measure_series(endpoint, "dispatch", endpoint.shape().wire_row_bytes(), step)}};
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool(argc, argv,
                  {"dispatch_perf",
                   "Times MoE dispatch through the C API of libucclep, and verifies every received row.",
                   {"dispatch"},
                   false,
                   measure});
}
