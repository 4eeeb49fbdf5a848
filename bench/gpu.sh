#!/usr/bin/env bash
# Everything that only a card can show, in calls of some minutes on a machine with an NVIDIA driver and no Go.
#
#   bench/gpu.sh build DIR       here, with Go: what the other machine needs, in DIR
#   DIR/gpu.sh run DIR OUT [--minutes N] [--after RESULTS.jsonl]... [--only PART,...] [--skip PART,...]
#                                there: does what fits into N minutes (9), the most important first. OUT gets results.jsonl
#                                and results.md, written after each part, log.txt, and card.csv, the card's clocks, power and
#                                memory by the second. A later call that is given the results of earlier ones does what
#                                they left.
#   bench/gpu.sh parts           the parts, with the seconds that each needs
#
# CARD=1 takes another card, PYTHON=... another Python than python3 for PyTorch's side, COMPILE=... another mode of
# torch.compile, GPU_CACHE=... another folder than /tmp/snug-gpu-cache, which later calls find filled. SMALL=1 runs small shapes, and
# PyTorch on the processor, to try the script (with tools/fakecard: without a card). docs/gpu.md says more.
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CARD=${CARD:-0}
PYTHON=${PYTHON:-python3}
SMALL=${SMALL:-}
COMPILE=${COMPILE:-}
GPU_CACHE=${GPU_CACHE:-/tmp/snug-gpu-cache}
TRAVELS=$((64 << 20)) # bytes of a kit and the source tree that a machine with a card can be sent
WORKS=(gpt2 refocused moderation agiformer cloudbase dynamo)
SYSTEMS=(refocused moderation agiformer cloudbase dynamo)

fail() {
  echo "gpu.sh: $*" >&2
  exit 2
}

# --- here -------------------------------------------------------------------------------------------------------------

build() {
  local to=$1 root=$HERE/.. kit go_root
  [ -f "$root/go.mod" ] || fail "build needs the source tree: run bench/gpu.sh of a clone"
  root=$(cd "$root" && pwd)
  find "$root/engine/cuda/kernels" -name '*.gz' -exec gzip -t {} + || fail "kernels are damaged, see above"
  [ -z "$(git -C "$root" status --porcelain)" ] || echo "gpu.sh: the tree has changes that are not committed, and they are built too" >&2
  mkdir -p "$to"
  to=$(cd "$to" && pwd)
  kit=$(mktemp -d)
  # shellcheck disable=SC2064 # the folder is this one
  trap "rm -rf '$kit'" EXIT
  mkdir -p "$kit/engine/cuda" "$kit/bin" "$kit/bench" "$kit/tools/goldens"
  export CGO_ENABLED=0 GOOS=linux GOARCH=amd64
  local link=(-trimpath -ldflags "-s -w")
  go -C "$root" build "${link[@]}" -o "$kit/bin/" . ./bench/card ./bench/workload
  go -C "$root" test "${link[@]}" -c -o "$kit/engine/cuda/cuda.test" ./engine/cuda
  cp -r "$root/engine/testdata" "$kit/engine/"
  cp "$root"/bench/torch_*.py "$kit/bench/"
  cp "$root/tools/goldens/cloudbase.py" "$kit/tools/goldens/"
  # The text that the quickstarts learn: the sources of Go's library, without what is written for one processor.
  go_root=$(go env GOROOT)
  (cd "$go_root" && find src -name '*.go' ! -name '*_test.go' ! -path '*/testdata/*' ! -path 'src/cmd/*' ! -path 'src/vendor/*' \
    ! -path 'src/runtime/*' ! -path 'src/internal/*' ! -path 'src/syscall/*' ! -path 'src/debug/*' -print0 | sort -z) |
    tar -C "$go_root" --null --files-from=- --create | (mkdir "$kit/go" && tar -x -C "$kit/go")
  git -C "$root" describe --always --dirty >"$kit/commit"
  rm -f "$to"/kit.tar.*
  if command -v xz >/dev/null; then # the programs share most of their code, which takes a window of their size to find
    tar -C "$kit" -c . | xz -T1 --lzma2=preset=3,dict=64MiB >"$to/kit.tar.xz"
  else
    tar -C "$kit" -cz . >"$to/kit.tar.gz"
  fi
  cp "$HERE/gpu.sh" "$to/gpu.sh"
  local kit_bytes tree_bytes
  kit_bytes=$(du -sb "$to" | cut -f 1)
  tree_bytes=$(cd "$root" && git ls-files -z --cached --others --exclude-standard | xargs -0 stat -c %s 2>/dev/null | awk '{ n += $1 } END { print n }' || true)
  echo "$to: $kit_bytes bytes; with the $tree_bytes of the source tree $((kit_bytes + tree_bytes)) of $TRAVELS"
  [ "$((kit_bytes + tree_bytes))" -le "$TRAVELS" ] || echo "gpu.sh: the kit and the tree are too large to travel together" >&2
}

