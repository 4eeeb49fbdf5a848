// Products of matrices in float, and on cards without bf16 of bf16.
#include "sgemm.h"

// The block's tile of a product of matrices.
template <int R, class T> DEV void sgemm(const T *a, const T *b, u32 lda, u32 ldb, u32 m, u32 n, u32 k0, u32 k1, u32 trans_a, u32 trans_b, u32 first, u32 tile = BLOCK_X) {
  const auto [i0, j0] = TileAt<16 * R>(n, tile);
  MatrixLoader<R, T> la{a, lda, i0, m, k1, !trans_a}, lb{b, ldb, j0, n, k1, (bool)trans_b};
  sgemm<R>(la, lb, m, n, i0, j0, k0, k1, first);
}

// The grid is as that of gemm.cu.
template <int R, class T> DEV void parts_of_k(const T *a, const T *b, u32 m, u32 n, u32 k, u32 lda, u32 parts, u32 part_size, u32 trans_a, u32 trans_b) {
  const u32 count = tiles_of<16 * R>(m, n), z = BLOCK_X / count, batch = z / parts, k0 = z % parts * part_size;
  sgemm<R>(a + (u64)batch * lda * (trans_a ? k : m), b + (u64)batch * k * n, lda, trans_b ? k : n, m, n, k0, min_(k0 + part_size, k), trans_a, trans_b, z * m, BLOCK_X % count);
}

#define SGEMM(NAME, R, F, T)                                                                                                       \
  KERNEL __launch_bounds__(256, 2) sgemm_##NAME##_##F(const T *a, const T *b, u32 m, u32 n, u32 k, u32 lda, u32 parts, u32 part_size, u32 trans_a, u32 trans_b, Operands) { \
    parts_of_k<R>(a, b, m, n, k, lda, parts, part_size, trans_a, trans_b);                                                           \
  }
SGEMM(128, 8, f32, float)
SGEMM(64, 4, f32, float)
SGEMM(128, 8, bf16, bf16)
SGEMM(64, 4, bf16, bf16)

// As those of grouped.cu.
#define GROUPED(F, T)                                                                                                              \
  KERNEL __launch_bounds__(256, 2) sgrouped_##F(const T *a, const T *b, const int *offsets, u32 n, u32 k, u32 trans_b, Operands) { \
    const u32 e = BLOCK_Z, first = (u32)offsets[e], m = (u32)offsets[e + 1] - first;                                               \
    if (TileAt<64>(n).i0 >= m) return;                                                                                             \
    sgemm<4>(a + (u64)first * k, b + (u64)e * k * n, k, trans_b ? k : n, m, n, 0, k, 0, trans_b, first);                           \
  }                                                                                                                                \
  KERNEL __launch_bounds__(256, 2) sgrouped_outer_##F(const T *a, const T *b, const int *offsets, u32 m, u32 n, Operands) {        \
    sgemm<4>(a, b, m, n, m, n, (u32)offsets[BLOCK_Z], (u32)offsets[BLOCK_Z + 1], 1, 0, BLOCK_Z * m);                               \
  }
GROUPED(f32, float)
GROUPED(bf16, bf16)
