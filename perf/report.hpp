// SPDX-License-Identifier: Apache-2.0
// What rank 0 prints, in the look of nccl-tests, and the JSON file.
#pragma once
#include <string>
#include <vector>

#include "environment.hpp"
#include "measurement.hpp"
#include "options.hpp"

namespace ucclep::perf {

// One rank as the header lists it.
struct RankInfo {
  int pid = 0, device_index = 0, node = 0, domain_size = 0;
  char host[64] = {};
  char device[64] = {};
};

struct GroupMemory {
  int64_t query_device_bytes = 0, query_host_bytes = 0;  // of each rank, as ucclEpGroupQuery says
  uint64_t measured_bytes = 0;                           // 0 = could not be measured
};

class Report {
 public:
  Report(const Options& options, std::vector<RankInfo> ranks, const GroupMemory& memory, const Timing& timing);
  void header(const std::vector<std::string>& series_names) const;
  void row(const SizeResult& result);
  // The closing lines; true if the run is good. Writes the JSON file if one is wanted.
  bool close();

 private:
  double time_of(const Sample& sample) const { return timing_.events ? sample.device_us : sample.host_us; }
  Statistics times(const Series& series) const;
  std::string rates(const Series& series, double time_us) const;  // the three columns
  void write_json() const;

  const Options& options_;
  Environment environment_;
  std::vector<RankInfo> ranks_;
  GroupMemory memory_;
  Timing timing_;
  std::string start_time_;
  std::vector<SizeResult> results_;
  Tally tally_;
};

}  // namespace ucclep::perf
