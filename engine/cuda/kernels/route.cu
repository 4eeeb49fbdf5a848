// Tokens sorted to experts, brought to them and back.
#include "device.h"

// Every integer sum below is exact, so the order of additions does not matter; the
// order of rows is that of the choices.

// How many choices are of expert BLOCK_X.
KERNEL __launch_bounds__(256) moe_count(const int *choice, int *wanted, u32 n) {
  __shared__ u32 scratch[33];
  u32 count = 0;
  for (u32 i = TID; i < n; i += 256) count += choice[i] == BLOCK_X;
  count = block_sum(count, scratch);
  if (TID == 0) wanted[BLOCK_X] = (int)count;
}

// The rows of expert BLOCK_X: block e goes over the choices in order, 256 at a
// time, and the last one fills up the sources.
KERNEL __launch_bounds__(256) moe_place(const int *choice, const int *wanted, int *slot, int *source, int *offsets, u32 n, u32 rows, u32 capacity) {
  __shared__ u32 scratch[33], found[8];
  const u32 expert = BLOCK_X, lane = TID & 31, warp = TID >> 5;
  u32 before = 0;
  for (u32 e = TID; e < expert; e += 256) before += min_((u32)wanted[e], capacity);
  const u32 first = block_sum(before, scratch);
  if (TID == 0) offsets[expert] = (int)first;
  u32 taken = 0; // by the choices so far, those that are dropped too
  for (u32 from = 0; from < n; from += 256) {
    const u32 i = from + TID;
    const bool mine = i < n && (u32)choice[i] == expert;
    const u32 bits = ballot(mine);
    SYNC(); // what is read of found has been
    if (lane == 0) found[warp] = (u32)__builtin_popcount(bits);
    SYNC();
    u32 at = taken + (u32)__builtin_popcount(bits & ((1u << lane) - 1));
    UNROLL for (u32 w = 0; w < 8; w++) {
      if (w < warp) at += found[w];
      taken += found[w];
    }
    if (mine) {
      const bool kept = at < capacity;
      slot[i] = kept ? (int)(first + at) : -1;
      if (kept) source[first + at] = (int)i;
    }
  }
  if (expert + 1 != (u32)BLOCKS) return;
  const u32 end = first + min_(taken, capacity);
  if (TID == 0) offsets[expert + 1] = (int)end;
  for (u32 i = end + TID; i < rows; i += 256) source[i] = -1;
}

// Row r is the token source[r]/k times its weight, if there are weights; V
// neighbors a thread.
template <int V, class T> DEV void dispatch(const T *x, const int *source, const float *weights, T *y, u64 pieces, u32 width, u32 k) {
  const u32 row_pieces = width / V;
  for (u64 i = (u64)BLOCK_X * 256 + TID; i < pieces; i += (u64)BLOCKS * 256) {
    const u64 row = i / row_pieces;
    const u32 at = (u32)(i - row * row_pieces) * V;
    const int s = source[row];
    float v[V] = {};
    if (s >= 0) {
      const float w = weights ? weights[s] : 1.0f;
      load(v, x + (u64)((u32)s / k) * width + at);
      UNROLL for (int j = 0; j < V; j++) v[j] *= w;
    }
    store(y + row * width + at, v);
  }
}

// Token n is the sum over its k choices, in order, of their rows times their weights.
template <int V, class T> DEV void combine(const T *y, const int *slot, const float *weights, T *x, u64 pieces, u32 width, u32 k) {
  const u32 row_pieces = width / V;
  for (u64 i = (u64)BLOCK_X * 256 + TID; i < pieces; i += (u64)BLOCKS * 256) {
    const u64 token = i / row_pieces;
    const u32 at = (u32)(i - token * row_pieces) * V;
    float sum[V] = {};
    for (u32 j = 0; j < k; j++) {
      const int s = slot[token * k + j];
      if (s < 0) continue;
      const float w = weights ? weights[token * k + j] : 1.0f;
      float v[V];
      load(v, y + (u64)(u32)s * width + at);
      UNROLL for (int q = 0; q < V; q++) sum[q] += w * v[q];
    }
    store(x + token * width + at, sum);
  }
}

// The scalar product of token i/k and row slot[i]. A warp a choice.
template <class T> DEV void moe_dot(const T *x, const T *y, const int *slot, float *out, u32 n, u32 width, u32 k) {
  const u32 i = BLOCK_X * 8 + (TID >> 5), lane = TID & 31;
  if (i >= n) return;
  const int s = slot[i];
  float v = 0.0f;
  if (s >= 0) {
    x += (u64)(i / k) * width;
    y += (u64)(u32)s * width;
    for (u32 j = lane; j < width; j += 32) v += to_f32(x[j]) * to_f32(y[j]);
  }
  v = warp_sum(v);
  if (lane == 0) out[i] = v;
}

// The sum of the rows of group BLOCK_Y. A block has 32 columns and 8 interleaved
// series of rows, so that no sum depends on where the group lies.
template <class T> DEV void grouped_sum(const T *x, const int *offsets, float *out, u32 width) {
  __shared__ float scratch[8][33];
  const u32 lane = TID & 31, series = TID >> 5, col = BLOCK_X * 32 + lane, group = BLOCK_Y;
  const u32 end = (u32)offsets[group + 1];
  float v = 0.0f;
  if (col < width)
    for (u32 r = (u32)offsets[group] + series; r < end; r += 8) v += to_f32(x[(u64)r * width + col]);
  scratch[series][lane] = v;
  SYNC();
  if (series == 0 && col < width) {
    UNROLL for (int i = 1; i < 8; i++) v += scratch[i][lane];
    out[(u64)group * width + col] = v;
  }
}

#define MOVES(S, T, V)                                                                                                                  \
  KERNEL __launch_bounds__(256) moe_dispatch_##V##_##S(const T *x, const int *source, const float *weights, T *y, u64 pieces, u32 width, u32 k) { \
    dispatch<V>(x, source, weights, y, pieces, width, k);                                                                               \
  }                                                                                                                                     \
  KERNEL __launch_bounds__(256) moe_combine_##V##_##S(const T *y, const int *slot, const float *weights, T *x, u64 pieces, u32 width, u32 k) { \
    combine<V>(y, slot, weights, x, pieces, width, k);                                                                                  \
  }
MOVES(f32, float, 1) MOVES(f32, float, 4) MOVES(f16, f16, 1) MOVES(f16, f16, 8) MOVES(bf16, bf16, 1) MOVES(bf16, bf16, 8)
#define SUMS(S, T)                                                                                                                      \
  KERNEL __launch_bounds__(256) moe_dot_##S(const T *x, const T *y, const int *slot, float *out, u32 n, u32 width, u32 k) {             \
    moe_dot(x, y, slot, out, n, width, k);                                                                                              \
  }                                                                                                                                     \
  KERNEL __launch_bounds__(256) grouped_sum_##S(const T *x, const int *offsets, float *out, u32 width) { grouped_sum(x, offsets, out, width); }
FOR_FLOATS(SUMS)
