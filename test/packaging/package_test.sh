#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: package_test.sh exports|needed|pkg-config|cmake|headers|kernels|tools|mpi BUILD-TREE SOURCE-TREE
# Installs the build tree into a fresh folder and looks at the result the way a user would.
set -euo pipefail
what=$1 tree=$2 source=$3
here=$source/test/packaging
unset LD_LIBRARY_PATH  # meson's names the build tree
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
"$source/tools/install.sh" "$prefix" "$tree"
library=$prefix/lib/libucclep.so
strict=(-Wall -Wextra -pedantic -Werror)

case $what in
  exports)  # every symbol is part of the C API, and there are some
    nm -D --defined-only "$library" | awk '{ print $NF }' >"$work/symbols"
    grep -c '^ucclEp' "$work/symbols"
    ! grep -v '^ucclEp' "$work/symbols"
    ;;
  needed)  # no GPU, NIC or MPI library: only what every C++ program has
    readelf -d "$library" | grep -F 'Library soname: [libucclep.so.0]'
    readelf -d "$library" | sed -n '/NEEDED/s/.*\[\(.*\)\]/\1/p' >"$work/needed"
    ! grep -vxE 'lib(c|m|stdc\+\+|gcc_s|pthread|dl|rt)\.so\.[0-9]+|ld-linux-x86-64\.so\.2' "$work/needed"
    # dlopen has little static TLS to give.
    tls=$(readelf -lW "$library" | awk '$1 == "TLS" { print $6 }')
    [ $((tls)) -le 128 ] || { echo "$((tls)) bytes of thread-local variables"; exit 1; }
    ;;
  pkg-config)
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
    pkg-config --exact-version="$(sed -n 's/^Version: //p' "$PKG_CONFIG_PATH/ucclep.pc")" ucclep
    # shellcheck disable=SC2046  # the flags are words
    cc -std=c99 "${strict[@]}" "$here/user/main.c" -o "$work/main" $(pkg-config --cflags --libs ucclep)
    LD_LIBRARY_PATH=$prefix/lib "$work/main"
    ;;
  cmake)
    if ! command -v cmake >/dev/null; then echo "cmake is not installed"; exit 77; fi
    cmake -S "$here/user" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/log" || { cat "$work/log"; exit 1; }
    cmake --build "$work/build"
    "$work/build/main"
    # Another minor version is another interface.
    if cmake -S "$here/user" -B "$work/other" -DCMAKE_PREFIX_PATH="$prefix" -DWANTED=0.99 >"$work/log" 2>&1; then
      echo "find_package(ucclep 0.99) was satisfied"
      exit 1
    fi
    grep -q 'ucclepConfig.cmake' "$work/log"
    ;;
  kernels)  # a user's kernel runs on the CPU, for both wave sizes, under a debugger's flags and in other schedules
    export UCCLEP_DEVICE=host
    for compiler in g++ clang++-19; do
      if ! command -v $compiler >/dev/null; then echo "$compiler is not installed"; continue; fi
      for wave in 32 64; do
        program=$work/kernel-$compiler-$wave
        $compiler -std=c++20 -O0 -g "${strict[@]}" -I"$prefix/include" -DUCCLEP_WAVE=$wave -x c++ "$source/examples/fused_topk_dispatch.cu" \
          -o "$program" -L"$prefix/lib" -lucclep -Wl,-rpath,"$prefix/lib"
        export UCCLEP_HOST_WAVE=$wave
        "$source/test/examples/kernel_example_test.sh" "$program" 2
        for seed in 1 2; do
          UCCLEP_HOST_MODE=lockstep,deferred UCCLEP_HOST_SEED=$seed "$source/test/examples/kernel_example_test.sh" "$program" 2
        done
      done
      # Of the other wave: an error message, and no kernel.
      ! UCCLEP_HOST_WAVE=32 "$program" 1 2>"$work/refused"
      grep 'route_and_send was compiled for waves of 64 lanes (UCCLEP_WAVE), but the device host (wave 32)' "$work/refused"
    done
    ;;
  tools)  # they run where they were installed
    for tool in dispatch_perf combine_perf ceiling_perf fifo_perf transport_perf init_perf device_perf ucclep-topo; do "$prefix/bin/$tool" --version; done
    ;;
  mpi) "$source/test/perf/mpi_test.sh" "$tree" "$prefix/bin" ;;  # so does the plugin
  headers)  # each C header stands alone, in C99 and in C++
    for header in "$prefix"/include/ucclep/*.h; do
      cc -std=c99 "${strict[@]}" -fsyntax-only -x c "$header" -I"$prefix/include"
      c++ -std=c++20 "${strict[@]}" -fsyntax-only -x c++ "$header" -I"$prefix/include"
    done
    # The device API is C++ alone.
    for header in device.hpp host_launch.hpp; do
      c++ -std=c++20 "${strict[@]}" -fsyntax-only -x c++ -I"$prefix/include" - <<<"#include <ucclep/$header>"
    done
    ;;
esac
