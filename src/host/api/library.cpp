// SPDX-License-Identifier: Apache-2.0
// What the library says of itself.
#include <string>

#include "device/kernels/gpu_code.hpp"
#include "host/boundary/guard.hpp"
#include "host/boundary/structs.hpp"
#include "host/boundary/text_out.hpp"
#include "transport/transport.hpp"

namespace ucclep {
namespace {

std::string build_info() {
  return fmt::format("libucclep {}.{}.{}\nGPU code: {}\ntransports: {}, plugins\n", UCCLEP_VERSION / 10000,
                     UCCLEP_VERSION / 100 % 100, UCCLEP_VERSION % 100, gpu_code_summary(),
                     transport::built_in_transports());
}

}  // namespace
}  // namespace ucclep

ucclEpResult_t ucclEpGetVersion(int* version) {
  return ucclep::guarded("ucclEpGetVersion", nullptr, [&] {
    ucclep::require(version, "version");
    *version = UCCLEP_VERSION;
  });
}

ucclEpResult_t ucclEpGetBuildInfo(char* text, size_t* len) {
  return ucclep::guarded("ucclEpGetBuildInfo", nullptr,
                         [&] { ucclep::write_text(ucclep::build_info(), text, len, "text"); });
}

const char* ucclEpGetErrorString(ucclEpResult_t result) {
  switch (ucclep::number_of(result)) {
    case ucclEpSuccess:
      return "success";
    case ucclEpUnhandledDeviceError:
      return "unhandled device error";
    case ucclEpSystemError:
      return "system error";
    case ucclEpInternalError:
      return "internal error";
    case ucclEpInvalidArgument:
      return "invalid argument";
    case ucclEpInvalidUsage:
      return "invalid usage";
    case ucclEpRemoteError:
      return "remote error";
    case ucclEpInProgress:
      return "in progress";
    case ucclEpTimeout:
      return "timeout";
    case ucclEpAborted:
      return "aborted";
    case ucclEpNotSupported:
      return "not supported";
    case ucclEpOutOfMemory:
      return "out of memory";
    case ucclEpOverflow:
      return "overflow";
    default:
      return "unknown result code";
  }
}
