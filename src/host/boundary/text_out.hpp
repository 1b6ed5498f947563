// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <string_view>

namespace ucclep {

// The caller's (char* out, size_t* len), named out_name and "len" in error messages. out NULL: *len = bytes needed with
// the final NUL; *len too small: the same, and ucclEpInvalidArgument; else the text, and *len = bytes written.
void write_text(std::string_view text, char* out, size_t* len, const char* out_name);

}  // namespace ucclep
