// SPDX-License-Identifier: Apache-2.0
#include "layer/gemm_bench.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "api.hpp"
#include "environment.hpp"
#include "json_parts.hpp"
#include "layer/cutlass_grouped.hpp"
#include "layer/experts.hpp"
#include "line.hpp"
#include "measurement.hpp"

namespace ucclep::perf {
namespace {

constexpr double tolerance = 1.0 / 64;  // of |expected| + rms(expected)

class Memory {
 public:
  explicit Memory(size_t bytes) : data_(allocate_device(bytes)) {}
  ~Memory() { free_device(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

// One size: `rows` rows for each expert, the last expert a few less, so that not all tiles are full.
class GemmBench {
 public:
  GemmBench(const Options& options, int rows)
      : o_(options),
        rows_(rows),
        slab_((rows + 127) / 128 * 128),
        shape_{o_.experts, 0, o_.hidden, o_.intermediate, o_.seed},
        in_(matrix_bytes(o_.hidden)),
        out_(matrix_bytes(o_.hidden)),
        wide_(matrix_bytes(2 * o_.intermediate)),
        counts_(static_cast<size_t>(o_.experts) * sizeof(int32_t)),
        experts_(shape_, in_.data(), out_.data(), slab_ * o_.experts) {
    for (int e = 0; e < o_.experts; ++e) count_.push_back(e + 1 == o_.experts ? std::max(1, rows - 3) : rows);
    for (int e = 0; e < o_.experts; ++e) {
      fill_tokens(at(in_, e), slab_, o_.hidden, o_.seed, 0, e * slab_, nullptr);
    }
    write_device(counts_.data(), count_.data(), count_.size() * sizeof(int32_t));
    zones_ = {static_cast<const int32_t*>(counts_.data()), nullptr, slab_, 0, o_.experts, nullptr, nullptr};
    launch_.blocks = o_.gemm_sms > 0 ? o_.gemm_sms : gpu_sms();
    launch_.tile_rows = o_.tile_rows > 0 ? o_.tile_rows : rows <= 64 ? 64 : 128;
  }

  bool run(Json& json) {
    const bool good = verify();
    const int up_width = 2 * o_.intermediate;
    time_gemm(json, "up", up_width, o_.hidden, experts_.up_weights(), in_.data(), wide_.data(),
              {{"ours", [&] { experts_.up_plain(zones_, wide_.data(), launch_); }},
               {"ours with SwiGLU", [&] { experts_.up(zones_, launch_); }}});
    time_gemm(json, "down", o_.hidden, o_.intermediate, experts_.down_weights(), experts_.inner(), out_.data(),
              {{"ours", [&] { experts_.down(zones_, launch_); }}});
    return good;
  }

 private:
  using Named = std::vector<std::pair<std::string, std::function<void()>>>;

  size_t matrix_bytes(int width) const { return static_cast<size_t>(slab_) * o_.experts * width * 2; }
  std::byte* at(const Memory& rows, int expert) const {
    return static_cast<std::byte*>(rows.data()) + static_cast<int64_t>(expert) * slab_ * o_.hidden * 2;
  }

  bool verify() {
    experts_.up(zones_, launch_);
    experts_.down(zones_, launch_);
    return compare("checked");
  }

  // First and last rows of experts, and some between.
  bool compare(const char* what) {
    double inner = 0, result = 0;
    bool good = true;
    const int step = std::max(1, o_.experts / 16);
    for (int e = 0; e < o_.experts; e += e + step < o_.experts ? step : std::max(1, o_.experts - 1 - e)) {
      std::vector<int64_t> rows;
      for (const int row : {0, 1, 7, 8, 15, 16, 63, 64, 77, 127, 128, count_[e] / 2, count_[e] - 1}) {
        if (row < count_[e]) rows.push_back(e * slab_ + row);
      }
      std::vector<Visit> visits;
      for (const int64_t row : rows) visits.push_back({0, row, {e}, {1.0f}});
      const ReferenceRows expected = reference_rows(shape_, visits);
      const RowErrors a = errors_of(experts_.inner(), rows, expected.inner.data(), o_.intermediate);
      const RowErrors b = errors_of(out_.data(), rows, expected.results.data(), o_.hidden);
      inner = std::max(inner, a.largest), result = std::max(result, b.largest);
      for (const auto& [name, errors] : {std::pair{"inner", a}, std::pair{"result", b}}) {
        if (errors.largest <= tolerance) continue;
        good = false;
        line("# WRONG {} of expert {}: row {} column {}: got {:g}, expected {:g}, error {:.4f}", name, e,
             rows[static_cast<size_t>(errors.row)] - e * slab_, errors.column, errors.got, errors.expected,
             errors.largest);
      }
    }
    line("# {} {} rows x {} experts, tiles of {}: largest error {:.5f} (inner), {:.5f} (result), allowed {:.5f}", what,
         rows_, o_.experts, launch_.tile_rows, inner, result, tolerance);
    return good;
  }

  static RowErrors errors_of(const void* matrix, const std::vector<int64_t>& rows, const float* expected, int columns) {
    std::vector<uint16_t> got;
    for (const int64_t row : rows) {
      const std::vector<uint16_t> one = read_row(matrix, row, columns);
      got.insert(got.end(), one.begin(), one.end());
    }
    return compare_rows(got, expected, static_cast<int64_t>(rows.size()), columns);
  }

  void time_gemm(Json& json, const char* gemm, int width, int depth, const void* weights, const void* rows,
                 void* results, Named kinds) {
    const size_t ours = kinds.size();
    std::vector<std::unique_ptr<CutlassGrouped>> peers;
    for (const std::string& kind : CutlassGrouped::kinds()) {
      peers.push_back(std::make_unique<CutlassGrouped>(kind, count_, slab_, rows, weights, results, width, depth));
      kinds.push_back({"CUTLASS " + kind, [peer = peers.back().get()] { peer->run(nullptr); }});
    }
    std::vector<std::vector<double>> times(kinds.size());
    GpuTimer timer(nullptr);
    for (int i = -o_.warmup; i < o_.iterations; ++i) {
      for (size_t k = 0; k < kinds.size(); ++k) {
        kinds[k].second();  // the timed launch waits behind it, and not for the host
        timer.begin();
        kinds[k].second();
        const double us = timer.end();
        if (i >= 0) times[k].push_back(us);
      }
    }
    double rows_of_all = 0;
    for (const int count : count_) rows_of_all += count;
    double best_peer = 1e30;
    for (size_t k = ours; k < kinds.size(); ++k) best_peer = std::min(best_peer, statistics(times[k]).p50);
    for (size_t k = 0; k < kinds.size(); ++k) {
      const Statistics s = statistics(times[k]);
      const double tflops = 2 * rows_of_all * width * depth / s.p50 * 1e-6;
      const double weight_tbs = 2.0 * o_.experts * width * depth / s.p50 * 1e-6;
      line("{:>6} {:>5} {:>6} {:>6}  {:<42} {:>9.1f} {:>9.1f} {:>8.1f} {:>7.2f} {:>7.3f}", rows_, gemm, width, depth,
           kinds[k].first, s.p50, s.min, tflops, weight_tbs, best_peer / s.p50);
      json.push_back({{"rows", rows_},
                      {"gemm", gemm},
                      {"width", width},
                      {"depth", depth},
                      {"kind", kinds[k].first},
                      {"tflops", tflops},
                      {"of_best_cutlass", best_peer / s.p50},
                      {"us", statistics_json(times[k])}});
    }
  }

  const Options& o_;
  int rows_;
  int64_t slab_;
  ExpertShape shape_;
  std::vector<int> count_;
  Memory in_, out_, wide_, counts_;
  Experts experts_;
  ExpertZones zones_;
  GemmLaunch launch_;
};

}  // namespace

bool bench_gemms(const Options& options) {
  line("# layer_perf --gemm-only: {}, {} experts, hidden {}, intermediate {}, on {} SMs", options.model,
       options.experts, options.hidden, options.intermediate, options.gemm_sms > 0 ? options.gemm_sms : gpu_sms());
  line(
      "#  rows  gemm  width  depth  kind                                             p50 us    min us  TFLOP/s  W TB/s "
      " of best CUTLASS");
  bool good = true;
  Json results = Json::array();
  for (const int rows : options.sizes()) good = GemmBench(options, rows).run(results) && good;
  if (!options.json.empty()) {
    line("# JSON: {}", write_json_to(options.json, {{"tool", "layer_perf"},
                                                    {"utc", utc_now()},
                                                    {"model", options.model},
                                                    {"arguments", options.arguments},
                                                    {"gemms", results},
                                                    {"environment", environment_json(read_environment())}}));
  }
  return good;
}

}  // namespace ucclep::perf
