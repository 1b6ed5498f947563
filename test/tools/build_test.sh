#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: build_test.sh TOOLS-FOLDER: what tools/build.sh and tools/deps.sh say while they work, with doubles of what they call.
set -euo pipefail
tools=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tools" "$work/path"
cp "$tools"/{build,deps,progress}.sh "$work/tools"
export PATH=$work/path:$PATH

stub() {  # name, script
  printf '#!/bin/bash\n%s\n' "$2" >"$work/path/$1"
  chmod +x "$work/path/$1"
}
run() {  # command...: leaves its output and its status
  status=0
  "$@" >"$work/output" 2>&1 || status=$?
}
fail() {
  echo "build_test.sh: $1; the output was:"
  cat "$work/output"
  exit 1
}
says() { grep -qxE "$1" "$work/output" || fail "no line \"$1\""; }
hides() { if grep -qE "$1" "$work/output"; then fail "a line \"$1\""; fi; }

stub meson 'echo "what Meson prints"; mkdir -p "$2"; touch "$2/build.ninja"; echo "GPU code: none" >"$2/gpu_code.txt"'
stub ninja '
echo "[1/3] Compiling C++ object src/base/base.p/error.cpp.o"
if [ -n "${BREAKS:-}" ]; then printf "FAILED: x.o\ng++ x.cpp\nx.cpp:1: error: no\n"; exit 1; fi
bash -c "sleep 12; : sm_90a"
echo "[2/3] Generating kernels-sm_90a with a custom command"
echo "[3/3] Linking target src/libucclep.so"'
run "$work/tools/build.sh" build
[ $status -eq 0 ] || fail "status $status"
says 'Configuring build with Meson'
says '  \[1/3\] 1[0-9] s: GPU code for sm_90a'  # while its compiler runs
says '  \[3/3\], [0-9]+ s'
hides 'what Meson prints|Compiling C\+\+'
[ "$(tail -n 1 "$work/output")" = "GPU code: none" ] || fail "the last line does not say which GPU code is embedded"

BREAKS=1 run "$work/tools/build.sh" build
[ $status -eq 1 ] || fail "a build that fails ended with $status"
says 'x.cpp:1: error: no'
hides '^GPU code: none'
rm -r "$work/build"
V=1 BREAKS=1 run "$work/tools/build.sh" build
[ $status -eq 1 ] || fail "a build that fails ended with $status"
says 'what Meson prints'
says '\[1/3\] Compiling C\+\+ object src/base/base.p/error.cpp.o'

stub dpkg-query 'exit 1'
stub sudo '"$@"'
stub apt-get '
if [[ "$*" == *" update" ]]; then exit 0; fi
echo "what dpkg prints"
echo "pmstatus:libfmt9:amd64:20.5:Unpacking libfmt9"
[ -n "${BREAKS:-}${V:-}" ] || sleep 11
echo "pmstatus:doxygen:45.3:Unpacking doxygen"
[ -z "${BREAKS:-}" ]'
run "$work/tools/deps.sh" docs
[ $status -eq 0 ] || fail "status $status"
says 'Installing Debian packages, and what they need: doxygen python3 python3-venv'
says '  installing, 45 %, 1[0-9] s: Unpacking doxygen'
says '  installed, [0-9]+ s'
hides 'what dpkg prints'
BREAKS=1 run "$work/tools/deps.sh" docs
[ $status -eq 1 ] || fail "an installation that fails ended with $status"
says 'what dpkg prints'
V=1 run "$work/tools/deps.sh" docs
says "what dpkg prints"
echo "build.sh and deps.sh say what they do"
