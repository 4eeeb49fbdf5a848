#!/usr/bin/env bash
# What two processes wait for their gradients over a network of limited rate: two network namespaces
# of this machine, joined by a pair of virtual interfaces that tc slows down. As root, on Linux.
#
#   bench/network.sh [--rates "1gbit 200mbit"] [--rounds 3] [--updates 6] [--skip 1] [--micro 8] [--preset quickstart]
#     [--ways "ordered fast tree bf16 zero"] [SETTING VALUE ...]
#
# One line a rate and way: the medians of all updates but the first ones of each run, with the range,
# and the means, which count for the ways diloco10, diloco10int8: they exchange once in 10 updates.
# The ways take turns, so that what else the machine does meets all of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
rates="1gbit 200mbit" rounds=3 updates=6 skip=1 micro=8 preset=quickstart order="ordered fast tree bf16 zero"
while [ $# -gt 1 ]; do
  case $1 in
  --rates) rates=$2 ;;
  --rounds) rounds=$2 ;;
  --updates) updates=$2 ;;
  --skip) skip=$2 ;;
  --ways) order=$2 ;;
  --micro) micro=$2 ;;
  --preset) preset=$2 ;;
  *) break ;;
  esac
  shift 2
done
settings=("$@" --training.gradient_accumulation_steps "$micro" --training.max_steps "$updates" --training.log_steps 1 --training.warmup_steps 0
  --training.eval_steps 0 --training.eval_batches 1 --training.save_steps 1000000 --training.sample.tokens 0 --hardware.threads 1)
declare -A ways=(
  [ordered]="" [fast]="--training.gradient_sums fast" [tree]="--training.gradient_sums tree"
  [bf16]="--training.gradient_exchange bf16" [zero]="--training.zero 1"
  [diloco10]="--training.diloco.inner_steps 10" [diloco10int8]="--training.diloco.inner_steps 10 --training.diloco.exchange int8"
)

scratch=$(mktemp -d)
a=snug-a-$$ b=snug-b-$$
cleanup() {
  ip netns del "$a" 2>/dev/null || true
  ip netns del "$b" 2>/dev/null || true
  rm -rf "$scratch"
}
trap cleanup EXIT
if [ -n "${SNUG:-}" ]; then ln -s "$SNUG" "$scratch/snug"; else go build -o "$scratch/snug" .; fi
ip netns add "$a"
ip netns add "$b"
ip link add snug-v0 netns "$a" type veth peer name snug-v1 netns "$b"
for end in "$a snug-v0 10.77.0.1" "$b snug-v1 10.77.0.2"; do
  read -r ns dev address <<<"$end"
  ip -n "$ns" link set lo up
  ip -n "$ns" addr add "$address/24" dev "$dev"
  ip -n "$ns" link set "$dev" up
done

# rank RANK NAMESPACE OUT SETTING...
rank() {
  local rank=$1 ns=$2 out=$3
  shift 3
  ip netns exec "$ns" env RANK="$rank" WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29400 \
    "$scratch/snug" train "$preset" --out "$scratch/$out" --data.cache_dir "$scratch/data" "${settings[@]}" "$@" >"$scratch/$out.$rank.log" 2>&1
}

# The data are prepared, and the processor measured, before anything counts.
"$scratch/snug" train "$preset" --out "$scratch/first" --data.cache_dir "$scratch/data" "${settings[@]}" --until 1 >"$scratch/first.log" 2>&1 || [ $? = 4 ]

for rate in $rates; do
  for end in "$a snug-v0" "$b snug-v1"; do
    read -r ns dev <<<"$end"
    tc -n "$ns" qdisc replace dev "$dev" root tbf rate "$rate" burst 256kb latency 200ms
  done
  for round in $(seq "$rounds"); do
    for way in $order; do
      out=$rate-$way-$round
      # shellcheck disable=SC2086 # settings, not one word
      rank 1 "$b" "$out" ${ways[$way]} &
      # shellcheck disable=SC2086
      rank 0 "$a" "$out" ${ways[$way]} || {
        cat "$scratch/$out".*.log >&2
        exit 1
      }
      wait
    done
  done
  for way in $order; do
    cat "$scratch/$rate-$way"-*/metrics.jsonl | awk -v rate="$rate" -v way="$way" -v skip="$skip" '
      function field(name) { return match($0, "\"" name "\":[0-9.e+-]+") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0 }
      function middle(x, n,   i, j, t) {
        for (i = 2; i <= n; i++) for (j = i; j > 1 && x[j] < x[j-1]; j--) { t = x[j]; x[j] = x[j-1]; x[j-1] = t }
        return sprintf("%6.3f (%.3f to %.3f)", n % 2 ? x[(n+1)/2] : (x[n/2] + x[n/2+1]) / 2, x[1], x[n])
      }
      function mean(x, n,   i, s) {
        for (i = 1; i <= n; i++) s += x[i]
        return sprintf("%.3f", s / n)
      }
      /"event":"update"/ && field("update") > skip { n++; took[n] = field("seconds"); waited[n] = field("exchange_seconds"); hidden[n] = field("exchange_hidden_seconds") }
      END { printf "%-8s %-12s %3d updates  means: update %s s, waited %s s, during computation %s s; medians: update %s s  waited %s s  during computation %s s\n", rate, way, n, mean(took, n), mean(waited, n), mean(hidden, n), middle(took, n), middle(waited, n), middle(hidden, n) }'
  done
done
