// SPDX-License-Identifier: Apache-2.0
#include "proxy/command_limits.hpp"

#include "base/error.hpp"
#include "ucclep/device/layout/command.hpp"

namespace ucclep::proxy {
namespace {

void check_most(const char* what, uint64_t wanted, uint64_t most) {
  if (wanted > most)
    fail(ucclEpNotSupported, "the group needs {} {}, a command for the network holds {}", wanted, what, most);
}

}  // namespace

void check_command_limits(const CommandDemand& demand) {
  namespace f = command_field;
  check_most("ranks", demand.ranks, f::Destination::largest + 1);
  check_most("places between two ranks", demand.places, f::Row::largest + 1);
  check_most("rows in a command", demand.rows_per_command, f::Rows::largest);
  check_most("bytes in a command", demand.bytes_per_command, f::Units::largest * f::unit_bytes);
}

}  // namespace ucclep::proxy
