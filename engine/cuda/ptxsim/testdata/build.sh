#!/bin/sh
# Writes kernels.sm_75.ptx and kernels.sm_80.ptx; needs clang 19 and nothing of NVIDIA's.
set -eu
cd "$(dirname "$0")"
for sm in 75 80; do
  clang++-19 -x cuda --cuda-device-only -nocudainc -nocudalib --cuda-gpu-arch=sm_$sm --cuda-feature=+ptx70 \
    -O3 -ffp-contract=fast -std=c++17 -gline-tables-only -fdebug-compilation-dir=. -S kernels.cu -o kernels.sm_$sm.ptx
done
