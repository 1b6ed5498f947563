#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: kernel.sh FOLDER
# Puts the kernel of Debian 12 into FOLDER, for vm.sh: vmlinuz, the modules of Soft-RoCE and of the virtual machine, and their names in the
# order in which they are loaded. Nothing is installed. The package is kept under $XDG_CACHE_HOME; without network a kept one does.
# Exit code 77: there is none to be had.
set -euo pipefail
folder=${1:?usage: kernel.sh FOLDER}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ucclep
modules=(crc32_generic virtio_pci virtio_console 9pnet_virtio 9p overlay veth sch_netem ib_uverbs rdma_rxe)

newest_package() { apt-cache depends linux-image-amd64 2>/dev/null | awk '/ Depends: linux-image-6\.1\./ { print $2 }' || true; }
kept() { find "$cache" -maxdepth 1 -name "${1:-linux-image-*}_*.deb" | sort -V | tail -n 1; }
download() {  # package: into the cache, whole or not at all
  local scratch
  scratch=$(mktemp -d "$cache/download.XXXXXX")
  if (cd "$scratch" && timeout 300 apt-get -qq -o Acquire::Retries=3 -o APT::Sandbox::User=root download "$1") >&2; then
    rm -f "$cache"/linux-image-*.deb
    mv "$scratch"/*.deb "$cache/"
  fi
  rm -rf "$scratch"
}

mkdir -p "$cache"
# Lists may be missing, or older than what the mirror still has.
package=$(newest_package)
if [ -z "$package" ] || [ -z "$(kept "$package")" ]; then
  if [ "$(id -u)" -eq 0 ]; then timeout 120 apt-get -qq update >&2 || true; fi
  package=$(newest_package)
  [ -z "$package" ] || [ -n "$(kept "$package")" ] || download "$package"
fi
deb=$(kept)
[ -n "$deb" ] || { echo "kernel.sh: the package of Debian's kernel cannot be had" >&2; exit 77; }

made_from="$(basename "$deb") $(cksum <"$0")"
[ "$made_from" != "$(cat "$folder/made_from" 2>/dev/null)" ] || exit 0
rm -rf "$folder"
mkdir -p "$folder/whole"
trap 'rm -rf "$folder/whole"' EXIT
dpkg --fsys-tarfile "$deb" | tar -x -C "$folder/whole" --wildcards './boot/vmlinuz-*' './lib/modules/*'
version=$(basename "$folder"/whole/lib/modules/*)
mv "$folder/whole/boot/vmlinuz-$version" "$folder/vmlinuz"
depmod -b "$folder/whole" "$version"
for module in "${modules[@]}"; do
  modprobe -d "$folder/whole" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
  mv "$file" "$folder/"
  basename "$file" >>"$folder/load_order"
done
echo "$made_from" >"$folder/made_from"
