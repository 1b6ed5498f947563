#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/docs.sh [FOLDER]
# Builds the site of docs/index.md and of what doxygen reads in the headers: build-docs/html. With FOLDER doxygen alone runs, and what a
# header leaves undocumented is an error. Every warning of doxygen and of Sphinx is an error; tools/check_site.py checks the pages made.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/progress.sh

if [ -n "${1:-}" ]; then
  mkdir -p "$1"
  { cat docs/Doxyfile && echo "OUTPUT_DIRECTORY = \"$1\""; } | doxygen -
  exit
fi

folder=build-docs
environment=$folder/env
mkdir -p "$folder"
if ! cmp -s docs/site/requirements.txt "$environment/requirements.txt"; then
  progress_begin "Installing Sphinx from PyPI into $environment"
  rm -rf "$environment"
  /usr/bin/python3 -m venv "$environment"
  "$environment/bin/pip" install --disable-pip-version-check -r docs/site/requirements.txt | while read -r line; do progress "$line"; done
  cp docs/site/requirements.txt "$environment/"
  progress_end "installed"
fi

progress_begin "Building the site"
progress "doxygen"
rm -rf "$folder/xml" "$folder/html"
# Headers whose helpers have no comments: the site shows the functions that docs/reference/device.md names.
{ cat docs/Doxyfile && echo "OUTPUT_DIRECTORY = $folder" && echo "WARN_IF_UNDOCUMENTED = NO" &&
    echo "INPUT += include/ucclep/device/ll_dispatch_recv.hpp include/ucclep/device/ll_combine_recv.hpp include/ucclep/device/tiles.hpp" &&
    echo "INPUT += include/ucclep/device/whole_operations.hpp include/ucclep/device/user/tiles.hpp"; } | doxygen -
sed -i 's|^/// \?||' "$folder"/xml/*.xml  # doxygen keeps the marks of comments in front of verbatim lines
"$environment/bin/sphinx-build" -W --keep-going -E -c docs/site . "$folder/html" | while read -r line; do progress "$line"; done
echo '<meta http-equiv="refresh" content="0; url=docs/index.html">' >"$folder/html/index.html"
"$environment/bin/python" tools/check_site.py "$folder/html"
progress_end "built"
echo "$folder/html/index.html"
