#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: between_networks.sh ARGUMENTS
# Runs the program UCCLEP_TEST_PROGRAM, which makes network namespaces, or reports in one line why that cannot be here.
set -uo pipefail
reason=
command -v ip >/dev/null || reason="no ip command (iproute2)"
unshare --net true 2>/dev/null || reason="making network namespaces needs root"
[ -z "$reason" ] && exec "$UCCLEP_TEST_PROGRAM" "$@"
echo "skipped: two networks: $reason"
if [ -n "${UCCLEP_TEST_REPORT:-}" ]; then printf 'skipped\ttwo networks\t%s\nend\n' "$reason" >"$UCCLEP_TEST_REPORT"; fi
