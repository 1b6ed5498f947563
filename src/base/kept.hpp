// SPDX-License-Identifier: Apache-2.0
// Memory that work in flight may use, and nobody waits for that work any more.
#pragma once
#include <memory>

namespace ucclep {

// Until the process ends. It stays reachable, so a leak checker takes it for intended.
void keep_for_ever(std::shared_ptr<const void> what);

}  // namespace ucclep
