#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: mpi_test.sh BUILD-TREE [FOLDER]
# Runs dispatch_perf and combine_perf of FOLDER (an installed bin, a bundle; default: those of the build tree) as MPI jobs. Exits
# with 77 where there is no mpirun, or where the build made no plugin.
set -uo pipefail
built=$1/perf
folder=$(realpath "${2:-$built}")
if ! command -v mpirun >/dev/null; then echo "there is no mpirun"; exit 77; fi
if [ ! -f "$built/ucclep_perf_mpi.so" ]; then echo "the plugin was not built"; exit 77; fi

# Only Open MPI asks for leave to run as root and to put more ranks than cores on a machine: by variables, as another mpirun would
# not know the options.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shape=(--device host --experts 32 --topk 4 --hidden 256 -b 16 -n 2 --timeout-ms 60000)
failed=0
expect() {  # message, command...
  if ! "${@:2}"; then
    echo "mpi_test.sh: expected $1; the output was:" >&2
    cat "$work/output" >&2
    failed=1
  fi
}
job() {  # command...: its output is in a file, its exit code in $status
  status=0
  timeout 100 mpirun -np 4 "$@" "${shape[@]}" >"$work/output" 2>&1 || status=$?
}
says() { grep -Eq "$1" "$work/output"; }

for run in "dispatch_perf --mode ll" "combine_perf --mode ht"; do
  read -ra command <<<"$run"
  job "$folder/${command[0]}" "${command[@]:1}"
  expect "$run to succeed, not $status" [ "$status" -eq 0 ]
  expect "one job of four ranks" says '^# nRanks 4 \(4 processes of an MPI launcher\)'
  expect "right rows" says '^verified [1-9][0-9]* rows, 0 wrong$'
  job "$folder/${command[0]}" "${command[@]:1}" --corrupt
  expect "a corrupted $run to fail" [ "$status" -ne 0 ]
  expect "wrong rows" says '^verified [1-9][0-9]* rows, [1-9][0-9]* wrong$'
done

job "$folder/dispatch_perf" -t 2
expect "threads to be refused" says 'one rank per process'

# MPI is the machine's own, and the plugin's alone.
expect "no MPI library beside the tools" [ -z "$(find "$folder" -name 'libmpi*' -o -name 'libopen-*')" ]
for file in dispatch_perf combine_perf; do
  readelf -d "$folder/$file" >"$work/output"
  expect "$file not to need MPI" eval '! says "NEEDED.*mpi"'
done
exit $failed
