// SPDX-License-Identifier: Apache-2.0
// What a stream does, as an agent of its own for ThreadSanitizer.
#pragma once
#include <cstddef>

namespace ucclep::executor {

// What a stream does is not done by the thread that happens to run it: later acts of that thread are not ordered after
// it. `stream` is the tag of what came before in the stream, and of what follows.
void copy_in_stream(void* stream, void* to, const void* from, size_t bytes);
void free_in_stream(void* stream, void* data);
void pass_on(void* before, void* after);  // what is ordered before the one tag is also before the other

}  // namespace ucclep::executor
