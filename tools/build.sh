#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/build.sh build|build-check|build-tsan|build-asan|build-fuzz [ninja target...]
# Configures the build tree when it is new, builds it, and ends with the line that says which GPU code is embedded. Says meanwhile
# how far it is (on stderr); V=1 shows all that Meson and Ninja print. What a command that fails has printed is always shown.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/progress.sh
tree=${1:?usage: tools/build.sh build|build-check|build-tsan|build-asan|build-fuzz [ninja target...]}
shift

# Files are compiled a dozen at a time, for build time; in build-fuzz by themselves, as its programs take single objects.
# Line numbers are all the debug information that a backtrace needs. The sanitizer trees hold no GPU code, which nothing there could
# run, and are little optimised, for build time.
# The tree `build` has code for one GPU of each vendor, whose compilers take minutes. NVIDIA_TARGETS and AMD_TARGETS are lists of
# others, separated by commas, or `all` that a release has.
options=(-Ddebug=false -Dc_args=-g1 -Dcpp_args=-g1)
joined=(-Dunity=on -Dunity_size=12)
sanitizer_options=(-Dcuda=disabled -Dhip=disabled -Doptimization=1 -Db_lundef=false)
case $tree in
  build)
    nvidia_targets=${NVIDIA_TARGETS:-sm_90a} amd_targets=${AMD_TARGETS:-gfx942}
    if [ "$nvidia_targets" = all ]; then nvidia_targets=sm_80,sm_90a,sm_100,sm_103,sm_120,compute_90; fi
    if [ "$amd_targets" = all ]; then amd_targets=gfx90a,gfx942; fi
    options+=("-Dnvidia_targets=$nvidia_targets" "-Damd_targets=$amd_targets" "${joined[@]}") ;;
  # For `make check`: GPU code for one target, of NVIDIA.
  build-check) options+=(-Dhip=disabled "${joined[@]}") ;;
  # gcc's ThreadSanitizer takes minutes where clang's takes seconds.
  build-tsan) options+=(-Db_sanitize=thread "${joined[@]}" "${sanitizer_options[@]}") ;;
  build-asan) options+=(-Db_sanitize=address,undefined "${joined[@]}" "${sanitizer_options[@]}") ;;
  build-fuzz) options+=(-Dfuzz=true -Db_sanitize=address,undefined "${sanitizer_options[@]}") ;;
  *) echo "build.sh: no such build tree: $tree" >&2; exit 1 ;;
esac
if [ "$tree" != build ] && [ "$tree" != build-check ]; then
  export CC=clang-19 CXX=clang++-19
fi

quietly() {  # shows the output only of a command that fails
  local log status=0
  if [ "${V:-0}" != 0 ]; then "$@" >&2; return; fi
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  [ $status -eq 0 ] || cat "$log" >&2
  rm -f "$log"
  return $status
}

gpu_target() {  # a command or its description: the GPU for which it compiles, or nothing
  if [[ $1 =~ (sm_[0-9]+a?|gfx[0-9a-f]+) ]]; then echo "${BASH_REMATCH[1]}"; fi
}
in_words() {  # Ninja's description of a step
  local target
  target=$(gpu_target "$1")
  case $1 in
    Compiling*) echo "compiling ${1##*/}" ;;
    Linking*) echo "linking ${1##*/}" ;;
    Generating*' with a custom command'*)
      set -- "${1#Generating }"
      echo "${target:+GPU code for $target: }${target:-making }${1%% with a custom command*}" ;;
    *) echo "$1" ;;
  esac
}
gpu_code_now() {  # Ninja's process: for which GPUs its commands compile code at the moment
  local child target list=''
  for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null || true); do
    target=$(gpu_target "$({ tr '\0' ' ' <"/proc/$child/cmdline"; } 2>/dev/null || true)")
    if [ -n "$target" ] && [[ $list != *"$target"* ]]; then list+=${list:+, }$target; fi
  done
  echo "$list"
}
# Ninja says that a step has ended, and nothing while the compiler of GPU code takes minutes: then the time goes on, and what it is.
ninja_with_progress() {
  local log output ninja line part='' count='' what='' now status=0
  log=$(mktemp)
  exec {output}< <(exec env NINJA_STATUS='[%f/%t] ' ninja "$@" 2>&1)
  ninja=$!
  while :; do
    line='' status=0
    IFS= read -r -t 1 -u "$output" line || status=$?
    if [ $status -gt 128 ]; then  # a second without a line
      part+=$line
      now=$(gpu_code_now "$ninja")
    elif [ $status -ne 0 ]; then
      break
    else
      line=$part$line part='' now=''
      echo "$line" >>"$log"
      if [[ $line =~ ^(\[[0-9]+/[0-9]+\])\ (.*)$ ]]; then count=${BASH_REMATCH[1]} what=$(in_words "${BASH_REMATCH[2]}"); fi
    fi
    if [ -n "$count$now" ]; then progress "${count:-[0]} $((SECONDS - progress_began)) s: ${now:+GPU code for }${now:-$what}"; fi
  done
  status=0
  exec {output}<&-
  wait "$ninja" || status=$?
  if [ $status -eq 0 ]; then
    progress_end "${count:-nothing to do}"
  else
    progress_end ''
    grep -Ev '^(\[[0-9]+/[0-9]+\] |ninja: Entering)' "$log" >&2 || true
  fi
  rm -f "$log"
  return $status
}
build() {
  if [ "${V:-0}" != 0 ]; then ninja -v "$@" >&2; else ninja_with_progress "$@"; fi
}

# A tree is configured again when an optional tool has come or gone since, such as a GPU compiler.
optional_tools=$(command -v nvcc /usr/local/cuda/bin/nvcc clang++-19 cmake mpicc | sort -u || true)
if [ ! -f "$tree/build.ninja" ]; then
  progress_begin "Configuring $tree with Meson"
  rm -rf "$tree"
  quietly meson setup "$tree" -Dwerror="${WERROR:-false}" "${options[@]}"
else
  if [ -n "${WERROR:-}" ]; then quietly meson configure "$tree" -Dwerror="$WERROR"; fi
  # A tree that has more keeps it: make install after make test compiles what is missing, and not the other way round.
  if [ -n "${NVIDIA_TARGETS:-}" ] && [ "$tree" = build ]; then quietly meson configure "$tree" -Dnvidia_targets="$nvidia_targets"; fi
  if [ -n "${AMD_TARGETS:-}" ] && [ "$tree" = build ]; then quietly meson configure "$tree" -Damd_targets="$amd_targets"; fi
  if [ "$optional_tools" != "$(cat "$tree/optional_tools.txt" 2>/dev/null)" ]; then
    progress_begin "Configuring $tree again with Meson, as compilers have come or gone"
    quietly meson setup --reconfigure "$tree"
  fi
fi
echo "$optional_tools" >"$tree/optional_tools.txt"
progress_begin "Building $tree with Ninja${*:+: $*}"
build -C "$tree" "$@"
cat "$tree/gpu_code.txt"
