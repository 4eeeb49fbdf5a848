// Elements of rows picked by index or by rank, and their adjoints.
#include "device.h"

// result[i, k] = x[i, index[i, k]] for rows of n elements; elements are moved as
// words. An index outside the row counts as the first place.
template <class W> DEV void gather(const W *x, const int *index, W *y, u64 elems, u32 n, u32 picks) {
  for (u64 i = (u64)BLOCK_X * 256 + TID; i < elems; i += (u64)BLOCKS * 256) {
    const u32 at = (u32)index[i];
    y[i] = x[i / picks * n + (at < n ? at : 0)];
  }
}
KERNEL __launch_bounds__(256) gather_2(const u16 *x, const int *index, u16 *y, u64 elems, u32 n, u32 picks) { gather(x, index, y, elems, n, picks); }
KERNEL __launch_bounds__(256) gather_4(const u32 *x, const int *index, u32 *y, u64 elems, u32 n, u32 picks) { gather(x, index, y, elems, n, picks); }

// y[i, j] is the sum, in order, of the x[i, k] whose index is j. A thread an
// element of y: those of a row read the same picks at the same time.
template <class T> DEV void scatter(const T *x, const int *index, T *y, u64 elems, u32 n, u32 picks) {
  for (u64 i = (u64)BLOCK_X * 256 + TID; i < elems; i += (u64)BLOCKS * 256) {
    const u64 first = i / n * picks;
    const int at = (int)(i % n);
    float s = 0.0f;
    for (u32 k = 0; k < picks; k++)
      if (index[first + k] == at) s += to_f32(x[first + k]);
    y[i] = from_f32<T>(s);
  }
}

// The place of an element in its row by size: larger elements have larger ranks,
// of equal ones the first has the larger. A NaN is smaller than all numbers.
DEV u64 rank_of(float x, u32 i) {
  const u32 b = f32_bits(x + 0.0f); // -0 is equal to 0
  const u32 key = x != x ? 0 : b >> 31 ? ~b : b | 0x80000000u;
  return (u64)key << 32 | (0xffffffffu - i);
}
DEV u32 index_of(u64 rank) { return 0xffffffffu - (u32)rank; }

DEV u64 larger(u64 a, u64 b) { return a > b ? a : b; }
DEV u64 warp_largest(u64 v) {
  UNROLL for (int i = 16; i > 0; i >>= 1) v = larger(v, (u64)shuffle_xor((u32)v, i) | (u64)shuffle_xor((u32)(v >> 32), i) << 32);
  return v;
}
// The same over a block of 256 threads; scratch has 8 elements.
DEV u64 block_largest(u64 v, u64 *scratch) {
  v = warp_largest(v);
  SYNC(); // what is read of scratch has been
  if ((TID & 31) == 0) scratch[TID >> 5] = v;
  SYNC();
  v = scratch[0];
  UNROLL for (int i = 1; i < 8; i++) v = larger(v, scratch[i]);
  return v;
}

// Short rows: a thread an element, which counts those of larger rank.
template <class T> DEV void top_k_short(const T *x, T *values, int *indices, u64 elems, u32 n, u32 picks) {
  for (u64 i = (u64)BLOCK_X * 256 + TID; i < elems; i += (u64)BLOCKS * 256) {
    const u64 row = i / n;
    const u32 at = (u32)(i - row * n);
    const u64 rank = rank_of(to_f32(x[i]), at);
    u32 before = 0;
    for (u32 j = 0; j < n; j++) before += rank_of(to_f32(x[row * n + j]), j) > rank;
    if (before < picks) {
      values[row * picks + before] = x[i];
      indices[row * picks + before] = (int)at;
    }
  }
}

// Long rows: a block of 256 threads a row, which goes over it once for each pick.
template <class T> DEV void top_k_long(const T *x, T *values, int *indices, u32 n, u32 picks) {
  __shared__ u64 scratch[8];
  const u64 row = BLOCK_X;
  x += row * n;
  u64 last = ~0ull;
  for (u32 k = 0; k < picks; k++) {
    u64 best = 0;
    for (u32 i = TID; i < n; i += 256) {
      const u64 rank = rank_of(to_f32(x[i]), i);
      if (rank < last) best = larger(best, rank);
    }
    last = block_largest(best, scratch);
    if (TID == 0) {
      values[row * picks + k] = x[index_of(last)];
      indices[row * picks + k] = (int)index_of(last);
    }
  }
}

// Short rows have a warp each, eight a block; long ones a block of 256 threads.
template <class T> DEV void arg_max_short(const T *x, int *y, u32 rows, u32 n) {
  const u32 row = BLOCK_X * 8 + (TID >> 5), lane = TID & 31;
  if (row >= rows) return;
  x += (u64)row * n;
  u64 best = 0;
  for (u32 i = lane; i < n; i += 32) best = larger(best, rank_of(to_f32(x[i]), i));
  best = warp_largest(best);
  if (lane == 0) y[row] = (int)index_of(best);
}
template <class T> DEV void arg_max_long(const T *x, int *y, u32 n) {
  __shared__ u64 scratch[8];
  x += (u64)BLOCK_X * n;
  u64 best = 0;
  for (u32 i = TID; i < n; i += 256) best = larger(best, rank_of(to_f32(x[i]), i));
  best = block_largest(best, scratch);
  if (TID == 0) y[BLOCK_X] = (int)index_of(best);
}

#define PICKS(S, T)                                                                                                                             \
  KERNEL __launch_bounds__(256) scatter_##S(const T *x, const int *index, T *y, u64 elems, u32 n, u32 picks) { scatter(x, index, y, elems, n, picks); } \
  KERNEL __launch_bounds__(256) top_k_short_##S(const T *x, T *values, int *indices, u64 elems, u32 n, u32 picks) { top_k_short(x, values, indices, elems, n, picks); } \
  KERNEL __launch_bounds__(256) top_k_long_##S(const T *x, T *values, int *indices, u32 n, u32 picks) { top_k_long(x, values, indices, n, picks); } \
  KERNEL __launch_bounds__(256) arg_max_short_##S(const T *x, int *y, u32 rows, u32 n) { arg_max_short(x, y, rows, n); }                          \
  KERNEL __launch_bounds__(256) arg_max_long_##S(const T *x, int *y, u32 n) { arg_max_long(x, y, n); }
FOR_FLOATS(PICKS)

KERNEL __launch_bounds__(256) one_hot(const int *index, float *y, u64 elems, u32 n) {
  for (u64 i = (u64)BLOCK_X * 256 + TID; i < elems; i += (u64)BLOCKS * 256) y[i] = (u32)index[i / n] == (u32)(i % n) ? 1.0f : 0.0f;
}
