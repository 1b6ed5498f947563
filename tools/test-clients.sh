#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/test-clients.sh [pytest argument...]     CLIENTS_SKIP="vllm sglang" leaves clients out
# Installs the wheels, torch and the clients of bindings/python/tests/clients/versions.txt into an environment of their own, some 6 GB,
# and runs code of the clients over deep_ep. It fails when a client cannot be had that is not left out.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=bindings/python/tests/clients
tools/wheel.sh build/wheels
environment=build/clients-env
pip() { "$environment/bin/pip" install --quiet "$@"; }

if ! cmp -s "$folder/versions.txt" "$environment/versions.txt"; then
  rm -rf "$environment"
  /usr/bin/python3 -m venv "$environment"
  pip -r <(grep -v '# client$' "$folder/versions.txt")
  cp "$folder/versions.txt" "$environment/versions.txt"
fi
sed -n 's/ *# client$//p' "$folder/versions.txt" | while read -r client; do
  name=${client%%[-=]*}  # as that of its program
  if [[ " ${CLIENTS_SKIP:-} " != *[\ ,]"$name"[\ ,]* ]]; then pip --no-deps "$client"; fi
done
pip --no-deps --no-index --force-reinstall build/wheels/ucclep*.whl
exec "$environment/bin/python" -m pytest -q -rs -p no:cacheprovider "$@" "$folder/run.py" </dev/null
