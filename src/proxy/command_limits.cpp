// SPDX-License-Identifier: Apache-2.0
#include "proxy/command_limits.hpp"

#include "base/error.hpp"
#include "ucclep/device/layout/command.hpp"

namespace ucclep::proxy {
namespace {

void check_max(const char* what, uint64_t wanted, uint64_t max) {
  if (wanted > max)
    fail(ucclEpNotSupported, "the group needs {} {}, but a command for the network holds at most {}", wanted, what,
         max);
}

}  // namespace

void check_command_limits(const CommandDemand& demand) {
  namespace f = command_field;
  check_max("ranks", demand.ranks, f::Destination::largest + 1);
  check_max("places between two ranks", demand.places, f::Row::largest + 1);
  check_max("rows in a command", demand.rows_per_command, f::Rows::largest);
  check_max("bytes in a command", demand.bytes_per_command, f::Units::largest * f::unit_bytes);
}

}  // namespace ucclep::proxy
