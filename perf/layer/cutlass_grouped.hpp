// SPDX-License-Identifier: Apache-2.0
// CUTLASS's own grouped GEMM, to compare ours with: rows [.., depth] times weights [experts, width, depth], bf16.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ucclep/ucclep.h"

namespace ucclep::perf {

class CutlassGrouped {
 public:
  static std::vector<std::string> kinds();  // tiles and schedules that there are
  // counts: rows of each expert; expert e's rows, and results, begin at row e * slab. Throws PerfError.
  CutlassGrouped(const std::string& kind, const std::vector<int>& counts, int64_t slab, const void* rows,
                 const void* weights, void* results, int width, int depth);
  ~CutlassGrouped();
  CutlassGrouped(const CutlassGrouped&) = delete;
  CutlassGrouped& operator=(const CutlassGrouped&) = delete;
  void run(ucclEpStream_t stream);

  struct Kernel;

 private:
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace ucclep::perf
