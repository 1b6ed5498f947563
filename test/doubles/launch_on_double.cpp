// SPDX-License-Identifier: Apache-2.0
// User kernels beside a GPU's double: it runs the library's kernels only, but all of its memory is memory of the
// process, so the host device runs the test's own. Comes back when the kernel has ended.
#include "device/host/host_device.hpp"
#include "support/ep.hpp"
#include "user_kernels/launch_user.hpp"

namespace ucclep::test {

void launch_user(ucclEpHandle_t, const std::string& kernel, const void* args, size_t bytes, ucclEpStream_t,
                 UserGrid grid) {
  constexpr int64_t timeout_ms = 60'000;
  const std::unique_ptr<Device> device = open_host_device(0, HostDeviceConfig::from_environment());
  const ucclEpStream_t stream = device->stream_create();
  device->launch({kernel.c_str(), false}, {grid.blocks, grid.threads, 0}, args, bytes, stream);
  const ucclEpResult_t result = device->stream_synchronize(stream, timeout_ms);
  device->stream_destroy(stream);
  require(result == ucclEpSuccess, kernel + " did not end");
}

}  // namespace ucclep::test
