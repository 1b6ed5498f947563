#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/test-python.sh [pytest argument...]
# Installs the wheels into a fresh environment and runs the Python tests there. What ran is in build/python-report.txt, from which
# tools/test_summary.py makes the last line, "N passed, M failed".
set -uo pipefail
cd "$(dirname "$0")/.."
report=build/python-report.txt
rm -f "$report"
tools/wheel.sh build/wheels || exit 1

environment=build/python-env
rm -rf "$environment"
/usr/bin/python3 -m venv --system-site-packages "$environment" &&
  "$environment/bin/pip" install --quiet --no-index --find-links build/wheels 'ucclep[deep-ep]' || exit 1
# Skipped tests say why.
timeout 900 "$environment/bin/python" -m pytest -q -rs -p no:cacheprovider --report "$report" "$@" bindings/python/tests </dev/null
tools/test_summary.py "$report"
