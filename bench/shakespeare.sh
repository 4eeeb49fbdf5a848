#!/usr/bin/env bash
# nanoGPT's shakespeare-char against agiformer-shakespeare, on the same text, the same
# split (first nine tenths, last tenth), this machine, for the same minutes.
#
#   bench/shakespeare.sh TEXT [MINUTES]     TEXT: tiny Shakespeare, 1,115,394 bytes
#
# PYTHON names an interpreter with PyTorch; without one, snug's side runs alone.
# SEEDS, THREADS and OUT change what their names say. One JSON object a run and line.
set -euo pipefail
cd "$(dirname "$0")/.."
text=${1:?"usage: bench/shakespeare.sh TEXT [MINUTES]"}
minutes=${2:-5}
out=${OUT:-$(mktemp -d)}
threads=${THREADS:-$(nproc)}
read -r -a seeds <<<"${SEEDS:-1337 1338 1339}"
text=$(realpath "$text")
[ "$(wc -c <"$text")" = 1115394 ] || echo "note: $text is not tiny Shakespeare (1115394 bytes)" >&2
mkdir -p "$out"
go build -o "$out/snug" .

# How many updates fit: the schedule must end when the time does.
probe=$out/probe
rm -rf "$probe"
"$out/snug" train agiformer-shakespeare --data.source "$text" --out "$probe" --hardware.threads "$threads" \
  --training.max_steps 60 --training.warmup_steps 6 --training.eval_batches 1 --training.sample.tokens 0 >"$out/probe.log" 2>&1
updates=$(python3 - "$probe/metrics.jsonl" "$minutes" <<'PY'
import json, sys
rows = [r for r in map(json.loads, open(sys.argv[1])) if r["event"] == "update"]
tokens = rows[0]["tokens"] / rows[0]["update"]
speed = sorted(r["rate"] / tokens for r in rows)[len(rows) // 2]
print(max(200, int(float(sys.argv[2]) * 60 * speed * 0.95)))  # the rest is evaluation
PY
)
echo "snug: $updates updates are $minutes minutes here" >&2

for seed in "${seeds[@]}"; do
  run=$out/snug-$seed
  rm -rf "$run"
  start=$SECONDS
  "$out/snug" train agiformer-shakespeare --data.source "$text" --out "$run" --hardware.threads "$threads" \
    --training.seed "$seed" --training.max_steps "$updates" --training.eval_steps $((updates / 6)) --training.sample.tokens 0 >"$run.log" 2>&1
  python3 - "$run/metrics.jsonl" "$seed" "$((SECONDS - start))" <<'PY'
import json, sys
losses = [r["metrics"]["eval_loss"] for r in map(json.loads, open(sys.argv[1])) if r["event"] == "eval"]
print(json.dumps({"side": "snug", "model": "agiformer-shakespeare", "seed": int(sys.argv[2]), "seconds": int(sys.argv[3]),
                  "eval_loss_end": losses[-1], "eval_loss_best": min(losses)}))
PY
done

[ -n "${PYTHON:-}" ] || { echo "PYTHON is not set: nanoGPT's side is left out" >&2; exit 0; }
for model in cpu gpu; do
  for seed in "${seeds[@]}"; do
    "$PYTHON" bench/torch_shakespeare.py "$text" --model "$model" --minutes "$minutes" --seed "$seed" --threads "$threads"
  done
done