# unpack DIR puts the kit in $WORK.
unpack() {
  if [ -r "$1/kit.tar.gz" ]; then
    tar -xzf "$1/kit.tar.gz" -C "$WORK"
  elif command -v xz >/dev/null; then
    tar -xJf "$1/kit.tar.xz" -C "$WORK"
  else
    "$PYTHON" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$1/kit.tar.xz" "$WORK"
  fi
}

# --- the parts --------------------------------------------------------------------------------------------------------
# part_NAME runs where OUT, WORK and the rest are set. Its JSON goes to stdout, everything else to stderr.

part_doctor() { "$WORK/bin/snug" doctor --json; }

# tests PROCESSES TEST runs a test of the kernels, its cases dealt to processes: assembling kernels is what takes long.
tests() {
  local n=$1 i files=() failed=0 pids=()
  for ((i = 0; i < n; i++)); do
    files+=("$WORK/cases.$i")
    (cd "$WORK/engine/cuda" && exec ./cuda.test "${CARD_FLAG[@]}" -part "$i/$n" -test.v -test.run "^$2\$" ${SMALL:+-test.short}) >"$WORK/cases.$i" 2>&1 &
    pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || failed=1; done
  grep -hvE '^ *(=== |--- PASS)' "${files[@]}" >&2 || true
  # Cases are the leaves: names below TEST/sm_NN, or below TEST where there is one card.
  awk '
    /^ *--- (PASS|FAIL): / { name = $3; n = gsub("/", "/", name); if (n < 1 || $3 ~ /\/sm_[0-9]+$/) next; cases++; if ($2 == "FAIL:") { failed++; names = names (names == "" ? "" : ",") "\"" $3 "\"" } }
    END { printf "{\"cases\":%d,\"failed\":%d,\"failing\":[%s]}\n", cases, failed, names }
  ' "${files[@]}"
  return "$failed"
}

part_operations() { tests "$PROCESSES" TestOperations; }
part_goldens() { tests "$PROCESSES" TestGoldens; }
part_compiled() { tests "$PROCESSES" TestCompiledOperations; }
part_products() { tests "$PROCESSES" TestProductsByCublasLt; }
part_larger() { tests 1 TestLargerShapes; }

# quickstart SYSTEM UPDATES SAVES gives the flags of a run of its quickstart: so many updates, of which every SAVESth is
# saved (0: the last).
quickstart() {
  local common=(--training.log_steps 1 --training.eval_steps 0 --training.save_steps "$3" --training.warmup_steps 2) tiny=()
  local text=(--training.sample.tokens 0 --training.eval_batches 2)
  FLAGS=()
  case $1 in
  refocused) FLAGS=(quickstart --training.max_steps "$2" "${common[@]}" "${text[@]}") tiny=(--model.d_model 32 --model.n_layers 1 --model.d_ff 64 --training.batch_size 2 --data.tokenizer.vocab_size 512) ;;
  moderation) FLAGS=(moderation-quickstart --training.max_steps "$2" "${common[@]}") tiny=(--model.d_model 32 --model.n_layers 1 --model.d_ff 48 --training.batch_size 4 --model.wide_rows 256 --data.tokenizer.vocab_size 512) ;;
  agiformer) FLAGS=(agiformer-quickstart --training.max_steps "$2" "${common[@]}" "${text[@]}") tiny=(--model.d_model 32 --model.n_layers 1 --model.d_ff 48 --training.batch_size 2 --model.memory_size 16) ;;
  # At the quickstart's rate of 3e-3, losses on the CPU in bf16 differ from those in fp32 by up to 15 %, at this one 2 %.
  cloudbase) FLAGS=(cloudbase-quickstart --training.max_steps "$2" --training.learning_rate 1e-4 "${common[@]}") tiny=(--model.height 16 --model.width 16 --model.channels "4,8" --training.batch_size 4) ;;
  dynamo)
    FLAGS=(dynamo-quickstart --phases.stage encoder --phases.encoder_steps "$2" "${common[@]}")
    tiny=(--model.d_model 32 --model.n_layers 1 --model.d_ff 48 --training.batch_size 2 --phases.encoder_width 0 --data.tokenizer.vocab_size 512)
    ;;
  esac
  [ -z "$SMALL" ] || FLAGS+=("${tiny[@]}")
}

