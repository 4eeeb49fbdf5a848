#!/usr/bin/env bash
# snug against PyTorch on this machine's CPU, in turns.
#
#   bench/cpu.sh [a b c d] [--json] [--rounds 3] [--threads N] [--steps N] [--only snug|torch]
#
# bench/setup.sh makes the PyTorch side first; SNUG_BENCH_ENV says where it is. README.md here defines the workloads.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ENV=${SNUG_BENCH_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/snug/torch}
if [ ! -x "$ENV/bin/python" ]; then
  echo "cpu.sh: no PyTorch environment at $ENV; run bench/setup.sh (or set SNUG_BENCH_ENV)" >&2
  exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
case " $* " in
*" --only torch "* | *" --only=torch "* | *" --help "* | *" -h "*) ;;
*) go -C "$HERE/.." build -o "$scratch/workload" ./bench/workload ;;
esac
"$ENV/bin/python" "$HERE/compare.py" --snug "$scratch/workload" "$@"
