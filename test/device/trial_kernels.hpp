// SPDX-License-Identifier: Apache-2.0
// Arguments of the small kernels with which the tests try the executor.
#pragma once
#include <cstdint>

namespace ucclep::test {

struct TrialArgs {
  uint64_t* words;  // zero before
  uint64_t* out;    // zero before
  unsigned char* data;
  unsigned char* copy;
  uint32_t rounds;
  uint32_t bytes;
};

}  // namespace ucclep::test
