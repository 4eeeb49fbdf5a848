#!/usr/bin/env bash
# Everything that only a card can show, in one call of at most nine minutes, on a machine with an NVIDIA driver and no Go.
#
#   bench/gpu.sh --build DIR       here, with Go: what the other machine needs, in DIR
#   DIR/gpu.sh [OUT]               there: runs it; OUT (default: DIR/results) gets results.jsonl, results.md and logs
#
# CARD=N takes another card than number 0. PyTorch's side runs where `python3` has a torch that sees a card (PYTHON=...
# names another). docs/gpu.md says what each part shows.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CARD=${CARD:-0}
PYTHON=${PYTHON:-python3}
LIMIT=${LIMIT:-530} # seconds for everything
STEPS=${STEPS:-50}   # of a workload

fail() {
  echo "gpu.sh: $*" >&2
  exit 1
}

build() {
  local to=$1 root=$HERE/..
  [ -f "$root/go.mod" ] || fail "--build needs the source tree: run bench/gpu.sh of a clone"
  mkdir -p "$to/engine/cuda" "$to/corpus"
  to=$(cd "$to" && pwd)
  export CGO_ENABLED=0 GOOS=linux
  local tags=${TAGS:-} # fakegpu: with a card whose kernels are interpreted, to try this script
  go -C "$root" build -tags "$tags" -o "$to/snug" .
  go -C "$root" build -tags "$tags" -o "$to/workload" ./bench/workload
  go -C "$root" test -tags "$tags" -c -o "$to/engine/cuda/cuda.test" ./engine/cuda
  cp -r "$root/engine/testdata" "$to/engine/"
  cp "$HERE/gpu.sh" "$HERE/torch_train.py" "$to/"
  local f
  for f in "$root"/docs/*.md "$root"/engine/graph/*.go "$root"/train/*.go "$root"/session/*.go; do
    cp "$f" "$to/corpus/$(basename "$(dirname "$f")")-$(basename "$f").txt"
  done
  # The quickstart's model, on text that is carried along.
  cat >"$to/quickstart.yaml" <<'YAML'
system: refocused
model: {d_model: 256, n_layers: 4, n_heads: 4, d_ff: 1024, max_seq_len: 128, dropout: 0.1}
training: {batch_size: 16, max_steps: 300, learning_rate: 2e-3, warmup_steps: 15, log_steps: 20, eval_steps: 0, save_steps: 25, sample: {tokens: 0}}
data: {source: [corpus/*.txt], held_out_fraction: 0.05, tokenizer: {vocab_size: 4096}}
YAML
  du -sh "$to"
}

began=$SECONDS
# left is what is left of the limit in seconds, at most $1.
left() {
  local l=$((LIMIT - (SECONDS - began)))
  [ "$l" -le "$1" ] || l=$1
  echo "$l"
}

# step NAME SECONDS COMMAND... runs a part and writes a line of results.jsonl. A part that fails does not stop the others.
failures=0
step() {
  local name=$1 limit status=0 from=$SECONDS verdict=ok
  limit=$(left "$2")
  shift 2
  if [ "$limit" -lt 5 ]; then
    verdict="no time left"
  else
    timeout -k 5 "$limit" "$@" >"$OUT/$name.log" 2>&1 || status=$?
    [ "$status" = 0 ] || verdict="exit code $status"
    [ "$status" != 124 ] || verdict="stopped after $limit s"
  fi
  [ "$verdict" = ok ] || failures=$((failures + 1))
  printf '{"part":"%s","result":"%s","seconds":%d}\n' "$name" "$verdict" $((SECONDS - from)) >>"$OUT/results.jsonl"
  printf '| %s | %s | %d |\n' "$name" "$verdict" $((SECONDS - from)) >>"$OUT/results.md"
  printf '%-28s %s (%d s)\n' "$name" "$verdict" $((SECONDS - from))
  [ "$verdict" = ok ] || tail -n 8 "$OUT/$name.log" 2>/dev/null | sed 's/^/    /'
  [ "$verdict" = ok ]
}

# measured NAME... appends the JSON of parts to results.jsonl.
measured() {
  local name
  for name in "$@"; do
    grep -h '^{' "$OUT/$name.log" 2>/dev/null | tail -n 1 >>"$OUT/results.jsonl" || true
  done
}

# field NAME KEY is a figure of a part's JSON.
field() { { grep -h '^{' "$OUT/$1.log" 2>/dev/null || true; } | tail -n 1 | sed -nE "s/.*\"$2\": ?\"?([^,\"}]*).*/\1/p"; }

# weights DIR identifies those of the newest checkpoint of a run.
weights() {
  local last
  last=$(find "$1/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1)
  [ -n "$last" ] || return 1
  basename "$last"
  sha256sum <"$last/model.safetensors"
}
export -f weights

conformance() { (cd "$HERE/engine/cuda" && exec ./cuda.test -card "$CARD" -test.run "$1" -test.timeout 10m); }

# Two runs of a workload must have the same weights; planned is what the driver shows within 1 %.
repeat() {
  "$HERE/workload" "$1" --device "cuda:$CARD" --precision "$PRECISION" --steps "$((STEPS / 2))" --json >"$OUT/first.json"
  "$HERE/workload" "$1" --device "cuda:$CARD" --precision "$PRECISION" --steps "$((STEPS / 2))" --json >"$OUT/second.json"
  local hashes
  hashes=$(sed -nE 's/.*"weights":"([0-9a-f]*)".*/\1/p' "$OUT/first.json" "$OUT/second.json" | sort -u)
  [ "$(wc -l <<<"$hashes")" = 1 ] && [ -n "$hashes" ] || { echo "two runs differ:" && cat "$OUT/first.json" "$OUT/second.json" && return 1; }
  cat "$OUT/second.json"
}

memory() {
  local planned used
  planned=$(sed -nE 's/.*"card_planned_bytes":([0-9]+).*/\1/p' "$OUT/second.json")
  used=$(sed -nE 's/.*"card_used_bytes":([0-9]+).*/\1/p' "$OUT/second.json")
  echo "{\"planned\":$planned,\"used\":$used}"
  # Code, graphs and the driver's rounding come on top: 1 %, and what no program is below.
  [ "$used" -ge "$((planned - planned / 100))" ] && [ "$used" -le "$((planned + planned / 100 + (64 << 20)))" ]
}

# A run that is killed and resumed ends with the bits of the unbroken one.
resume() {
  cd "$HERE"
  local train=(./snug train --config quickstart.yaml --hardware.device "cuda:$CARD" --training.mixed_precision "$PRECISION") pid
  rm -rf "$OUT/whole" "$OUT/killed"
  "${train[@]}" --out "$OUT/whole"
  "${train[@]}" --out "$OUT/killed" &
  pid=$!
  until [ -d "$OUT/killed/checkpoints/step-00000050" ]; do
    kill -0 "$pid" 2>/dev/null || { echo "the run ended before it was killed" && return 1; }
    sleep 0.05
  done
  kill -9 "$pid"
  wait "$pid" || true
  "${train[@]}" --out "$OUT/killed" --resume
  local whole killed
  whole=$(weights "$OUT/whole")
  killed=$(weights "$OUT/killed")
  printf '%s\n' "$whole" "$killed"
  [ -n "$whole" ] && [ "$whole" = "$killed" ]
}

workload() { "$HERE/workload" "$1" --device "cuda:$CARD" --precision "$2" --steps "$STEPS" --json; }
torch() { CUDA_VISIBLE_DEVICES=$CARD "$PYTHON" "$HERE/torch_train.py" "$1" --device cuda --mode "$2" --steps "$STEPS" ${3:+--compile "$3"}; }

run() {
  OUT=$1
  mkdir -p "$OUT"
  OUT=$(cd "$OUT" && pwd)
  export OUT HERE CARD PYTHON STEPS
  : >"$OUT/results.jsonl"
  for f in snug workload engine/cuda/cuda.test; do [ -x "$HERE/$f" ] || fail "$HERE/$f is missing: make it with bench/gpu.sh --build DIR, and call DIR/gpu.sh"; done
  # Says in words what is missing where no card can be used.
  (cd "$HERE" && ./snug plan --config quickstart.yaml --hardware.device "cuda:$CARD") >"$OUT/card.log" 2>&1 || fail "no card can be used: $(tail -n 3 "$OUT/card.log")"
  "$HERE/snug" doctor >"$OUT/doctor.log" 2>&1 || true
  PRECISION=$(sed -nE 's/^  precision  ([a-z0-9]+):.*/\1/p' "$OUT/doctor.log")
  export PRECISION
  export -f conformance repeat memory resume workload torch
  {
    echo "## $(date -u +%F) $(sed -nE "s/^  cuda:$CARD ([^:]*):.*/\\1/p" "$OUT/doctor.log")"
    echo
    echo "\`bench/gpu.sh\`, precision $PRECISION. $(nvidia-smi --query-gpu=driver_version,power.limit --format=csv,noheader -i "$CARD" 2>/dev/null || true)"
    echo
    echo "| part | result | s |"
    echo "|---|---|---:|"
  } >"$OUT/results.md"

  step repeat 30 bash -euo pipefail -c 'repeat a' && { measured repeat; step memory 5 bash -euo pipefail -c memory || true; } || true
  step resume 90 bash -euo pipefail -c resume || true
  step operations 120 bash -euo pipefail -c 'conformance TestOperations' || true
  step goldens 60 bash -euo pipefail -c 'conformance TestGoldens' || true
  step products 60 bash -euo pipefail -c 'conformance TestProductsByCublasLt' || true
  step compiled 60 bash -euo pipefail -c 'conformance "TestCompiledOperations|TestLargerShapes"' || true

  local with_torch=0 w rows="" mode
  if "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1; then with_torch=1; else echo "PyTorch with a card was not found: snug's side alone"; fi
  for w in a b c d; do
    step "snug-$w" 30 bash -euo pipefail -c "workload $w $PRECISION" || true
    measured "snug-$w"
    local row
    row="| $w | $(field "snug-$w" ms)"
    if [ "$with_torch" = 1 ]; then
      for mode in "" max-autotune; do
        step "torch-$w-${mode:-eager}" 60 bash -euo pipefail -c "torch $w ${PRECISION/fp32/tuned} $mode" || true
        measured "torch-$w-${mode:-eager}"
        row="$row | $(field "torch-$w-${mode:-eager}" ms)"
      done
    else
      row="$row | - | -"
    fi
    rows="$rows$row |"$'\n'
  done
  {
    echo
    echo "Milliseconds of a training step in $PRECISION:"
    echo
    echo "| workload | snug | PyTorch eager | torch.compile |"
    echo "|---|---:|---:|---:|"
    printf '%s' "$rows"
  } >>"$OUT/results.md"
  rm -rf "$OUT/whole" "$OUT/killed"
  echo "$OUT/results.md, $OUT/results.jsonl"
  [ "$failures" = 0 ] || fail "$failures parts failed"
}

case ${1:-} in
--build) [ $# = 2 ] || fail "usage: bench/gpu.sh --build DIR" && build "$2" ;;
-*) fail "usage: bench/gpu.sh --build DIR, then DIR/gpu.sh [OUT]" ;;
*) run "${1:-$HERE/results}" ;;
esac
