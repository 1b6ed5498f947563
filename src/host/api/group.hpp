// SPDX-License-Identifier: Apache-2.0
// Destroys a group with all its handles.
#pragma once
#include "ucclep/ucclep.h"

namespace ucclep {

void destroy_group(ucclEpGroup_t group);
void destroy_handle(ucclEpHandle_t handle);

}  // namespace ucclep
