// A block's tile of C = op(A) op(B) in float.
//
// A block of 256 threads does a tile of 16R x 16R, R x R of which are a thread's, K
// by 8. Both operands lie in shared memory by K, so that a thread reads R neighbors
// of each; the rows are padded by 4 so that stores of columns spread over the banks.
#pragma once
#include "math.h"
#include "place.h"

DEV void float4_load(float *v, const float *p) { *(Neighbors<float, 4> *)v = *(const Neighbors<float, 4> *)p; }

// Where the p-th of a thread's elements of a tile lies: index and K, relative to it.
// INSIDE: K is the contiguous dimension.
template <int R> struct Element {
  u32 i, k;
  MEMBER Element(u32 p, bool inside) {
    const u32 q = TID + 256 * p;
    i = inside ? q >> 3 : q % (16 * R);
    k = inside ? q & 7 : q / (16 * R);
  }
};

// Brings the tiles of a matrix from index i0 on; rows have ld elements.
template <int R, class T> struct MatrixLoader {
  const T *x;
  u32 ld, i0, limit, k1;
  bool inside;
  MEMBER void fetch(float (&v)[R / 2], u32 k0) {
    UNROLL for (int p = 0; p < R / 2; p++) {
      const Element<R> e(p, inside);
      const u32 i = i0 + e.i, k = k0 + e.k;
      v[p] = i < limit && k < k1 ? to_f32(x[inside ? (u64)i * ld + k : (u64)k * ld + i]) : 0.0f;
    }
  }
};
template <int R> DEV void put(float *s, const float (&v)[R / 2], bool inside) {
  UNROLL for (int p = 0; p < R / 2; p++) {
    const Element<R> e(p, inside);
    s[e.k * (16 * R + 4) + e.i] = v[p];
  }
}

// The tile of [m, n] that begins at (i0, j0), of what two loaders bring, K from k0 to
// k1. Row 0 of C is row first of the whole result.
template <int R, class A, class B> DEV void sgemm(A &la, B &lb, u32 m, u32 n, u32 i0, u32 j0, u32 k0, u32 k1, u32 first) {
  constexpr int S = 16 * R, L = S + 4;
  __shared__ ALIGNED(16) float sa[2][8 * L];
  __shared__ ALIGNED(16) float sb[2][8 * L];
  const u32 ti = (TID >> 4) * 4, tj = (TID & 15) * 4;
  float acc[R][R];
  UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < R; j++) acc[i][j] = 0.0f;
  float va[R / 2], vb[R / 2];
  u32 now = 0;
  if (k0 < k1) {
    la.fetch(va, k0);
    lb.fetch(vb, k0);
    put<R>(sa[0], va, la.inside);
    put<R>(sb[0], vb, lb.inside);
  }
  for (u32 at = k0; at < k1; at += 8, now ^= 1) {
    const bool more = at + 8 < k1;
    if (more) {
      la.fetch(va, at + 8);
      lb.fetch(vb, at + 8);
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
      put<R>(sa[now ^ 1], va, la.inside);
      put<R>(sb[now ^ 1], vb, lb.inside);
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
