#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: header_compiles.sh INCLUDE_DIR SOURCE COMPILER...
# A public header compiles without a warning in every language version with each compiler: a C compiler gets the C
# versions, a C++ compiler the C++ ones.
set -u
include=$1
source=$2
shift 2
failed=0
tried=0
for compiler in "$@"; do
  case $compiler in
    *++*) language=c++ versions="c++11 c++14 c++17 c++20 c++2b" ;;
    *) language=c versions="c99 c11 c17 c2x" ;;
  esac
  for version in $versions; do
    tried=$((tried + 1))
    "$compiler" -x $language -std=$version -Wall -Wextra -pedantic -Werror -fsyntax-only -I"$include" "$source" || {
      echo "$compiler -std=$version does not take $source"
      failed=$((failed + 1))
    }
  done
done
echo "$tried compilations, $failed failed"
[ $tried -gt 0 ] && [ $failed -eq 0 ]
