// SPDX-License-Identifier: Apache-2.0
// The data that ranks exchange when they connect a group, as bytes: numbers and runs of bytes, in an order that both
// sides know.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace ucclep::proxy {

class Serializer {
 public:
  void number(uint32_t value) { append(&value, sizeof value); }
  void bytes(const void* data, size_t size) {
    number(static_cast<uint32_t>(size));
    append(data, size);
  }
  const std::vector<std::byte>& data() const { return data_; }

 private:
  void append(const void* data, size_t size) {
    const auto* from = static_cast<const std::byte*>(data);
    data_.insert(data_.end(), from, from + size);
  }
  std::vector<std::byte> data_;
};

// Throws Error(ucclEpRemoteError), which names the rank, when its data is too short.
class Deserializer {
 public:
  Deserializer(std::span<const std::byte> data, uint32_t rank) : rest_(data), rank_(rank) {}

  bool done() const { return rest_.empty(); }
  uint32_t number() {
    uint32_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  // The number of objects that follow. Each of them takes at least a byte.
  uint32_t count() {
    const uint32_t value = number();
    if (value > rest_.size()) too_short(value - rest_.size());
    return value;
  }
  std::span<const std::byte> bytes() { return take(number()); }
  template <class T>
  T object() {
    T value;
    const auto from = bytes();
    if (from.size() != sizeof value) too_short(sizeof value);
    std::memcpy(&value, from.data(), sizeof value);
    return value;
  }
  std::string text() {
    const auto chars = bytes();
    return {reinterpret_cast<const char*>(chars.data()), chars.size()};
  }

 private:
  std::span<const std::byte> take(size_t size) {
    if (size > rest_.size()) too_short(size - rest_.size());
    const auto taken = rest_.first(size);
    rest_ = rest_.subspan(size);
    return taken;
  }
  [[noreturn]] void too_short(size_t missing) const {
    fail(ucclEpRemoteError, "the connection data of rank {} is {} bytes too short", rank_, missing);
  }
  std::span<const std::byte> rest_;
  uint32_t rank_;
};

}  // namespace ucclep::proxy
