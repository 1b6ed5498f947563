#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/docs.sh [FOLDER]      (default: build-docs)
# Pages of the public headers in FOLDER/html. What is not documented is an error, as is every other warning of doxygen.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build-docs}
mkdir -p "$folder"
{ cat docs/Doxyfile && echo "OUTPUT_DIRECTORY = \"$folder\""; } | doxygen -
[ -n "${1:-}" ] || echo "$folder/html/index.html"
