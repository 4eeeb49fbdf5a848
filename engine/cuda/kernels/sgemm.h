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
    // By steps from the thread's first element, so that few addresses are kept.
    const Element<R> e(0, inside), next(1, inside);
    const u32 i = anew(i0 + e.i), k = k0 + e.k, di = next.i - e.i, dk = next.k - e.k;
    const T *at = x + (inside ? (u64)i * ld + k : (u64)k * ld + i);
    const u32 step = ld * (di + dk); // below 2^32: see matmul.go
    UNROLL for (int p = 0; p < R / 2; p++) v[p] = i + p * di < limit && k + p * dk < k1 ? to_f32(at[(u64)p * step]) : 0.0f;
  }
};
template <int R> DEV void put(float *s, const float (&v)[R / 2], bool inside) {
  constexpr u32 L = 16 * R + 4;
  const Element<R> e(0, inside), next(1, inside);
  float *const at = s + anew(e.k * L + e.i);
  const u32 step = (next.k - e.k) * L + next.i - e.i;
  UNROLL for (int p = 0; p < R / 2; p++) at[p * step] = v[p];
}

// The shared memory of a block, in floats.
template <int R> constexpr int SHARED = 4 * 8 * (16 * R + 4);

// The tile of what two loaders bring, K from k0 to k1. Element (i, j) of a thread has row
// 4 (TID / 16) + i mod 4 + 64 (i / 4) of the tile, and column 4 (TID mod 16) + j mod 4 +
// 64 (j / 4).
template <int R, class A, class B> DEV void smultiply(float (&acc)[R][R], float *shared, A &la, B &lb, u32 k0, u32 k1) {
  constexpr int S = 16 * R, L = S + 4;
  float(*sa)[8 * L] = (float(*)[8 * L])shared, (*sb)[8 * L] = sa + 2;
  const u32 ti = (TID >> 4) * 4, tj = (TID & 15) * 4;
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
    // Step by step: operands of several find no room in 128 registers. Other warps
    // hide the loop, since sums keep their pipe busy for two clocks each.
    NO_UNROLL for (int q = 0; q < 8; q++) {
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
}

// The tile of [m, n] that begins at (i0, j0). Row 0 of C is row first of the whole result.
template <int R, class A, class B> DEV void sgemm(A &la, B &lb, u32 m, u32 n, u32 i0, u32 j0, u32 k0, u32 k1, u32 first) {
  __shared__ ALIGNED(16) float shared[SHARED<R>];
  float acc[R][R];
  smultiply<R>(acc, shared, la, lb, k0, k1);
  // The results go to their places from shared memory, P rows of a thread's at a
  // time: a loop in which no other result is touched needs few registers, and there is
  // one copy of the body for P rows.
  constexpr int P = R / 2;
  const u32 thread = anew(TID);
  Neighbors<float, 4> *const staged = (Neighbors<float, 4> *)shared + thread; // 256 apart: no bank is met twice
  SYNC();
  UNROLL for (int g = 0; g < R / P; g++) UNROLL for (int h = 0; h < R / 4; h++) {
    UNROLL for (int r = 0; r < P; r++) UNROLL for (int e = 0; e < 4; e++) staged[256 * r].v[e] = acc[g * P + r][4 * h + e];
    const u32 col = j0 + (thread & 15) * 4 + h * 64;
    NO_UNROLL for (int r = 0; r < P; r++) {
      const u32 i = g * P + r, row = i0 + (thread >> 4) * 4 + (i & 3) + (i >> 2) * 64;
      const bool ok = row < m && col < n;
      PLACE_LOAD(0, first + row, col, ok);
      const Neighbors<float, 4> v = staged[256 * r];
      PLACE_BODY(0, v.v, first + row, col, ok);
    }
  }
}
