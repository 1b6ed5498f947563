#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: tools/test-python.sh [test|more|all] [--made] [pytest argument...]
# Installs the wheels into a fresh environment and runs the Python tests there: those of `make test`, those of `make test-more`, which have
# the mark `more`, or all, the default. --made: tools/wheel.sh has made the wheels. What ran is in the file UCCLEP_TEST_REPORT, or
# build/python-report.txt, from which tools/test_summary.py makes the last line, "N passed, M failed".
set -uo pipefail
cd "$(dirname "$0")/.."
tier=all
case ${1:-} in test | more | all) tier=$1; shift ;; esac
report=${UCCLEP_TEST_REPORT:-build/python-report.txt}
rm -f "$report"
if [ "${1:-}" = --made ]; then
  shift
  [ -d build/wheels ] || exit 77  # skipped: a plain `meson test` makes no wheels
else
  tools/wheel.sh build/wheels || exit 1
fi

environment=build/python-env-$tier
rm -rf "$environment"
/usr/bin/python3 -m venv --system-site-packages "$environment" &&
  "$environment/bin/pip" install --quiet --no-index --find-links build/wheels 'ucclep[deep-ep]' || exit 1
# Skipped tests say why.
timeout 900 "$environment/bin/python" -m pytest -q -rs -p no:cacheprovider --report="$report" --tier="$tier" "$@" bindings/python/tests </dev/null
status=$?
[ -n "${UCCLEP_TEST_REPORT:-}" ] || exec tools/test_summary.py "$report"
exit $status
