#!/usr/bin/env bash
# Makes the PyTorch side of the comparison: a virtual environment outside this tree.
#
#   bench/setup.sh [pip options]     e.g. --index-url URL of a CPU-only build, which saves gigabytes of CUDA libraries
#
# SNUG_BENCH_ENV says where (default ~/.cache/snug/torch); TORCH and TRANSFORMERS name the versions.
set -euo pipefail
ENV=${SNUG_BENCH_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/snug/torch}
TORCH=${TORCH:-torch}
TRANSFORMERS=${TRANSFORMERS:-transformers}

[ -x "$ENV/bin/python" ] || python3 -m venv "$ENV"
"$ENV/bin/pip" install --quiet "$@" "$TORCH" "$TRANSFORMERS" numpy

PRELOAD=$ENV/lib/preload
mkdir -p "$PRELOAD"

# tcmalloc, unpacked from the distribution's package where it is not installed; this needs no root.
if ! compgen -G '/usr/lib*/libtcmalloc_minimal.so.4' >/dev/null && ! compgen -G '/usr/lib/*/libtcmalloc_minimal.so.4' >/dev/null &&
  ! compgen -G "$PRELOAD/libtcmalloc*" >/dev/null; then
  if command -v apt-get >/dev/null; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    # The package's name gained a suffix with Debian's change of time_t.
    (cd "$scratch" && { apt-get download libtcmalloc-minimal4t64 || apt-get download libtcmalloc-minimal4; } >/dev/null 2>&1) || true
    for package in "$scratch"/*.deb; do
      [ -e "$package" ] || continue
      dpkg -x "$package" "$scratch"
      cp -L "$scratch"/usr/lib/*/libtcmalloc_minimal.so.4 "$PRELOAD/"
    done
  fi
  compgen -G "$PRELOAD/libtcmalloc*" >/dev/null ||
    echo "setup.sh: no tcmalloc; install it (gperftools), or PyTorch is measured 15-40 % slower than it can be" >&2
fi

# MKL takes its AVX-512 kernels on Intel's processors only, and runs at a fraction of the speed elsewhere. Its own test is
# a function that a library loaded earlier can answer for it.
if grep -qm1 AuthenticAMD /proc/cpuinfo && "$ENV/bin/python" -c 'import sys, torch; sys.exit(not torch.backends.mkl.is_available())'; then
  if command -v cc >/dev/null; then
    printf 'int mkl_serv_intel_cpu_true(void) { return 1; }\nint mkl_serv_intel_cpu(void) { return 1; }\n' |
      cc -O2 -shared -fPIC -x c - -o "$PRELOAD/libmkl_amd.so"
  else
    echo "setup.sh: no C compiler for the library that makes MKL use AVX-512 on AMD: PyTorch is measured at half its speed" >&2
  fi
fi

"$ENV/bin/python" - <<'PY'
import glob, os, sys, torch
print(f"torch {torch.__version__} in {sys.prefix}, MKL {torch.backends.mkl.is_available()}, "
      f"{torch.backends.cpu.get_cpu_capability()}, preloaded: "
      + (", ".join(os.path.basename(p) for p in glob.glob(sys.prefix + "/lib/preload/*")) or "the system's tcmalloc"))
PY
