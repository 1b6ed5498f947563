# SPDX-License-Identifier: Apache-2.0
# For scripts to source. A step that takes long says on stderr how far it is: on a terminal in one line that is written over, elsewhere
# (logs) in a line every ten seconds. With V=1 the output of its commands is shown instead, as it comes.
progress_began=$SECONDS progress_said=$SECONDS progress_open=no
progress_begin() {  # what begins
  progress_began=$SECONDS progress_said=$SECONDS
  echo "$1" >&2
}
progress() {  # how far it is
  local text width
  text="  $1"
  if [ -t 2 ]; then
    width=$(tput cols 2>/dev/null || echo 80)
    printf '\r%s\033[K' "${text:0:$((width > 1 ? width - 1 : 79))}" >&2
    progress_open=yes
  elif [ $((SECONDS - progress_said)) -ge 10 ]; then
    progress_said=$SECONDS
    echo "${text:0:119}" >&2
  fi
}
progress_end() {  # what ends; nothing after a failure
  if [ $progress_open = yes ]; then printf '\r\033[K' >&2; fi
  progress_open=no
  if [ -n "${1:-}" ]; then echo "  $1, $((SECONDS - progress_began)) s" >&2; fi
}
