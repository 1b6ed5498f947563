// SPDX-License-Identifier: Apache-2.0
#include "host/boundary/text_out.hpp"

#include <cstring>

#include "base/error.hpp"
#include "host/boundary/guard.hpp"

namespace ucclep {

void write_text(std::string_view text, char* out, size_t* len, const char* out_name) {
  require(len, "len");
  const size_t given = *len;
  *len = text.size() + 1;
  if (out == nullptr) return;
  if (given < *len)
    fail(ucclEpInvalidArgument, "*len is {}, expected at least {} (the bytes of {})", given, *len, out_name);
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
}

}  // namespace ucclep
