// SPDX-License-Identifier: Apache-2.0
// The C API with errors as exceptions.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "ucclep/ucclep.h"

namespace ucclep::perf {

// Something that ends the run; what() is a whole message.
class PerfError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline void check(ucclEpResult_t result, const char* call, ucclEpComm_t comm = nullptr) {
  if (result == ucclEpSuccess) return;
  std::string message = ucclEpGetLastError(comm);
  if (message.empty()) message = "no error message";
  throw PerfError(std::string(call) + ": " + ucclEpGetErrorString(result) + " (" + std::to_string(result) +
                  "): " + message);
}

inline ucclEpTensor_t tensor(void* data, ucclEpDataType_t dtype, const std::vector<int64_t>& sizes) {
  ucclEpTensor_t result = UCCLEP_TENSOR_INIT;
  result.data = data;
  result.dtype = dtype;
  for (int64_t size : sizes) result.sizes[result.ndim++] = size;
  return result;
}

}  // namespace ucclep::perf
