// SPDX-License-Identifier: Apache-2.0
// Prints the names of the library's kernels, for gpu_resources.py.
#include <iostream>

#include "device/kernels/kernels.hpp"

int main() {
  for (const char* name : ucclep::kernels::names) std::cout << name << '\n';
}
