#!/bin/sh
# Lets `docker run kordon --bootstrap …` mean `kordon run --bootstrap …`; every other first word is a command of
# kordon's own (run, check, status). `exec` makes kordon process 1, so that it gets the signals itself.
set -eu
case "${1:-}" in
  --version) exec kordon "$@" ;;
  "" | -*) exec kordon run "$@" ;;
  *) exec kordon "$@" ;;
esac
