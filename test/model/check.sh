#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Usage: check.sh [short|broken]
# Has spin search the models of the protocol (slots.pml, masks.pml, detaching.pml, rounds.pml) to their end, in several sizes, and their broken variants, in each
# of which spin has to find what is wrong. short: one size of each, and its first variant; broken: the other variants.
# Exit status 77: there is no spin.
set -uo pipefail
models=$(cd "$(dirname "$0")" && pwd)
if ! command -v spin >/dev/null; then
  echo "check.sh: the model was not checked: spin was not found"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
part=${1:-all}
case $part in all | short | broken) ;; *)
  echo "check.sh: no such part: $part" >&2
  exit 1 ;;
esac
read -ra compiler <<<"${CC:-cc}"  # it may be two words, as in "ccache cc"

search() {  # optimisation; properties: safety or cycles; then the definitions of $model. What spin says goes to ./said.
  local properties=(-DSAFETY) run=(./pan -m100000)
  if [ "$2" = cycles ]; then
    properties=(-DNP)
    run+=(-l)
  fi
  rm -f pan pan.*
  spin "${@:3}" -a "$model" >said 2>&1 && "${compiler[@]}" "$1" -w -DCOLLAPSE -DMEMLIM=3500 "${properties[@]}" -o pan pan.c >>said 2>&1 &&
    timeout 900 "${run[@]}" >said 2>&1
}
outcome() { grep -oE '^pan:[0-9]+: .*|errors: [0-9]+|[0-9]+ states, stored|Search not completed|max search depth too small' said | tr '\n' ';'; }
verdict() {  # ok or FAILED, name
  printf '%-7s %-28s %4d s  %s\n' "$1" "$2" $((SECONDS - begin)) "$(outcome)"
  if [ "$1" = FAILED ]; then
    failures=$((failures + 1))
    cat said
  fi
}
holds() {  # name, properties, definitions...
  [ "$part" != broken ] || return 0
  local begin=$SECONDS status=FAILED
  search -O1 "${@:2}" && grep -q 'errors: 0' said && ! grep -qE 'Search not completed|max search depth too small' said && status=ok
  verdict $status "$1"
}
fails() {  # variant, what spin has to say, definitions...: spin ends with an error of just that kind
  local first=no
  [ "$model" = "$last_broken" ] || first=yes
  last_broken=$model
  case $part-$first in short-no | broken-yes) return ;; esac
  local begin=$SECONDS status=FAILED
  search -O0 safety "-D$1" "${@:3}"
  grep -qE 'errors: [1-9]' said && grep -E '^pan:1:' said | grep -qF "$2" && status=ok
  verdict $status "$1"
}

last_broken=''  # the model of the latest variant
model=$models/slots.pml
kinds=(-DKINDS=2 -DCHUNKS=0 -DWINDOW=0)
if [ $part = short ]; then
  holds "one kind" safety -DOPS=3
else
  holds "epochs wrap" safety -DOPS=10
  holds "chunks, a wider window" safety -DOPS=4 -DCHUNKS=2 -DWINDOW=3 -DEVERY=2
  holds "two blocks" safety -DOPS=4 -DBLOCKS=2 -DWINDOW=0
  holds "two kinds" safety -DOPS=3 -DOPS_2=2 "${kinds[@]}"
  holds "three ranks, one slot" safety -DRANKS=3 -DN=1 -DOPS=6 -DCHUNKS=0 -DWINDOW=0
  holds "no run is endless" cycles -DOPS=3
fi
row='landing[part]==q'
fails SHARED_PARITY 'invalid end state' -DOPS=3 "${kinds[@]}"
fails NO_CONSUMED_CHECK "$row"
fails ONE_PHASE_TOO_MANY 'invalid end state'
fails FIRST_BLOCK_COUNTS 'invalid end state' -DOPS=3 -DBLOCKS=2
fails SHORT_EPOCH "$row"
fails CREDIT_TOO_EARLY "$row"
fails OLDER_WORD_WINS 'word[w].known'
fails NO_CREDIT '.processed)<=2'

model=$models/masks.pml
if [ $part = short ]; then
  holds "masks, two ranks" safety -DRANKS=2
else
  holds "masks, a late rank" safety
  holds "masks, a rank that dies" safety -DDEATH
  holds "masks, two slots" safety -DN=2 -DOPS=3 -DAFTER=1 -DRANKS=2
fi
wrong='(wrong)'
fails NO_AGREEMENT 'invalid end state'
fails OLD_CONSUMED 'invalid end state'
fails DEAF "$wrong"
fails TOLD_LATER "$wrong"
fails IN_HASTE '(p=='
fails RELIES_ON_ZEROS "$wrong"
fails ONE_LOOK "$wrong"
fails BOTH_GO_ON "$wrong"

model=$models/detaching.pml
holds "detaching, it breaks" safety -DBREAKS -DBOTH
if [ $part = all ]; then
  holds "detaching" safety
  holds "detaching, two slots" safety -DN=2 -DOPS=4
fi
fails HASTY "$wrong"
fails KEEPS_SENDING "$wrong"
fails MUTE 'invalid end state'
fails OLD_CONNECTIONS 'invalid end state' -DBOTH

model=$models/rounds.pml
holds "rounds, a block at a time" safety
if [ $part = all ]; then
  holds "rounds, two blocks at a time" safety -DRESIDENT=2 -DROUNDS=3
  holds "rounds, warps apart" safety -DAPART
  holds "rounds, of one rank" safety -DAPART -DRESIDENT=2 -DRANKS=1
  holds "rounds, three ranks" safety -DRANKS=3 -DBLOCKS=1 -DROUNDS=3
  holds "rounds, three slots" safety -DN=3 -DROUNDS=5
  holds "rounds, relayed" safety -DRELAYS
  holds "rounds, relayed, apart" safety -DRELAYS -DAPART -DBLOCKS=1
fi
fails NO_CREDIT 'invalid end state'
fails FIRST_PART_PUBLISHES 'invalid end state'
fails ANY_ORDER 'consumed[r]<=' -DRANKS=1 -DAPART -DRESIDENT=2
fails OWN_SHARES 'invalid end state'
fails SENDS_FIRST 'invalid end state'
fails RELAYS_UNCOUNTED 'relayed[' -DRELAYS -DAPART -DBLOCKS=1 -DRANKS=1

[ $failures -eq 0 ]
