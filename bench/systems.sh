#!/usr/bin/env bash
# snug's quickstarts against PyTorch on this machine's CPU, in turns: milliseconds of an update, peak memory, and
# the ratios of both.
#
#   bench/systems.sh [quickstart agiformer-quickstart moderation-quickstart cloudbase-quickstart dynamo-quickstart]
#
# ROUNDS=5 says how many turns, SNUG_CPU_ISA=avx2 holds both sides to AVX2. bench/setup.sh makes the PyTorch side first;
# SNUG_BENCH_ENV says where it is.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ENV=${SNUG_BENCH_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/snug/torch}
if [ ! -x "$ENV/bin/python" ]; then
  echo "systems.sh: no PyTorch environment at $ENV; run bench/setup.sh (or set SNUG_BENCH_ENV)" >&2
  exit 1
fi
works=(quickstart agiformer-quickstart moderation-quickstart cloudbase-quickstart dynamo-quickstart)
[ $# -gt 0 ] || set -- "${works[@]}"
for work; do
  [[ " ${works[*]} " == *" $work "* ]] || { echo "systems.sh: no work $work; there are ${works[*]}" >&2; exit 2; }
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
go -C "$HERE/.." build -o "$scratch/snug" .

for ((round = 0; round < ${ROUNDS:-5}; round++)); do
  for work in "$@"; do
    settings=()
    case $work in
    moderation-quickstart) settings=(--synthetic --model.wide_rows 0) ;;
    dynamo-quickstart) settings=(--phases.stage encoder) ;;
    esac
    "$scratch/snug" bench "$work" "${settings[@]}" --updates 30 --sweep precision --json >"$scratch/snug.json" 2>"$scratch/log" ||
      { cat "$scratch/log" >&2; exit 1; }
    "$ENV/bin/python" "$HERE/torch_systems.py" "$work" ${SNUG_CPU_ISA:+--isa "$SNUG_CPU_ISA"} --seconds 5 >"$scratch/torch.json" 2>"$scratch/log" ||
      { cat "$scratch/log" >&2; exit 1; }
    "$ENV/bin/python" - "$work" "$scratch" <<'PY'
import json, sys

work, scratch = sys.argv[1:]
snug = json.load(open(scratch + "/snug.json"))["sweeps"][0]["rows"][0]
torch = json.load(open(scratch + "/torch.json"))
ms, mib = 1e3 * snug["update_seconds_median"], snug["peak_rss_bytes"] / 2**20
print(f"{work:22} snug {ms:6.1f} ms {mib:4.0f} MiB, PyTorch {torch['ms']:6.1f} ms {torch['rss'] / 2**20:4.0f} MiB, "
      f"ratios {ms / torch['ms']:.2f} and {mib * 2**20 / torch['rss']:.2f}", flush=True)
PY
  done
done
