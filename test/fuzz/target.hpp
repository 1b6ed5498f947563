// SPDX-License-Identifier: Apache-2.0
// What fuzz targets share. A target gives bytes from outside to a parser: an Error or a result is right; any other
// exception, a crash, a wait without end and a large allocation are wrong. The same sources are linked with libFuzzer
// (`make fuzz`) and with replay.cpp (`make test`).
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace ucclep::fuzz {

// Cuts an input into what a target needs; at its end there are zeros and empty texts.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  bool empty() const { return rest_.empty(); }
  uint8_t byte() { return object<uint8_t>(); }
  template <class T>
  T object() {
    T value{};
    const std::string_view bytes = take(sizeof value);
    std::memcpy(static_cast<void*>(&value), bytes.data(), bytes.size());
    return value;
  }
  std::string_view take(size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view take_all() { return take(rest_.size()); }
  std::string_view take_line() {
    const std::string_view line = rest_.substr(0, rest_.find('\n'));
    rest_.remove_prefix(std::min(line.size() + 1, rest_.size()));
    return line;
  }

 private:
  std::string_view rest_;
};

// What must hold for whatever input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "this does not hold: %s\n", what);
  std::abort();
}

// Runs a step that may refuse its input. False: it did, by an Error.
template <class Step>
bool accepts(Step&& step) {
  try {
    step();
    return true;
  } catch (const Error& error) {
    require(error.code() != ucclEpSuccess, "an error has a code");
    return false;
  }
}

}  // namespace ucclep::fuzz
