#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: example_test.sh EXAMPLE.c INCLUDE-FOLDER LIBRARY-FOLDER
# Builds the example as its reader would, with every warning an error, and runs it: four ranks, and none has a wrong value.
set -euo pipefail
example=$1 include=$2 library=$3
read -ra compiler <<<"${CC:-cc}"  # it may be two words, as in "ccache cc"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$library"/libucclep.so.0 "$work/libucclep.so"
"${compiler[@]}" -std=c99 -Wall -Wextra -pedantic -Werror -I"$include" "$example" -o "$work/example" -L"$work" -lucclep -Wl,-rpath,"$library"
timeout 60 "$work/example" | tee "$work/output"
[ "$(grep -c '^rank [0-3]: 0 of 1024 values are wrong$' "$work/output")" -eq 4 ]

# A rank that fails ends the others at once: they would wait for it for 100 seconds. The program says so by its exit code.
cat >"$work/fail.c" <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <ucclep/ucclep.h>
static int me;
ucclEpResult_t ucclEpCommInitRank(ucclEpComm_t* comm, int ranks, ucclEpUniqueId id, int rank, const ucclEpCommConfig_t* config) {
  ucclEpResult_t (*real)(ucclEpComm_t*, int, ucclEpUniqueId, int, const ucclEpCommConfig_t*);
  *(void**)&real = dlsym(RTLD_NEXT, "ucclEpCommInitRank");
  me = rank;
  return real(comm, ranks, id, rank, config);
}
ucclEpResult_t ucclEpHandleCreate(ucclEpHandle_t* handle, ucclEpGroup_t group, const ucclEpHandleConfig_t* config) {
  ucclEpResult_t (*real)(ucclEpHandle_t*, ucclEpGroup_t, const ucclEpHandleConfig_t*);
  *(void**)&real = dlsym(RTLD_NEXT, "ucclEpHandleCreate");
  return me == 2 ? ucclEpInvalidUsage : real(handle, group, config);
}
END
"${compiler[@]}" -shared -fPIC -I"$include" "$work/fail.c" -o "$work/fail.so" -ldl
status=0
LD_PRELOAD="$work/fail.so" timeout 30 "$work/example" || status=$?
[ "$status" -eq 1 ] || { echo "a rank failed, and the example ended with $status" >&2; exit 1; }
