// SPDX-License-Identifier: Apache-2.0
// Times and verifies the pair dispatch + combine without a pause between them, and combine alone, from a barrier after
// its dispatch. What the experts return is computed from the seed, so a wrong dispatch cannot hide a wrong combine.
#include "runner.hpp"

using namespace ucclep::perf;

namespace {

SizeResult measure(Endpoint& endpoint, int tokens) {
  const Options& o = endpoint.options();
  const Shape& shape = endpoint.shape();
  endpoint.begin_size(tokens, 2 * (o.warmup + o.iterations));
  Step pair;
  pair.operation = [&] {
    endpoint.dispatch();
    endpoint.combine();
  };
  pair.check = [&] {
    Tally tally = endpoint.check_dispatch();
    return tally += endpoint.check_combine();
  };
  Step alone;
  alone.before = [&] { endpoint.dispatch(); };
  alone.operation = [&] { endpoint.combine(); };
  alone.check = [&] { return endpoint.check_combine(); };
  SizeResult result{tokens, {}};
  const size_t both = shape.wire_row_bytes() + shape.combine_row_bytes();
  result.series.push_back(measure_series(endpoint, "dispatch+combine", both, pair));
  result.series.push_back(measure_series(endpoint, "combine", shape.combine_row_bytes(), alone));
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  return run_tool(
      argc, argv,
      {"combine_perf",
       "Times MoE dispatch + combine, and combine alone, through the C API of libucclep, and verifies every "
       "received row and every combined token.",
       {"dispatch+combine", "combine"},
       true,
       measure});
}