# learn SYSTEM trains a quickstart on the processor and on the card: in float32 the losses are the same up to rounding,
# in the card's own precision they stay close. fp16 starts with a scale at which no update is skipped, as losses diverge
# after that.
learn() {
  local system=$1 at=$WORK/learn/$1 run precision device bad=0 scale=()
  quickstart "$system" "$UPDATES" 0
  mkdir -p "$at"
  for run in cpu:fp32:cpu "fp32:fp32:cuda:$CARD" "low:$PRECISION:cuda:$CARD"; do
    IFS=: read -r run precision device <<<"$run"
    [ "$precision" != fp16 ] || scale=(--training.loss_scale.init 1024)
    "$WORK/bin/snug" train "${FLAGS[@]}" "${scale[@]}" --out "$at/$run" --data.cache_dir "$at/cache" --hardware.device "$device" --training.mixed_precision "$precision" >&2
  done
  "$WORK/bin/card" losses "$at/cpu" "$at/fp32" --within 0.005 | sed 's/^{/{"run":"fp32",/' || bad=1
  "$WORK/bin/card" losses "$at/cpu" "$at/low" --within 0.05 | sed "s/^{/{\"run\":\"$PRECISION\",/" || bad=1
  return "$bad"
}
for s in "${SYSTEMS[@]}"; do eval "part_learn.$s() { learn $s; }"; done

# A run that gets kill -9 and is resumed ends with the bits of the unbroken one.
part_resume() {
  local train pid at=$WORK/resume
  quickstart refocused $((5 * UPDATES)) 10
  train=("$WORK/bin/snug" train "${FLAGS[@]}" --data.cache_dir "$WORK/learn/refocused/cache"
    --hardware.device "cuda:$CARD" --training.mixed_precision "$PRECISION")
  mkdir -p "$at"
  "${train[@]}" --out "$at/whole" >&2
  "${train[@]}" --out "$at/killed" >&2 &
  pid=$!
  until compgen -G "$at/killed/checkpoints/step-*" >/dev/null; do
    kill -0 "$pid" 2>/dev/null || { echo "the run ended before it was killed" >&2 && return 1; }
    sleep 0.02
  done
  kill -9 "$pid"
  wait "$pid" || true
  local stopped
  stopped=$(newest "$at/killed")
  "${train[@]}" --out "$at/killed" --resume >&2
  local whole killed
  whole=$(newest "$at/whole") killed=$(newest "$at/killed")
  echo "killed after $stopped; at the end $whole and $killed" >&2
  [ "$whole" = "$killed" ] || return 1
  [ "${stopped%% *}" != "${whole%% *}" ] || { echo "the run was done before it was killed" >&2 && return 1; }
}

