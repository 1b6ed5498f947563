#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/wheel.sh [FOLDER]       RELEASE=1 insists on GPU code for both vendors
# Builds the wheels ucclep (with the libucclep.so of the tree build) and ucclep-deep-ep into FOLDER, dist by default.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-dist}")
tools/deps.sh python
if [ "${RELEASE:-0}" != 0 ]; then export AMD_TARGETS=all NVIDIA_TARGETS="${NVIDIA_TARGETS:-all}"; fi
tools/build.sh build library
if [ "${RELEASE:-0}" != 0 ] && ! grep -q 'sm_.*gfx' build/gpu_code.txt; then
  echo "wheel.sh: a release has GPU code for NVIDIA and for AMD: both compilers must be there" >&2
  exit 1
fi

# meson-python is the only part that Debian 12 lacks; it drives Debian's meson.
environment=build/wheel-env
if ! "$environment/bin/python" -c 'import mesonpy' 2>/dev/null; then
  rm -rf "$environment"
  /usr/bin/python3 -m venv --system-site-packages "$environment"
  "$environment/bin/pip" install --quiet 'meson-python >= 0.15'
fi
mkdir -p "$folder"
rm -f "$folder"/ucclep*.whl
pip_wheel() { "$environment/bin/pip" wheel --quiet --no-build-isolation --no-deps --wheel-dir "$folder" "$@"; }
pip_wheel --config-settings=builddir=build .
pip_wheel ./bindings/python/drop_in
for wheel in "$folder"/ucclep*.whl; do
  tools/repack_wheel.py "$wheel" LICENSE
  echo "$wheel"
done
