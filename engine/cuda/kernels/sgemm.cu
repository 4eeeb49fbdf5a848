// Products of matrices in float, and on cards without bf16 of bf16.
//
// A block of 256 threads does a tile of 16R x 16R, R x R of which are a thread's, K
// by 8. Both operands lie in shared memory by K, so that a thread reads R neighbors
// of each; the rows are padded by 4 so that stores of columns spread over the banks.
#include "math.h"
#include "place.h"

DEV void float4_load(float *v, const float *p) { *(Neighbors<float, 4> *)v = *(const Neighbors<float, 4> *)p; }

template <int R, class T> DEV void fetch(float (&v)[R / 2], const T *x, u32 ld, bool inside, u32 i0, u32 limit, u32 k0, u32 k1) {
  UNROLL for (int p = 0; p < R / 2; p++) { // R*16*8 elements of 256 threads
    const u32 q = TID + 256 * p;
    const u32 i = i0 + (inside ? q >> 3 : q % (16 * R)), k = k0 + (inside ? q & 7 : q / (16 * R));
    v[p] = i < limit && k < k1 ? to_f32(x[inside ? (u64)i * ld + k : (u64)k * ld + i]) : 0.0f;
  }
}
template <int R> DEV void put(float *s, const float (&v)[R / 2], bool inside) {
  UNROLL for (int p = 0; p < R / 2; p++) {
    const u32 q = TID + 256 * p;
    const u32 i = inside ? q >> 3 : q % (16 * R), k = inside ? q & 7 : q / (16 * R);
    s[k * (16 * R + 4) + i] = v[p];
  }
}

// The tile (BLOCK_Y, BLOCK_X) of [m, n], K from k0 to k1. Row 0 of C is row first of
// the whole result.
template <int R, class T> DEV void sgemm(const T *a, const T *b, u32 lda, u32 ldb, u32 m, u32 n, u32 k0, u32 k1, u32 trans_a, u32 trans_b, u32 first) {
  constexpr int S = 16 * R, L = S + 4;
  __shared__ ALIGNED(16) float sa[2][8 * L];
  __shared__ ALIGNED(16) float sb[2][8 * L];
  const u32 i0 = BLOCK_Y * S, j0 = BLOCK_X * S, ti = (TID >> 4) * 4, tj = (TID & 15) * 4;
  float acc[R][R];
  UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < R; j++) acc[i][j] = 0.0f;
  float va[R / 2], vb[R / 2];
  u32 now = 0;
  if (k0 < k1) {
    fetch<R>(va, a, lda, !trans_a, i0, m, k0, k1);
    fetch<R>(vb, b, ldb, trans_b, j0, n, k0, k1);
    put<R>(sa[0], va, !trans_a);
    put<R>(sb[0], vb, trans_b);
  }
  for (u32 at = k0; at < k1; at += 8, now ^= 1) {
    const bool more = at + 8 < k1;
    if (more) {
      fetch<R>(va, a, lda, !trans_a, i0, m, at + 8, k1);
      fetch<R>(vb, b, ldb, trans_b, j0, n, at + 8, k1);
    }
    SYNC();
    UNROLL for (int q = 0; q < 8; q++) {
      float x[R], y[R];
      UNROLL for (int h = 0; h < R / 4; h++) { // in quarters of 64, so that neighbors read neighbors
        float4_load(x + 4 * h, sa[now] + q * L + ti + 64 * h);
        float4_load(y + 4 * h, sb[now] + q * L + tj + 64 * h);
      }
      UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < R; j++) acc[i][j] = fma(x[i], y[j], acc[i][j]);
    }
    if (more) {
      put<R>(sa[now ^ 1], va, !trans_a);
      put<R>(sb[now ^ 1], vb, trans_b);
    }
  }
  UNROLL for (int i = 0; i < R; i++) {
    const u32 row = i0 + ti + (i & 3) + (i >> 2) * 64;
    UNROLL for (int h = 0; h < R / 4; h++) {
      const u32 col = j0 + tj + h * 64;
      const bool ok = row < m && col < n;
      PLACE_LOAD(0, first + row, col, ok);
      PLACE_BODY(0, *(const float(*)[4])(acc[i] + 4 * h), first + row, col, ok);
    }
  }
}

// The grid is as that of gemm.cu.
template <int R, class T> DEV void parts_of_k(const T *a, const T *b, u32 m, u32 n, u32 k, u32 parts, u32 part_size, u32 trans_a, u32 trans_b) {
  const u32 batch = BLOCK_Z / parts, k0 = BLOCK_Z % parts * part_size;
  sgemm<R>(a + (u64)batch * m * k, b + (u64)batch * k * n, trans_a ? m : k, trans_b ? k : n, m, n, k0, min_(k0 + part_size, k), trans_a, trans_b, BLOCK_Z * m);
}

#define SGEMM(NAME, R, F, T)                                                                                                       \
  KERNEL __launch_bounds__(256, 2) sgemm_##NAME##_##F(const T *a, const T *b, u32 m, u32 n, u32 k, u32 parts, u32 part_size, u32 trans_a, u32 trans_b, Operands) { \
    parts_of_k<R>(a, b, m, n, k, parts, part_size, trans_a, trans_b);                                                              \
  }
SGEMM(128, 8, f32, float)
SGEMM(64, 4, f32, float)
SGEMM(128, 8, bf16, bf16)
SGEMM(64, 4, bf16, bf16)

// As those of grouped.cu.
#define GROUPED(F, T)                                                                                                              \
  KERNEL __launch_bounds__(256, 2) sgrouped_##F(const T *a, const T *b, const int *offsets, u32 n, u32 k, u32 trans_b, Operands) { \
    const u32 e = BLOCK_Z, first = (u32)offsets[e], m = (u32)offsets[e + 1] - first;                                               \
    if ((u32)BLOCK_Y * 64 >= m) return;                                                                                               \
    sgemm<4>(a + (u64)first * k, b + (u64)e * k * n, k, trans_b ? k : n, m, n, 0, k, 0, trans_b, first);                           \
  }                                                                                                                                \
  KERNEL __launch_bounds__(256, 2) sgrouped_outer_##F(const T *a, const T *b, const int *offsets, u32 m, u32 n, Operands) {        \
    sgemm<4>(a, b, m, n, m, n, (u32)offsets[BLOCK_Z], (u32)offsets[BLOCK_Z + 1], 1, 0, BLOCK_Z * m);                               \
  }
GROUPED(f32, float)
GROUPED(bf16, bf16)