# newest RUN names its newest checkpoint, with the hash of the weights.
newest() {
  local last
  last=$(find "$1/checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1)
  [ -n "$last" ] || return 1
  echo "$(basename "$last") $(sha256sum <"$last/model.safetensors" | cut -c 1-16)"
}

# Processes that exchange gradients from card to card have the bits of those that do it in main memory: one for each
# card that is there, and with one card a process that sends to itself.
part_nccl() {
  local cards device=cuda:$CARD at=$WORK/nccl run zero exchange
  cards=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
  if [ "$cards" -gt 1 ]; then device=cuda; else cards=1; fi
  quickstart refocused "$UPDATES" 0
  for run in tcp:0 nccl:0 nccl:1; do
    IFS=: read -r exchange zero <<<"$run"
    "$WORK/bin/snug" train "${FLAGS[@]}" --out "$at/$exchange$zero" --data.cache_dir "$WORK/learn/refocused/cache" --nproc "$cards" --hardware.device "$device" \
      --training.mixed_precision "$PRECISION" --training.gradient_accumulation_steps "$((2 * cards))" --hardware.exchange "$exchange" --training.zero "$zero" >&2
  done
  printf '{"processes":%d,"tcp":"%s","nccl":"%s","nccl_zero_1":"%s"}\n' "$cards" "$(newest "$at/tcp0")" "$(newest "$at/nccl0")" "$(newest "$at/nccl1")"
  [ "$(newest "$at/tcp0")" = "$(newest "$at/nccl0")" ] && [ "$(newest "$at/tcp0")" = "$(newest "$at/nccl1")" ]
}

workload() { "$WORK/bin/workload" "$@" --device "cuda:$CARD" --precision "$PRECISION" --json; }

# Two runs have the same weights.
part_repeat() {
  local steps=20 hashes
  [ -z "$SMALL" ] || steps=1
  workload "$TINY" --steps "$steps" >"$WORK/first.json"
  workload "$TINY" --steps "$steps" >"$WORK/second.json"
  cat "$WORK/first.json" "$WORK/second.json"
  hashes=$(sed -nE 's/.*"weights":"([0-9a-f]+)".*/\1/p' "$WORK/first.json" "$WORK/second.json")
  [ "$(wc -l <<<"$hashes")" = 2 ] && [ "$(sort -u <<<"$hashes" | wc -l)" = 1 ] || { echo "two runs differ" >&2 && return 1; }
}

# What the driver says was taken is what was planned: within 1 %, and 64 MiB of code, graphs and rounding. cuBLASLt's own
# code comes on top of the plan, so there is a run without it.
part_memory() {
  local run planned used bad=0 flags
  for run in own library; do
    flags=()
    [ "$run" != own ] || flags=(--no-cublas)
    workload "$TINY" --steps 1 "${flags[@]}" >"$WORK/memory.json" || return 1
    sed "s/^{/{\"run\":\"$run\",/" "$WORK/memory.json"
    planned=$(sed -nE 's/.*"card_planned_bytes":([0-9]+).*/\1/p' "$WORK/memory.json")
    used=$(sed -nE 's/.*"card_used_bytes":([0-9]+).*/\1/p' "$WORK/memory.json")
    if [ "$used" -lt "$((planned - planned / 100))" ] || [ "$used" -gt "$((planned + planned / 100 + (64 << 20)))" ]; then
      bad=1
      echo "$run: $planned bytes are planned, $used are used; $(sed -nE 's/.*"matmuls":"([^"]*)".*/\1/p' "$WORK/memory.json")" >&2
    fi
  done
  return "$bad"
}

# What making the kernels of a program ready takes, the first time and the second. The folder is the one that snug names
# for the driver: what is found there shows that the driver took it.
part_code() (
  local work=gpt2 run
  [ -z "$SMALL" ] || work=$TINY
  unset CUDA_CACHE_PATH
  export XDG_CACHE_HOME=$WORK/code
  for run in cold warm; do
    workload "$work" --code | sed "s/^{/{\"run\":\"$run\",/" || return 1
  done
  [ -n "$(find "$XDG_CACHE_HOME/snug/kernels" -type f -print -quit)" ]
)

# snug_side WORK times snug's side of a work, as torch_presets.py does PyTorch's.
snug_side() {
  local bench=("$WORK/bin/snug" bench --synthetic --ops --json --hardware.device "cuda:$CARD" --training.mixed_precision "$PRECISION") updates=0 tiny=()
  case $1 in
  gpt2)
    if [ -n "$SMALL" ]; then workload "$TINY" --steps 1; else workload gpt2 --steps 60 --ops; fi
    return
    ;;
  refocused) bench+=(refocused-t4) updates=10 tiny=(--model.d_model 32 --model.n_layers 1 --model.n_heads 2 --model.d_ff 64 --model.vocab_size 512 --data.tokenizer.vocab_size 512 --data.seq_len 16 --training.batch_size 2) ;;
  moderation) bench+=(moderation-t4) updates=100 tiny=(--model.d_model 32 --model.n_layers 1 --model.n_heads 2 --model.d_ff 48 --model.vocab_size 512 --data.tokenizer.vocab_size 512 --data.seq_len 16 --training.batch_size 2) ;;
  agiformer) bench+=(agiformer-base-t4) updates=30 tiny=(--model.d_model 32 --model.n_layers 1 --model.n_heads 2 --model.d_ff 48 --model.language.d_model 32 --model.language.n_layers 1 --model.language.n_heads 2 --model.language.d_ff 48 --model.memory_size 16 --model.memory_segment 8 --data.seq_len 16 --training.batch_size 2) ;;
  cloudbase)
    # Dropout draws no numbers in PyTorch's network; rows of pictures are read from flights, which are not there.
    bench+=(cloudbase-t4 --model.dropout 0 --model.dense_dropout "0,0") updates=15
    tiny=(--model.height 16 --model.width 16 --data.rows "0,16" --model.channels "4,8" --training.batch_size 4)
    ;;
  dynamo) bench+=(dynamo-t4 --phases.stage encoder) updates=50 tiny=(--model.d_model 32 --model.n_layers 1 --model.n_heads 2 --model.d_ff 48 --model.vocab_size 512 --data.tokenizer.vocab_size 512 --data.seq_len 16 --training.batch_size 2) ;;
  esac
  if [ -n "$SMALL" ]; then bench+=("${tiny[@]}" --training.gradient_accumulation_steps 1) updates=5; fi
  "${bench[@]}" --updates "$updates"
}

