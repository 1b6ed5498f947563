// SPDX-License-Identifier: Apache-2.0
// Measures the command ring: rates and round trips between producers and one thread that reads, and checks what
// arrives.
#include <cstdio>
#include <exception>

#include "cpus.hpp"
#include "fifo/fifo_report.hpp"
#include "find_gpu.hpp"
#include "options.hpp"

using namespace ucclep;
using namespace ucclep::perf;

namespace {

// auto: the GPU of this machine, if there is one.
std::string kind_of(const std::string& wanted) {
  if (wanted != "auto") return wanted;
  std::string why;
  const gpu::Driver* driver = find_gpu_driver("auto", &why);
  if (driver == nullptr) return "threads";
  return &driver->facts() == &gpu::cuda_facts ? "cuda" : "hip";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    bool done = false;
    FifoOptions options = parse_fifo_options(argc, argv, &done);
    if (done) return 0;
    const std::string kind = kind_of(options.device);
    options.fill_in(kind);
    if (options.cpus.empty()) options.cpus = usable_cpus();
    const auto bench = kind == "threads" ? make_thread_bench(options) : make_kernel_bench(options, kind);
    FifoReport report(options, kind, bench->name());
    measure_fifo(*bench, options, [&](const FifoRow& row) { report.row(row); });
    return report.close() ? 0 : 1;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "fifo_perf: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fifo_perf: %s\n", error.what());
    return 1;
  }
}
