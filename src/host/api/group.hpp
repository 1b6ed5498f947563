// SPDX-License-Identifier: Apache-2.0
// Destroys a group with all its handles.
#pragma once
#include "host/context/teardown.hpp"
#include "ucclep/ucclep.h"

namespace ucclep {

void destroy_group(ucclEpGroup_t group, Teardown& teardown);
void destroy_handle(ucclEpHandle_t handle);

}  // namespace ucclep
