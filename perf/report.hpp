// SPDX-License-Identifier: Apache-2.0
// What rank 0 prints, in the look of nccl-tests, and the JSON file.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ceiling_file.hpp"
#include "environment.hpp"
#include "json_parts.hpp"
#include "measurement.hpp"
#include "options.hpp"

namespace ucclep::perf {

// One rank as the header lists it.
struct RankInfo {
  int pid = 0, device_index = 0, node = 0, domain_size = 0;
  char host[64] = {};
  char device[64] = {};
  char transport[32] = {};
};

struct GroupMemory {
  int64_t query_device_bytes = 0, query_host_bytes = 0;  // of each rank, as ucclEpGroupQuery says
  uint64_t measured_bytes = 0;                           // 0 = could not be measured
};

class Report {
 public:
  Report(const Options& options, std::vector<RankInfo> ranks, const GroupMemory& memory, const Timing& timing);
  void header() const;
  void row(const SizeResult& result);
  // Prints the closing lines; the run as JSON.
  Json close();

 private:
  double time_of(const Sample& sample) const { return timing_.events ? sample.device_us : sample.host_us; }
  Statistics times(const Series& series) const;
  double ceiling_us(const Series& series, int tokens) const;  // 0: not known
  // What the ratio column relates a time to: the library's of the same size, or the ceiling.
  double yardstick_us(const Series& series, const SizeResult& result) const;
  bool has_ratio() const { return ceiling_ || options_.rounds > 0; }
  // The columns of the times and what follows them.
  std::string figures(const Series& series, const SizeResult& result) const;
  std::vector<int> node_of_rank() const;
  void wire(const Series& series) const;
  const Options& options_;
  Environment environment_;
  std::vector<RankInfo> ranks_;
  GroupMemory memory_;
  Timing timing_;
  std::optional<CeilingFile> ceiling_;
  std::string start_time_;
  std::vector<SizeResult> results_;
  Tally tally_;
};

}  // namespace ucclep::perf
