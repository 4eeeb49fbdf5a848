// Quantized matrices encoded and decoded: see package quant.
#include "device.h"

// The codes of NF4 are in blocks of 64 elements, one a warp, two elements a lane. Books are
// the 256 numbers of scales and the 16 of elements; what the mean is added to is rounded.
template <class T> DEV void dequantize_nf4(const u8 *codes, const float *nested, const float *mean, const u8 *scales, const float *books, T *out, u64 n) {
  const u64 warps = (u64)BLOCKS * 8, lane = TID % 32;
  for (u64 block = (u64)BLOCK_X * 8 + TID / 32; block * 64 < n; block += warps) {
    const u64 at = block * 64 + 2 * lane;
    if (at >= n) continue;
    const float part = books[scales[block]] * nested[block / 256];
    const float scale = part + *mean;
    const u32 pair = codes[at / 2];
    out[at] = from_f32<T>(books[256 + (pair >> 4)] * scale);
    if (at + 1 < n) out[at + 1] = from_f32<T>(books[256 + (pair & 15)] * scale);
  }
}

// Integers times the largest magnitude of their row, of which they are 127ths.
template <class T> DEV void dequantize_int8(const signed char *codes, const float *tops, T *out, u64 n, u32 width) {
  for (u64 i = (u64)BLOCK_X * 256 + TID; i < n; i += (u64)BLOCKS * 256) {
    const float x = (float)codes[i] * tops[i / width];
    out[i] = from_f32<T>(x * 7.874015718698502e-3f);
  }
}

// A warp a row: the row's largest magnitude, of which codes count the 127ths. Adding 1.5 * 2^23
// leaves the nearest integer in the lowest bits.
template <class T> DEV void quantize_int8(const T *x, signed char *codes, float *tops, u32 rows, u32 width) {
  const u32 row = BLOCK_X * 8 + TID / 32, lane = TID % 32;
  if (row >= rows) return;
  x += (u64)row * width;
  codes += (u64)row * width;
  float top = 0;
  for (u32 i = lane; i < width; i += 32) {
    const float a = __builtin_fabsf(to_f32(x[i]));
    top = a > top || a != a ? a : top;
  }
  top = warp_max(top);
  if (lane == 0) tops[row] = top;
  const float scale = top >= 0x1p-100f ? 127.0f / top : 0.0f;
  for (u32 i = lane; i < width; i += 32) {
    const float steps = to_f32(x[i]) * scale;
    const float sum = steps + 0x1.8p23f;
    codes[i] = steps == steps ? (signed char)f32_bits(sum) : 0;
  }
}

#define DEQUANTIZE(S, T)                                                                                                                               \
  KERNEL __launch_bounds__(256) dequantize_nf4_##S(const u8 *codes, const float *nested, const float *mean, const u8 *scales, const float *books, T *out, u64 n) { \
    dequantize_nf4(codes, nested, mean, scales, books, out, n);                                                                                        \
  }                                                                                                                                                    \
  KERNEL __launch_bounds__(256) dequantize_int8_##S(const signed char *codes, const float *tops, T *out, u64 n, u32 width) { dequantize_int8(codes, tops, out, n, width); } \
  KERNEL __launch_bounds__(256) quantize_int8_##S(const T *x, signed char *codes, float *tops, u32 rows, u32 width) { quantize_int8(x, codes, tops, rows, width); }
FOR_FLOATS(DEQUANTIZE)