# torch_side WORK TURN times PyTorch, eager and compiled. max-autotune tries matmuls for a minute and more. GPT-2, which they
# bind, has it from the first turn on; the others are first captured in graphs alone, which they need more.
torch_side() {
  local small=() modes=max-autotune
  [ "$1" = gpt2 ] || [ "$2" = 2 ] || modes=reduce-overhead
  modes=eager,${COMPILE:-$modes}
  [ -z "$UNCOMPILED" ] || modes=eager
  [ -z "$SMALL" ] || small=(--device cpu --small --updates 2)
  CUDA_VISIBLE_DEVICES=$CARD "$PYTHON" "$WORK/bench/torch_presets.py" "$1" --dtype "$PRECISION" --modes "$modes" --updates 100 --seconds 6 "${small[@]}"
}
for s in "${WORKS[@]}"; do
  for n in 1 2; do eval "part_$s.snug.$n() { snug_side $s; }" && eval "part_$s.torch.$n() { torch_side $s $n; }"; done
done

# The small works of bench/README.md, which launches bind on a large card.
small_snug() { if [ -n "$SMALL" ]; then workload "$TINY" --steps 1; else workload "$1" --steps 50; fi; }
small_torch() {
  CUDA_VISIBLE_DEVICES=$CARD "$PYTHON" "$WORK/bench/torch_train.py" "$1" --device "$TORCH" --mode "${PRECISION/fp32/tuned}" --steps "${SMALL:-50}" |
    sed 's/"mode": "[a-z0-9]*"/"mode": "eager"/'
}
for s in a b c d; do eval "part_$s.snug.1() { small_snug $s; }" && eval "part_$s.torch.1() { small_torch $s; }"; done

part_kernels.snug() { "$WORK/bin/card" kernels --device "cuda:$CARD" --precision "$PRECISION" ${SMALL:+--small --runs 1}; }
part_kernels.own() { "$WORK/bin/card" kernels --no-cublas --device "cuda:$CARD" --precision "$PRECISION" ${SMALL:+--small --runs 1} | sed 's/"kernel":"/&own: /'; }
part_kernels.torch() { CUDA_VISIBLE_DEVICES=$CARD "$PYTHON" "$WORK/bench/torch_kernels.py" --device "$TORCH" --dtype "$PRECISION" ${SMALL:+--small --runs 1}; }

# What was measured of the matmuls of all programs so far.
measured_matmuls() { find "$XDG_CACHE_HOME/snug" -name 'matmuls-*.json' 2>/dev/null; }
part_matmuls() { measured_matmuls | head -n 1 | xargs cat; }

# NVIDIA's checkers, on steps of a small work, and its profiler, on the last layers of GPT-2, its loss and its first
# gradients. Their tables go to the log. Without cuBLASLt, as every algorithm that is tried would count.
for t in memcheck racecheck initcheck; do
  eval "part_sanitizer.$t() { compute-sanitizer --tool $t --error-exitcode 1 --print-limit 20 \"\$WORK/bin/workload\" \"\$TINY\" --no-cublas --steps 1 --device \"cuda:\$CARD\" --precision \"\$PRECISION\" >&2; }"
done
part_ncu() {
  ncu --clock-control none --kernel-name 'regex:^(gemm|attention|logits|cross|layer|loop|sum|embedding|adamw)' --launch-skip 60 --launch-count 120 \
    --section SpeedOfLight --section Occupancy "$WORK/bin/workload" gpt2 --no-cublas --steps 1 --device "cuda:$CARD" --precision "$PRECISION" >&2
}

# schedule lists the parts, the most important first: NAME, the seconds that it is given only if so many are left, the
# seconds after which it is stopped.
schedule() {
  local s
  echo "doctor 5 60"
  echo "operations 40 150"
  echo "goldens 20 60"
  for s in "${SYSTEMS[@]}"; do echo "learn.$s 20 90"; done
  echo "resume 15 60"
  echo "nccl 20 120"
  echo "repeat 10 30"
  echo "memory 5 30"
  echo "code 15 60"
  echo "products 30 120"
  echo "compiled 30 120"
  echo "larger 20 60"
  round 1
  echo "kernels.snug 15 60"
  echo "kernels.torch 20 60"
  echo "kernels.own 15 60"
  echo "matmuls 0 10"
  for s in a b c d; do echo "$s.snug.1 10 30" && echo "$s.torch.1 15 40"; done
  for s in memcheck racecheck initcheck; do echo "sanitizer.$s 15 60"; done
  echo "ncu 30 120"
  round 2
}

