#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/install.sh PREFIX [BUILD TREE]
# Copies the built library, headers and package files under PREFIX. The package files are relative to where they lie, so the build
# tree need not be configured again for another prefix, and no root is needed when PREFIX is writable.
set -euo pipefail
prefix=$(realpath -m "${1:?usage: tools/install.sh PREFIX [BUILD TREE]}")
cd "$(dirname "$0")/.."
tree=${2:-build}

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
meson install -C "$tree" --no-rebuild --quiet --tags runtime,devel,bin --destdir "$stage" >/dev/null
configured=$(meson introspect --buildoptions "$tree" | python3 -c \
  'import json, sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == "prefix"))')
mkdir -p "$prefix"
cp -R --preserve=mode,timestamps,links "$stage$configured/." "$prefix/"
echo "Installed libucclep under $prefix"
