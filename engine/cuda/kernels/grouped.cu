// Products of groups of rows with matrices of their own, in 16-bit formats and in
// tf32 on tensor cores; see gemm.h. Group e is the rows offsets[e]..offsets[e+1], which only the
// card knows: the grid has as many tiles as one group could fill, for each group.
#include "gemm.h"

// Rows of a group of A [rows, k] by b[e].
template <bool TRANS_B, bool VECTOR, class T> DEV void grouped(const T *a, const T *b, const int *offsets, u32 n, u32 k) {
  const u32 e = BLOCK_Z, first = (u32)offsets[e], m = (u32)offsets[e + 1] - first;
  const auto [i0, j0] = TileAt<64>(n);
  if (i0 >= m) return;
  __shared__ Tiles<64> tiles;
  Problem p;
  p.a = {a + (u64)first * k, k};
  p.b = {b + (u64)e * k * n, TRANS_B ? k : n};
  p.m = m;
  p.n = n;
  p.k0 = 0;
  p.k1 = k;
  Accumulators<64> acc;
  multiply<64, true, TRANS_B, VECTOR, T>(acc, tiles, p, i0, j0);
  finish(acc, tiles, m, n, i0, j0, first);
}

// The transpose of a group's rows of A [rows, m] by those of B [rows, n].
template <bool VECTOR, class T> DEV void grouped_outer(const T *a, const T *b, const int *offsets, u32 m, u32 n) {
  __shared__ Tiles<64> tiles;
  Problem p;
  p.a = {a, m};
  p.b = {b, n};
  p.m = m;
  p.n = n;
  p.k0 = (u32)offsets[BLOCK_Z];
  p.k1 = (u32)offsets[BLOCK_Z + 1];
  const auto [i0, j0] = TileAt<64>(n);
  Accumulators<64> acc;
  multiply<64, false, false, VECTOR, T>(acc, tiles, p, i0, j0);
  finish(acc, tiles, m, n, i0, j0, BLOCK_Z * m);
}

#define BOUNDS __launch_bounds__(128, 4)
#define GROUPED(NAME, V, F, T)                                                                                                                            \
  KERNEL BOUNDS grouped_nn_##NAME##_##F(const T *a, const T *b, const int *offsets, u32 n, u32 k, Operands) { grouped<false, V>(a, b, offsets, n, k); } \
  KERNEL BOUNDS grouped_nt_##NAME##_##F(const T *a, const T *b, const int *offsets, u32 n, u32 k, Operands) { grouped<true, V>(a, b, offsets, n, k); }  \
  KERNEL BOUNDS grouped_outer_##NAME##_##F(const T *a, const T *b, const int *offsets, u32 m, u32 n, Operands) { grouped_outer<V>(a, b, offsets, m, n); }
GROUPED(64, true, f16, f16) GROUPED(any, false, f16, f16)
#if HAVE_BF16
GROUPED(64, true, bf16, bf16) GROUPED(any, false, bf16, bf16)
#endif
#if HAVE_TF32
GROUPED(64, true, tf32, tf32) GROUPED(any, false, tf32, tf32)
#endif