# round N lists the N-th turn of each work. PyTorch's eager figures stay where compiling takes longer than is given.
round() {
  local s most=170
  for s in "${WORKS[@]}"; do
    echo "$s.snug.$1 15 60" && echo "$s.torch.$1 30 $most"
    most=90
  done
}

# --- there ------------------------------------------------------------------------------------------------------------

# missing NAME says what a part needs that is not here.
missing() {
  case $1 in
  *.torch*) [ -n "$TORCH" ] || echo "no PyTorch that sees the card" ;;
  nccl) if timeout 30 "$WORK/bin/snug" doctor --exchange | grep -q 'NCCL  *none'; then echo "no NCCL"; fi ;;
  matmuls) [ -n "$(measured_matmuls)" ] || echo "no cuBLASLt" ;;
  sanitizer.*) command -v compute-sanitizer >/dev/null || echo "no compute-sanitizer" ;;
  ncu) command -v ncu >/dev/null || echo "no ncu" ;;
  esac
}

# record NAME RESULT SECONDS adds a line to the results, with the JSON in $WORK/part.out, and writes the summary again.
# Nothing that goes wrong here ends the run.
record() {
  if ! "$WORK/bin/card" line "$1" "$2" "$3" <"$WORK/part.out" >"$WORK/line" 2>>"$OUT/log.txt"; then
    printf '{"part":"%s","result":"%s","seconds":%d,"data":[]}\n' "$1" "$2" "$3" >"$WORK/line"
    { echo "=== $1: the results leave out what it printed:" && head -c 100000 "$WORK/part.out"; } >>"$OUT/log.txt"
  fi
  cat "$WORK/line" >>"$OUT/results.jsonl"
  if "$WORK/bin/card" report "${AFTER[@]}" "$OUT/results.jsonl" >"$OUT/results.md.new" 2>>"$OUT/log.txt"; then
    mv "$OUT/results.md.new" "$OUT/results.md"
  else
    echo "=== no summary after $1" >>"$OUT/log.txt"
  fi
}

# one NAME NEEDS LIMIT runs a part, if there is time for it, and records the result.
one() {
  local name=$1 needs=$2 limit=$3 left why status=0 from verdict=ok
  : >"$WORK/part.out"
  left=$((BEGAN + MINUTES * 60 - SECONDS))
  why=$(missing "$name")
  if [ -n "$why" ]; then
    record "$name" "$why" 0
    return
  elif [ "$left" -lt "$needs" ]; then
    LEFT_OUT+=("$name")
    return
  fi
  [ -z "$SMALL" ] || limit=600 # the interpreter takes its time
  [ "$left" -ge "$limit" ] || limit=$left
  from=$SECONDS
  timeout -k 5 "$limit" bash "$HERE/gpu.sh" part "$name" >"$WORK/part.out" 2>"$WORK/part.err" || status=$?
  case $status in
  0) [[ -z $UNCOMPILED || $name != ??*.torch.[12] ]] || verdict="eager alone: $UNCOMPILED" ;;
  124 | 137) verdict="stopped after $limit s" ;;
  *) verdict="exit code $status" ;;
  esac
  record "$name" "$verdict" $((SECONDS - from))
  # A part writes little to the log; the middle of a long output is cut.
  {
    echo "=== $name: $verdict"
    head -c 100000 "$WORK/part.err"
    [ "$(wc -c <"$WORK/part.err")" -le 100000 ] || { echo && echo "[...]" && tail -c 100000 "$WORK/part.err"; }
  } >>"$OUT/log.txt"
  printf '%-20s %s (%d s)\n' "$name" "$verdict" $((SECONDS - from))
  if [ "$status" != 0 ]; then
    FAILED+=("$name")
    tail -n 12 "$WORK/part.err" | cut -c 1-300 | sed 's/^/    /'
  fi
}

