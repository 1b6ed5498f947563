// SPDX-License-Identifier: Apache-2.0
// A result of ceiling_perf, to which times are set in relation.
#pragma once
#include <string>
#include <vector>

#include "options.hpp"

namespace ucclep::perf {

class CeilingFile {
 public:
  // Reads the file. Throws when it cannot be read, or was measured for another shape.
  CeilingFile(const std::string& path, const Options& options);
  // Median microseconds of one launch for "dispatch" or "combine", 0 when that was not measured.
  double us(const std::string& operation, int tokens, size_t row_bytes) const;

 private:
  struct Entry {
    std::string name;
    int tokens;
    size_t row_bytes;
    double us;
  };
  std::string mode_, dispatch_;  // dispatch_: the name of its entry
  std::vector<Entry> entries_;
};

}  // namespace ucclep::perf
