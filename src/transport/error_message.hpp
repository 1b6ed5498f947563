// SPDX-License-Identifier: Apache-2.0
// An error message that is put together where nothing may be allocated or thrown. What is too long is cut off.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

namespace ucclep::transport {

class ErrorMessage {
 public:
  static constexpr size_t longest = 255;

  template <class... Args>
  explicit ErrorMessage(fmt::format_string<Args...> format, Args&&... args) noexcept {
    try {
      const auto end = fmt::format_to_n(text_, longest, format, std::forward<Args>(args)...);
      length_ = std::min<size_t>(end.size, longest);
    } catch (...) {  // an argument that cannot be printed: the message stays empty
    }
    text_[length_] = '\0';
  }

  std::string_view view() const noexcept { return {text_, length_}; }
  const char* c_str() const noexcept { return text_; }

 private:
  char text_[longest + 1];
  size_t length_ = 0;
};

}  // namespace ucclep::transport