# done_before NAME reports whether an earlier call did a part; each has matmuls of its own.
done_before() { [ "$1" != matmuls ] && [ ${#AFTER[@]} -gt 0 ] && grep -qhF "{\"part\":\"$1\",\"result\":\"ok\"" "${AFTER[@]}"; }

run() {
  [ $# -ge 2 ] || fail "usage: gpu.sh run DIR OUT [--minutes N] [--after RESULTS.jsonl]... [--only PART,...] [--skip PART,...]"
  local dir=$1 only="" skip="" parts name needs limit
  BEGAN=$SECONDS OUT=$2 MINUTES=9 AFTER=() FAILED=() LEFT_OUT=() SAMPLER=""
  shift 2
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in
    --minutes) MINUTES=$2 ;;
    --after) AFTER+=("$(realpath "$2")") ;;
    --only) only=,$2, ;;
    --skip) skip=,$2, ;;
    *) fail "unknown flag $1" ;;
    esac
    shift 2
  done
  [[ $MINUTES =~ ^[1-9][0-9]*$ ]] || fail "--minutes $MINUTES: want a whole number from 1 on"
  parts=" $(schedule | cut -d ' ' -f 1 | paste -sd ' ') "
  for name in ${only//,/ } ${skip//,/ }; do [[ $parts == *" $name "* ]] || fail "$name: no such part, see gpu.sh parts"; done
  for name in "${AFTER[@]}"; do
    [ -r "$name" ] || fail "--after $name: no such file"
    [ ! "$name" -ef "$OUT/results.jsonl" ] || fail "--after $name: this call writes it; give it another OUT"
  done
  [ -r "$dir/kit.tar.xz" ] || [ -r "$dir/kit.tar.gz" ] || fail "$dir/kit.tar.xz is missing: make it with bench/gpu.sh build DIR"
  mkdir -p "$OUT"
  OUT=$(cd "$OUT" && pwd)
  WORK=$(mktemp -d)
  trap leave EXIT
  unpack "$dir"
  [ -z "$SMALL" ] || few_sources "$WORK/go"
  : >"$OUT/results.jsonl"
  : >"$OUT/log.txt"
  : >"$WORK/part.out"
  sample
  environment
  for_people
  while read -r -u 3 name needs limit; do
    [ "$name" != doctor ] || continue # environment did it
    [ -z "$only" ] || [[ $only == *",$name,"* ]] || continue
    [[ $skip != *",$name,"* ]] || continue
    done_before "$name" || one "$name" "$needs" "$limit"
  done 3< <(schedule)
  [ ${#LEFT_OUT[@]} = 0 ] || echo "no time for ${LEFT_OUT[*]}: give a later call --after $OUT/results.jsonl"
  echo "$OUT/results.md"
  [ ${#FAILED[@]} = 0 ] || { echo "gpu.sh: ${#FAILED[@]} parts failed: ${FAILED[*]}" >&2 && exit 1; }
}

# few_sources leaves less than a megabyte of text.
few_sources() {
  mkdir -p "$1/few/crypto" "$1/few/net"
  cp -r "$1"/src/{bytes,container,path,sort,strings} "$1/few/"
  cp -r "$1"/src/crypto/{md5,sha1,subtle} "$1/few/crypto/"
  cp -r "$1"/src/net/{mail,textproto} "$1/few/net/"
  rm -rf "$1/src"
  mv "$1/few" "$1/src"
}

# probe SECONDS COMMAND... runs what may hang, with its errors in the log.
probe() {
  local limit=$1 status=0
  shift
  [ -z "$SMALL" ] || limit=600
  timeout -k 5 "$limit" "$@" 2>>"$OUT/log.txt" || status=$?
  case $status in 124 | 137) echo "$1 was stopped after $limit s" >>"$OUT/log.txt" ;; esac
  return "$status"
}

# Prints PyTorch's version, why it cannot compile, and the folders of the libraries that it brings.
TORCH_PROBE='
import glob, os, shutil, sys, sysconfig
import torch
if not (sys.argv[1:] or torch.cuda.is_available()):
    sys.exit("PyTorch sees no card")
print(torch.__version__)
if not (os.environ.get("CC") or any(map(shutil.which, ("gcc", "clang", "cc")))):
    print("no C compiler for torch.compile")
elif not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
    print("no Python.h for torch.compile")
else:
    print()
print(":".join(sorted({os.path.dirname(f) for p in sys.path for name in ("libcublasLt.so.*", "libnccl.so.*") for f in glob.glob(os.path.join(p, "nvidia", "*", "lib", name))})))
'

# environment finds out what is here, for all parts.
environment() {
  # What was compiled and measured is kept for the next call on this machine.
  [ -d "$GPU_CACHE" ] || mkdir -m 700 "$GPU_CACHE"
  [ -O "$GPU_CACHE" ] || fail "GPU_CACHE $GPU_CACHE belongs to another user"
  GPU_CACHE=$(cd "$GPU_CACHE" && pwd)
  export XDG_CACHE_HOME=$GPU_CACHE CUDA_CACHE_PATH=$GPU_CACHE/kernels TORCHINDUCTOR_CACHE_DIR=$GPU_CACHE/inductor TRITON_CACHE_DIR=$GPU_CACHE/triton GOROOT=$WORK/go
  unset CUDA_CACHE_DISABLE CUDA_CACHE_MAXSIZE
  mkdir -p "$CUDA_CACHE_PATH"
  TORCH="" TORCH_VERSION="" UNCOMPILED=""
  local libraries=""
  if probe 120 "$PYTHON" -c "$TORCH_PROBE" ${SMALL:+small} >"$WORK/torch"; then
    TORCH=cuda
    [ -z "$SMALL" ] || TORCH=cpu
    { read -r TORCH_VERSION && read -r UNCOMPILED && read -r libraries; } <"$WORK/torch" || true
    # PyTorch brings cuBLASLt and NCCL, which snug finds on this path.
    [ -z "$libraries" ] || export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  fi
  PROCESSES=$(nproc)
  [ "$PROCESSES" -le 12 ] || PROCESSES=12
  TINY=a UPDATES=20
  [ -z "$SMALL" ] || TINY=tiny UPDATES=4
  export WORK OUT CARD PYTHON SMALL COMPILE TORCH UNCOMPILED PROCESSES TINY UPDATES
  one doctor 0 60
  cp "$WORK/part.out" "$WORK/doctor.json"
  PRECISION=$(sed -nE 's/^  "precision": "([a-z0-9]+)".*/\1/p' "$WORK/doctor.json")
  if [ -z "$PRECISION" ]; then
    PRECISION=bf16
    [[ $(asked compute_cap) != 7.* ]] || PRECISION=fp16
    echo "gpu.sh: doctor names no precision, $PRECISION is taken" | tee -a "$OUT/log.txt"
  fi
  export PRECISION
  # Says in words what is missing where no card can be used.
  probe 60 "$WORK/bin/snug" plan quickstart --hardware.device "cuda:$CARD" >/dev/null || fail "no card can be used: $(tail -n 3 "$OUT/log.txt")"
}

# asked FIELDS is what nvidia-smi says of the card; nothing if it says nothing.
asked() { timeout 20 nvidia-smi --query-gpu="$1" --format=csv,noheader -i "$CARD" 2>/dev/null || true; }

# sample has the card's figures written to OUT/card.csv every second, until the call ends.
sample() {
  local reasons=clocks_throttle_reasons # the name before driver 535
  command -v nvidia-smi >/dev/null || return 0
  [ "$(timeout 20 nvidia-smi --help-query-gpu 2>/dev/null | grep -c clocks_event_reasons.active)" = 0 ] || reasons=clocks_event_reasons
  nvidia-smi --query-gpu="timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,memory.used,utilization.gpu,$reasons.active" --format=csv -i "$CARD" -l 1 >"$OUT/card.csv" 2>&1 </dev/null &
  SAMPLER=$!
}

# leave ends what the call has started, and removes its folder.
leave() {
  [ -z "$SAMPLER" ] || kill "$SAMPLER" 2>/dev/null || true
  rm -rf "$WORK"
}

# for_people is the head of the summary.
for_people() {
  local name driver
  name=$(asked name) driver=$(asked driver_version,power.limit)
  [ -n "$name" ] || name=$(sed -nE 's/^  "device": "([^,"]*).*/\1/p' "$WORK/doctor.json")
  printf '{"date":"%s","card":"%s","driver":"%s","precision":"%s","torch":"%s","commit":"%s"}\n' \
    "$(date -u +%F)" "${name:-card $CARD}" "${driver:-unknown}" "$PRECISION" "$TORCH_VERSION" "$(cat "$WORK/commit")" >"$WORK/part.out"
  record about ok 0
}

case ${1:-} in
build) [ $# = 2 ] || fail "usage: bench/gpu.sh build DIR" && build "$2" ;;
run) shift && run "$@" ;;
part) # for this script: a process that can be stopped
  CARD_FLAG=(-card "$CARD")
  "part_$2"
  ;;
parts) schedule ;;
*) fail "usage: bench/gpu.sh build DIR, then DIR/gpu.sh run DIR OUT [--minutes N] [--after RESULTS.jsonl]... [--only PART,...] [--skip PART,...]" ;;
esac
