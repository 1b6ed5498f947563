// SPDX-License-Identifier: Apache-2.0
// Bulk copies. Usually a copy is done where it is issued. In deferred mode it is done as a GPU would: by another agent,
// some time before the wait that needs it, its source and its destination each at a moment of their own.
#pragma once
#include "device/host/state.hpp"

namespace ucclep::executor {

void begin_bulk(Block& block);
void end_bulk(Block& block);  // what is still pending is forgotten
// Deferred mode: each of the block's pending copies may take a step now.
void advance_bulk(Block& block);
// Deferred mode: bulk copies that the block issues from here on see what the lane did.
void fence_bulk(Block& block);
// Called by the last lane of the warp: what is left is written; complains of what should have been waited for.
void finish_bulk(Lane& me);

}  // namespace ucclep::executor
