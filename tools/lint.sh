#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/lint.sh [check...]      (the functions below; default: all)
# Checks the sources without running them. Every check runs; the exit status says whether all of them passed.
set -u  # without pipefail: a grep that finds nothing is fine, the last command of a pipe decides
cd "$(dirname "$0")/.."
failures=0

check() {  # one line for a check that passes, all of its output for one that fails
  local output
  if output=$("$1" 2>&1); then
    echo "ok      $1"
  else
    echo "FAILED  $1"
    failures=$((failures + 1))
  fi
  [ -z "$output" ] || sed 's/^/        /' <<<"$output"
}

# Files in the index and new ones, so that a file is checked before it is committed; works in an unpacked archive too.
sources() {
  { git ls-files --cached --others --exclude-standard -- "$@" || find "$@" -type f; } 2>/dev/null |
    grep -E '\.(c|h|cpp|hpp|cu|S)$' | while read -r file; do [ -f "$file" ] && echo "$file"; done
}
without_comments() { sed -e 's|//.*||' -e 's|/\*.*\*/||' -e 's|^[[:space:]]*\* .*||' "$1"; }
forbid() {  # Perl regular expression, files on standard input
  local pattern=$1 file lines found=0
  while read -r file; do
    lines=$(without_comments "$file" | grep -nP "$pattern") || continue
    sed "s|^|$file:|" <<<"$lines"
    found=1
  done
  [ $found -eq 0 ]
}

formatted() {  # clang-format-19
  tools/format.sh --check
}
licensed() {
  local file bad=0
  while read -r file; do
    head -n 2 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || { echo "$file: no SPDX line"; bad=1; }
  done < <(sources src include apps test perf examples; git ls-files '*meson.build' '*.def' 'tools/*.sh' 'tools/*.py' 'bindings/*.py')
  return $bad
}
one_place_for_targets() {  # code that differs by target stays in arch/
  sources src include apps test perf | grep -v '^include/ucclep/device/arch/' |
    forbid '^\s*#.*(__CUDACC__|__CUDA_ARCH__|__HIP__|__AMDGCN__|__HIP_DEVICE_COMPILE__)'
}
no_abort() {  # a member of such a name is fine: it is declared after "void" and called through an object
  sources src include |
    forbid '(?<!void )(?<![\w.>:])(?:(?:std)?::)?(abort|_?exit|_Exit|quick_exit|terminate|assert|__trap|__builtin_trap)\s*\('
}
links() {  # of the pages, within the project
  tools/check_links.py ./*.md docs/*.md perf/README.md
}
prose() {  # of the pages and headers that have been rewritten: none of the habits that make a sentence hard to read
  tools/check_prose.py
}
includes() {  # floors of folders, knots of modules, depth, and headers that include what they use
  tools/check_includes.py
}
self_contained() {  # each public header compiles alone. arch/ is included by arch.hpp for one target at a time
  sources include | grep '\.hpp$' | grep -vE '/arch/(amdgcn|butterfly|clang_cuda|cuda|cuda_sm80|cuda_sm90|host|uniform)\.hpp$' |
    xargs -r -P "$(nproc)" -I{} g++ -std=c++20 -fsyntax-only -Wall -Wextra -Wno-unused-variable -Iinclude -x c++ -include {} /dev/null
}
long_files() {  # a report, never a failure
  sources src include apps test perf | xargs -r wc -l | awk '$2 != "total" && $1 > 500 { print $2 ": " $1 " lines, is it two things?" }'
}
conformance() {  # the tests that pages of docs/ name exist
  tools/check_conformance.py
}
mutants_apply() {  # what `make mutants` applies, exactly where it was meant, and `make test` runs the cases that have to notice
  tools/mutants.py --apply-only
}
documented() {  # doxygen has nothing to say about the public headers
  local pages status=0
  pages=$(mktemp -d)
  tools/docs.sh "$pages" || status=$?
  rm -rf "$pages"
  return $status
}
tidy() {  # clang-tidy-19, by the commands of a tree that is only configured, a dozen files as one: most of its time goes to their headers
  rm -rf build-lint && meson setup build-lint -Dcuda=disabled -Dhip=disabled -Dpython=disabled -Dunity=on -Dunity_size=12 >/dev/null || return 1
  # Not the folders of src/device that hold what a build writes. In transports tidy does not see that an element of a vector of
  # optionals was asked before it is used.
  tidy_files 'src/(base|bootstrap|topology|proxy|host|device/(gpu_driver|host|libhost_kernels))' && tidy_files 'src/transport/' -bugprone-unchecked-optional-access
}
tidy_files() {  # pattern of paths, checks that are left out...
  local files
  mapfile -t files < <(find build-lint/src -name '*-unity*.cpp' | grep -E "$1" | sort)
  if [ ${#files[@]} -eq 0 ]; then echo "no files of $1 in build-lint"; return 1; fi
  printf '%s\n' "${files[@]}" | timeout 1800 xargs -P "$(nproc)" -n 1 timeout 600 clang-tidy-19 -p build-lint --quiet \
    --checks=-bugprone-suspicious-include${2:+,$2} --extra-arg=-Wno-unknown-warning-option 2> >(grep -vE " warnings?( and .*)? generated" >&2)
}


checks=("$@")
if [ ${#checks[@]} -eq 0 ]; then
  tools/deps.sh lint || exit 1
  checks=(formatted licensed one_place_for_targets no_abort includes self_contained long_files conformance mutants_apply links prose documented tidy)
fi
for name in "${checks[@]}"; do
  check "$name"
done
[ $failures -eq 0 ]
