// Products of matrices in 16-bit formats and in tf32 on tensor cores; see gemm.h.
#include "gemm.h"

// The grid is: tiles, for each batch or part of K. Batch or part z has the rows z*m..
// of the result.
template <int S, bool TRANS_A, bool TRANS_B, bool VECTOR, class T>
DEV void gemm(const T *a, const T *b, u32 m, u32 n, u32 k, u32 lda, u32 parts, u32 part_size) {
  __shared__ Tiles<S> tiles;
  const u32 count = tiles_of<S>(m, n), z = BLOCK_X / count, batch = z / parts, part = z % parts;
  Problem p;
  p.a = {a + (u64)batch * lda * (TRANS_A ? k : m), lda};
  p.b = {b + (u64)batch * k * n, TRANS_B ? k : n};
  p.m = m;
  p.n = n;
  p.k0 = part * part_size;
  p.k1 = min_(p.k0 + part_size, k);
  Accumulators<S> acc;
  const auto [i0, j0] = TileAt<S>(m, n, BLOCK_X % count);
  multiply<S, !TRANS_A, TRANS_B, VECTOR, T>(acc, tiles, p, i0, j0);
  finish(acc, tiles, m, n, i0, j0, z * m);
}

#define GEMM(NAME, S, TA, TB, V, F, T)                                                                                            \
  KERNEL __launch_bounds__(128, S == 128 ? 2 : 4) gemm_##NAME##_##F(const T *a, const T *b, u32 m, u32 n, u32 k, u32 lda, u32 parts, u32 part_size, Operands) { \
    gemm<S, TA, TB, V>(a, b, m, n, k, lda, parts, part_size);                                                                          \
  }
#define GEMMS(F, T)                                                                                                               \
  GEMM(128_nn, 128, false, false, true, F, T) GEMM(128_nt, 128, false, true, true, F, T) GEMM(128_tn, 128, true, false, true, F, T) \
  GEMM(64_nn, 64, false, false, true, F, T) GEMM(64_nt, 64, false, true, true, F, T) GEMM(64_tn, 64, true, false, true, F, T)     \
  GEMM(any_nn, 64, false, false, false, F, T) GEMM(any_nt, 64, false, true, false, F, T) GEMM(any_tn, 64, true, false, false, F, T) GEMM(any_tt, 64, true, true, false, F, T)
GEMMS(f16, f16)
#if HAVE_BF16
GEMMS(bf16, bf16)
#endif
#if HAVE_TF32
GEMMS(tf32, tf32)
#endif
