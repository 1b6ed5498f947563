// SPDX-License-Identifier: Apache-2.0
// What hwloc knows of this machine, as the text of its XML format. hwloc is opened at run time: Debian's static one is
// no position-independent code, and libucclep.so must start where there is none.
#pragma once
#include <string>

namespace ucclep::topology {

// ucclEpNotSupported when there is no hwloc or one of another ABI, ucclEpSystemError when it fails.
std::string hwloc_xml();

}  // namespace ucclep::topology
