#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/sanitized_library.sh
# Builds the library under ThreadSanitizer, without GPU code, installs it with its headers under build-tsan/installed, and prints
# how a kernel is compiled for it.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/build.sh build-tsan library
tools/install.sh build-tsan/installed build-tsan
prefix=$PWD/build-tsan/installed
cat <<END
To run a kernel on the CPU under ThreadSanitizer, compile the program that launches it by <ucclep/host_launch.hpp>, and run its ranks as
threads of one process:
  clang++-19 -std=c++20 -O1 -g -fsanitize=thread -I$prefix/include -x c++ kernel.cu -L$prefix/lib -lucclep -Wl,-rpath,$prefix/lib -o kernel
  UCCLEP_DEVICE=host UCCLEP_HOST_WORKERS=2 ./kernel
END
