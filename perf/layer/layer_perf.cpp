// SPDX-License-Identifier: Apache-2.0
// Times whole MoE layers: dispatch, the experts' GEMMs on tensor cores, combine, one after the other and overlapped.
#include "layer/gemm_bench.hpp"
#include "layer/layer_bench.hpp"
#include "runner.hpp"

using namespace ucclep::perf;

int main(int argc, char** argv) {
  return run_main("layer_perf", [&] {
    bool done = false;
    const Options options = parse_options(argc, argv, "layer_perf",
                                          "Times MoE layers with libucclep: dispatch, grouped GEMMs on tensor cores, "
                                          "combine, in several ways in one run.",
                                          &done, Timed::layers);
    if (done) return true;
    return options.gemm_only ? bench_gemms(options)
                             : run_ranks(options, [&](Team& team) { return bench_layers(options, team); });
  });
}
