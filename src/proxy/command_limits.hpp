// SPDX-License-Identifier: Apache-2.0
// What the fields of a command can hold (the table in ucclep/device/command.hpp), against what a group may ask of them.
#pragma once
#include <cstdint>

namespace ucclep::proxy {

// The most that a group can come to.
struct CommandDemand {
  uint64_t ranks = 0;
  uint64_t places = 0;            // rows between two ranks in one operation
  uint64_t rows_per_command = 0;  // and of how many bytes
  uint64_t bytes_per_command = 0;
};

// Error(ucclEpNotSupported) names the first field that is too narrow.
void check_command_limits(const CommandDemand& demand);

}  // namespace ucclep::proxy
