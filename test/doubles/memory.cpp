// SPDX-License-Identifier: Apache-2.0
// Memory of a device and of the host. New memory holds garbage, as a driver's may.
#include <algorithm>
#include <array>
#include <cstring>

#include "doubles/capture.hpp"
#include "doubles/exports.hpp"

namespace ucclep::doubles {
namespace {

constexpr int garbage = 0xa5;
constexpr int copy_default = 4;  // hipMemcpyDefault

void copy(void* to, const void* from, size_t bytes, Stream stream) {
  expect(bytes == 0 || (to != nullptr && from != nullptr), invalid_value);
  enqueue(stream, [=](Device& device, Stream in) { device.memcpy_async(to, from, bytes, in); });
}

}  // namespace

Code mem_alloc(void** data, size_t bytes) {
  return answer(__func__, [&] {
    expect(bytes != 0, invalid_value);
    expect_no_capture();
    *data = current_gpu().device->alloc(bytes);
    std::memset(*data, garbage, bytes);
    ++live_objects;
  });
}

Code mem_free(void* data) {
  return answer(__func__, [&] {
    expect(data != nullptr, invalid_value);
    expect_no_capture();
    current_gpu().device->free(data);
    --live_objects;
  });
}

Code host_alloc(void** data, size_t bytes, unsigned flags) {
  return answer(__func__, [&] {
    constexpr unsigned coherent = VENDOR(0, 0x40000000);
    expect(bytes != 0 && flags == (host_portable | host_mapped | coherent), invalid_value);
    expect_no_capture();
    *data = current_gpu().device->alloc_host(bytes);
    std::memset(*data, garbage, bytes);
    ++live_objects;
  });
}

Code host_free(void* data) {
  return answer(__func__, [&] {
    expect(data != nullptr, invalid_value);
    expect_no_capture();
    current_gpu().device->free_host(data);
    --live_objects;
  });
}

// The host device's streams only copy: from zeros, as the library sets memory to nothing else.
Code memset_async(void* data, unsigned char value, size_t bytes, Stream stream) {
  return answer(__func__, [&] {
    static std::array<char, 1 << 20> zeros{};
    expect(value == 0, not_supported);
    for (size_t done = 0; done < bytes; done += zeros.size()) {
      copy(static_cast<char*>(data) + done, zeros.data(), std::min(bytes - done, zeros.size()), stream);
    }
  });
}

Code memcpy_async(void* to, const void* from, size_t bytes, Stream stream) {
  return answer(__func__, [&] { copy(to, from, bytes, stream); });
}

Code memcpy_async_kind(void* to, const void* from, size_t bytes, int kind, Stream stream) {
  return answer(__func__, [&] {
    expect(kind == copy_default, invalid_value);
    copy(to, from, bytes, stream);
  });
}

}  // namespace ucclep::doubles
