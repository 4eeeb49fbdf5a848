// Maxima and averages over windows of pictures [B,H,W,C], and their gradients. A
// thread an element, neighboring threads neighboring channels.
#include "device.h"

// Windows of kh x kw, sh and sw apart, the first top rows above and left columns
// left of a picture of h x w x c; there are oh x ow of them.
struct Windows { u32 h, w, c, oh, ow, kh, kw, sh, sw, top, left; };

template <bool MAX, class T> DEV void pool(const T *x, T *y, u32 elems, Windows s) {
  const u32 i = BLOCK_X * 256 + TID;
  if (i >= elems) return;
  const u32 pixel = i / s.c, c = i % s.c, row = pixel / s.ow, b = row / s.oh;
  const int r0 = (int)(row % s.oh * s.sh) - (int)s.top, c0 = (int)(pixel % s.ow * s.sw) - (int)s.left;
  const T *picture = x + (u64)b * s.h * s.w * s.c + c;
  float v = MAX ? -__builtin_inff() : 0.0f;
  for (u32 k = 0; k < s.kh; k++) {
    const u32 r = (u32)(r0 + (int)k);
    if (r >= s.h) continue;
    for (u32 l = 0; l < s.kw; l++) {
      const u32 q = (u32)(c0 + (int)l);
      if (q >= s.w) continue;
      const float e = to_f32(picture[((u64)r * s.w + q) * s.c]);
      if (MAX) v = e > v || e != e ? e : v;
      else v += e;
    }
  }
  y[i] = from_f32<T>(MAX ? v : v / (float)(s.kh * s.kw));
}

// Whether element (row, col) of the picture is the first of window (p, q), row by
// row, that is not less than top. x is where the picture has its channel.
template <class T> DEV bool is_first(const T *x, const Windows &s, float top, u32 row, u32 col, u32 p, u32 q) {
  const int r0 = (int)(p * s.sh) - (int)s.top, c0 = (int)(q * s.sw) - (int)s.left;
  if (to_f32(x[((u64)row * s.w + col) * s.c]) < top) return false;
  for (int r = r0 > 0 ? r0 : 0; r <= (int)row; r++) {
    const int end = r == (int)row ? (int)col : (int)min_(s.w, (u32)(c0 + (int)s.kw));
    for (int c = c0 > 0 ? c0 : 0; c < end; c++)
      if (!(to_f32(x[((u64)(u32)r * s.w + (u32)c) * s.c]) < top)) return false;
  }
  return true;
}

// The gradient of an element is that of the windows which it is in, in order: for
// the maximum, of those that it is the first maximum of.
template <bool MAX, class T> DEV void pool_grad(const T *dy, const T *x, const T *y, T *dx, u32 elems, Windows s) {
  const u32 i = BLOCK_X * 256 + TID;
  if (i >= elems) return;
  const u32 pixel = i / s.c, c = i % s.c, line = pixel / s.w, b = line / s.h, row = line % s.h, col = pixel % s.w;
  const u32 down = row + s.top, across = col + s.left;
  const u32 p0 = down < s.kh ? 0 : (down - s.kh) / s.sh + 1, p1 = min_(down / s.sh + 1, s.oh);
  const u32 q0 = across < s.kw ? 0 : (across - s.kw) / s.sw + 1, q1 = min_(across / s.sw + 1, s.ow);
  float v = 0.0f;
  for (u32 p = p0; p < p1; p++)
    for (u32 q = q0; q < q1; q++) {
      const u64 at = (((u64)b * s.oh + p) * s.ow + q) * s.c + c;
      if (MAX && !is_first(x + (u64)b * s.h * s.w * s.c + c, s, to_f32(y[at]), row, col, p, q)) continue;
      v += to_f32(dy[at]);
    }
  dx[i] = from_f32<T>(MAX ? v : v / (float)(s.kh * s.kw));
}

#define POOL(S, T)                                                                                                             \
  KERNEL __launch_bounds__(256) max_pool2d_##S(const T *x, T *y, u32 elems, Windows s) { pool<true>(x, y, elems, s); }         \
  KERNEL __launch_bounds__(256) avg_pool2d_##S(const T *x, T *y, u32 elems, Windows s) { pool<false>(x, y, elems, s); }        \
  KERNEL __launch_bounds__(256) max_pool2d_grad_##S(const T *dy, const T *x, const T *y, T *dx, u32 elems, Windows s) {        \
    pool_grad<true>(dy, x, y, dx, elems, s);                                                                                   \
  }                                                                                                                            \
  KERNEL __launch_bounds__(256) avg_pool2d_grad_##S(const T *dy, T *dx, u32 elems, Windows s) {                                \
    pool_grad<false>(dy, (const T *)nullptr, (const T *)nullptr, dx, elems, s);                                                \
  }
FOR_FLOATS(POOL)
