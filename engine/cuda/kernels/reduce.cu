// Sums, means and maxima along rows and along columns. Long reductions are cut
// into parts by shape alone; a second launch combines the parts in order.
#include "math.h"

struct Sum {
  DEV float start() { return 0.0f; }
  DEV float join(float a, float b) { return a + b; }
};
// A NaN stays, whichever side it is on.
struct Max {
  DEV float start() { return -__builtin_inff(); }
  DEV float join(float a, float b) { return a > b || a != a ? a : b; }
};

template <class Op> DEV float warp_join(float v) {
  UNROLL for (int i = 16; i > 0; i >>= 1) v = Op::join(v, shuffle_xor(v, i));
  return v;
}

// Row r, part p: out[r*parts + p] = scale * the elements [p*size, (p+1)*size) of
// x[r*cols ...] joined. A block of 256 threads a part.
template <class Op, class T> DEV void reduce_rows(const T *x, float *out, u32 cols, u32 parts, u32 size, float scale) {
  __shared__ float scratch[8];
  const u32 row = BLOCK_X / parts, part = BLOCK_X % parts;
  const u32 end = min_(cols, (part + 1) * size);
  x += (u64)row * cols;
  float v = Op::start();
  for (u32 i = part * size + TID; i < end; i += 256) v = Op::join(v, to_f32(x[i]));
  v = warp_join<Op>(v);
  if ((TID & 31) == 0) scratch[TID >> 5] = v;
  SYNC();
  if (TID == 0) {
    float w = scratch[0];
    UNROLL for (int i = 1; i < 8; i++) w = Op::join(w, scratch[i]);
    out[(u64)row * parts + part] = w * scale;
  }
}

// Short rows: a warp each, eight a block.
template <class Op, class T> DEV void reduce_short(const T *x, float *out, u32 rows, u32 cols, float scale) {
  const u32 row = BLOCK_X * 8 + (TID >> 5), lane = TID & 31;
  if (row >= rows) return;
  x += (u64)row * cols;
  float v = Op::start();
  for (u32 i = lane; i < cols; i += 32) v = Op::join(v, to_f32(x[i]));
  v = warp_join<Op>(v);
  if (lane == 0) out[row] = v * scale;
}

// Columns: x is [outer, rows, cols], out [outer, parts, cols]; the rows of a part
// are joined. A block has 32 columns and 8 interleaved series of rows.
template <class Op, class T> DEV void reduce_columns(const T *x, float *out, u32 rows, u32 cols, u32 size, float scale) {
  __shared__ float scratch[8][33];
  const u32 lane = TID & 31, series = TID >> 5;
  const u32 col = BLOCK_X * 32 + lane, part = BLOCK_Y, outer = BLOCK_Z;
  const u32 end = min_(rows, (part + 1) * size);
  float v = Op::start();
  if (col < cols) {
    x += (u64)outer * rows * cols + col;
    for (u32 r = part * size + series; r < end; r += 8) v = Op::join(v, to_f32(x[(u64)r * cols]));
  }
  scratch[series][lane] = v;
  SYNC();
  if (series == 0 && col < cols) {
    UNROLL for (int i = 1; i < 8; i++) v = Op::join(v, scratch[i][lane]);
    out[((u64)outer * __nvvm_read_ptx_sreg_nctaid_y() + part) * cols + col] = v * scale;
  }
}

#define REDUCE(S, T)                                                                                                          \
  KERNEL __launch_bounds__(256) sum_rows_##S(const T *x, float *out, u32 cols, u32 parts, u32 size, float scale) { reduce_rows<Sum>(x, out, cols, parts, size, scale); } \
  KERNEL __launch_bounds__(256) max_rows_##S(const T *x, float *out, u32 cols, u32 parts, u32 size, float scale) { reduce_rows<Max>(x, out, cols, parts, size, scale); } \
  KERNEL __launch_bounds__(256) sum_short_##S(const T *x, float *out, u32 rows, u32 cols, float scale) { reduce_short<Sum>(x, out, rows, cols, scale); } \
  KERNEL __launch_bounds__(256) max_short_##S(const T *x, float *out, u32 rows, u32 cols, float scale) { reduce_short<Max>(x, out, rows, cols, scale); } \
  KERNEL __launch_bounds__(256) sum_columns_##S(const T *x, float *out, u32 rows, u32 cols, u32 size, float scale) { reduce_columns<Sum>(x, out, rows, cols, size, scale); } \
  KERNEL __launch_bounds__(256) max_columns_##S(const T *x, float *out, u32 rows, u32 cols, u32 size, float scale) { reduce_columns<Max>(x, out, rows, cols, size, scale); }
FOR_FLOATS(REDUCE)
