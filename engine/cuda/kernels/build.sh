#!/usr/bin/env bash
# Compiles the kernels to PTX, which is committed compressed: nobody who leaves them alone
# needs a compiler. The same compiler writes the same bytes. The lines of the sources that
# PTX comes from are in files of their own (lines), so that programs do not carry them.
#
#   ./build.sh           needs clang++-19 (Debian and Ubuntu: apt-get install clang-19)
#   ./build.sh --check   reports files that are not what it would write
#
# PTX 7.0 loads on every driver since CUDA 11.0. sm_75 code runs on every later
# card too; sm_80 has copies that bypass registers and twice as deep products.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
CLANG=${CLANG:-clang++-19}
out=.
if [ "${1:-}" = --check ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
# Products and sums are contracted within an expression alone, as written: what a
# function computes does not depend on what it is fused with.
compile() { # source architecture name
  local table=$out/lines/$2/$3.txt
  : >"$table" # a source may have nothing for an architecture
  "$CLANG" -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch="$2" -Xclang -target-feature -Xclang +ptx70 \
    -O3 -gline-directives-only -ffp-contract=on -std=c++20 -Wall -Wextra -Werror -Wno-unknown-cuda-version -S "$1" -o - |
    sed -E '/^[[:space:]]*\/\/ (begin|end) inline asm$/d; /^\/\/ %bb/d; s/[[:space:]]+\/\/ (@|-- |%).*$//' |
    awk -v TABLE="$table" -f lines/lines.awk | gzip -9n >"$out/ptx/$2/$3.ptx.gz"
  gzip -9n <"$table" >"${table%.txt}.gz"
  rm "$table"
}
for sm in sm_75 sm_80; do
  mkdir -p "$out/ptx/$sm" "$out/lines/$sm"
  for f in *.cu; do
    compile "$f" "$sm" "${f%.cu}"
  done
done
if [ "$out" != . ]; then # what is in the files is compared: compressors differ
  stale=0
  while read -r f; do
    cmp -s <(gzip -dc "$out/$f") <(gzip -dc "$f") || { echo "out of date: $f" >&2; stale=1; }
  done < <(for d in "$out" .; do (cd "$d" && ls -d ptx/*/*.gz lines/*/*.gz); done | sort -u)
  [ "$stale" = 0 ] || { echo "run engine/cuda/kernels/build.sh" >&2; exit 1; }
fi
