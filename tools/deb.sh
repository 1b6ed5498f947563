#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/deb.sh [FOLDER]      (default: build/deb)
# Debian packages of what the tree build has: libucclep0, libucclep-dev, ucclep-tools and python3-ucclep. Nothing is compiled for them: the tree is
# configured for /usr while they are made, and then as it was. lintian has the last word.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-build/deb}")
source=$folder/ucclep
rm -rf "$folder"
mkdir -p "$source"
cp -R packaging/debian "$source/debian"

option() { meson introspect --buildoptions build | python3 -c 'import json, sys; print(next(o["value"] for o in json.load(sys.stdin) if o["name"] == sys.argv[1]))' "$1"; }
configure() {  # prefix, libdir
  meson configure build -Dprefix="$1" -Dlibdir="$2" >/dev/null
  tools/build.sh build library tools
}
summary() {
  case $1 in
    ucclep-topo) echo "draw how libucclep places ranks on machines" ;;
    *_perf) echo "measure ${1%_perf} of libucclep" ;;
  esac
}
before=("$(option prefix)" "$(option libdir)")
trap 'configure "${before[@]}" >/dev/null' EXIT
configure /usr "lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" >/dev/null
meson install -C build --no-rebuild --quiet --tags runtime,devel,bin,python-runtime --destdir "$source/stage" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
rm -rf "$source"/stage/usr/lib/python3*/dist-packages/ucclep/include  # libucclep-dev has it
version=$(meson introspect --projectinfo build | python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])')
seconds=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
cat >"$source/debian/changelog" <<END
ucclep ($version) unstable; urgency=medium

  * CHANGELOG.md of the project says what has changed.

 -- libucclep developers <maintainers@libucclep.invalid>  $(date -uR -d "@$seconds")
END
for program in "$source"/stage/usr/bin/{ucclep-topo,*_perf}; do
  LD_LIBRARY_PATH=build/src help2man --no-info --name "$(summary "${program##*/}")" "$program" >"$source/debian/${program##*/}.1"
done
(cd "$source" && SOURCE_DATE_EPOCH=$seconds dpkg-buildpackage -b -us -uc >"$folder/log" 2>&1) || { cat "$folder/log" >&2; exit 1; }
lintian --fail-on error,warning "$folder"/*.changes
for package in "$folder"/*.deb; do echo "$package"; done
