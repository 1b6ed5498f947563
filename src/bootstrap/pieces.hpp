// SPDX-License-Identifier: Apache-2.0
// Texts of any length, one after the other in a string of bytes.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace ucclep {

inline void put_piece(std::string& bytes, std::string_view text) {
  auto length = static_cast<uint32_t>(text.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += text;
}

// Reads what put_piece wrote; bytes that do not hold together read as nullopt.
class PieceReader {
 public:
  explicit PieceReader(std::string_view bytes) : rest_(bytes) {}
  std::optional<std::string> next() {
    uint32_t length = 0;
    if (rest_.size() < sizeof(length)) return std::nullopt;
    std::memcpy(&length, rest_.data(), sizeof(length));
    rest_.remove_prefix(sizeof(length));
    if (rest_.size() < length) return std::nullopt;
    std::string text(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return text;
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace ucclep
