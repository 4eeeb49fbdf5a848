// Convolutions of pictures [B,H,W,C] whose channels have filters of their own, w
// [C,KH,KW]. Neighboring threads have neighboring channels.
#include "device.h"

// Pixel (p, q) of a result of oh x ow has at tap (i, j) the pixel (p*sh + i*dh - top,
// q*sw + j*dw - left) of a picture of h x w.
struct Windows { u32 h, w, c, oh, ow, kh, kw, sh, sw, dh, dw, top, left; };

// A thread an element of the result.
template <class T> DEV void depthwise(const T *x, const T *w, T *y, u32 elems, Windows s) {
  const u32 at = BLOCK_X * 256 + TID;
  if (at >= elems) return;
  const u32 pixel = at / s.c, c = at % s.c, line = pixel / s.ow, b = line / s.oh;
  const u32 row = line % s.oh * s.sh - s.top, col = pixel % s.ow * s.sw - s.left; // wraps around below 0
  x += (u64)b * s.h * s.w * s.c + c;
  w += (u64)c * s.kh * s.kw;
  float v = 0.0f;
  for (u32 i = 0; i < s.kh; i++) {
    const u32 r = row + i * s.dh;
    if (r >= s.h) continue;
    for (u32 j = 0; j < s.kw; j++) {
      const u32 q = col + j * s.dw;
      if (q < s.w) v = __builtin_fmaf(to_f32(w[i * s.kw + j]), to_f32(x[((u64)r * s.w + q) * s.c]), v);
    }
  }
  y[at] = from_f32<T>(v);
}

// The gradient of the picture. A thread an element of it.
template <class T> DEV void depthwise_grad(const T *dy, const T *w, T *dx, u32 elems, Windows s) {
  const u32 at = BLOCK_X * 256 + TID;
  if (at >= elems) return;
  const u32 pixel = at / s.c, c = at % s.c, line = pixel / s.w, b = line / s.h;
  const u32 row = line % s.h + s.top, col = pixel % s.w + s.left;
  dy += (u64)b * s.oh * s.ow * s.c + c;
  w += (u64)c * s.kh * s.kw;
  float v = 0.0f;
  for (u32 i = 0; i < s.kh; i++) {
    const u32 r = row - i * s.dh, p = r / s.sh;
    if (row < i * s.dh || p * s.sh != r || p >= s.oh) continue;
    for (u32 j = 0; j < s.kw; j++) {
      const u32 l = col - j * s.dw, q = l / s.sw;
      if (col < j * s.dw || q * s.sw != l || q >= s.ow) continue;
      v = __builtin_fmaf(to_f32(w[i * s.kw + j]), to_f32(dy[((u64)p * s.ow + q) * s.c]), v);
    }
  }
  dx[at] = from_f32<T>(v);
}

// The gradient of the weights, [parts, C, KH*KW]: a block has 32 channels of tap
// BLOCK_Z and 8 interleaved series of the pixels of the result in part BLOCK_Y.
template <class T> DEV void depthwise_weight(const T *x, const T *dy, float *dw, u32 pixels, u32 size, Windows s) {
  __shared__ float scratch[8][33];
  const u32 lane = TID & 31, series = TID >> 5, c = BLOCK_X * 32 + lane, tap = BLOCK_Z;
  const u32 down = tap / s.kw * s.dh - s.top, across = tap % s.kw * s.dw - s.left;
  const u32 end = min_(pixels, (BLOCK_Y + 1) * size);
  float v = 0.0f;
  if (c < s.c)
    for (u32 at = BLOCK_Y * size + series; at < end; at += 8) {
      const u32 line = at / s.ow, b = line / s.oh;
      const u32 r = line % s.oh * s.sh + down, q = at % s.ow * s.sw + across;
      if (r < s.h && q < s.w) v = __builtin_fmaf(to_f32(x[(((u64)b * s.h + r) * s.w + q) * s.c + c]), to_f32(dy[(u64)at * s.c + c]), v);
    }
  scratch[series][lane] = v;
  SYNC();
  if (series == 0 && c < s.c) {
    UNROLL for (int i = 1; i < 8; i++) v += scratch[i][lane];
    dw[((u64)BLOCK_Y * s.c + c) * (s.kh * s.kw) + tap] = v;
  }
}

#define DEPTHWISE(S, T)                                                                                                                          \
  KERNEL __launch_bounds__(256) depthwise_##S(const T *x, const T *w, T *y, u32 elems, Windows s) { depthwise(x, w, y, elems, s); }              \
  KERNEL __launch_bounds__(256) depthwise_grad_##S(const T *dy, const T *w, T *dx, u32 elems, Windows s) { depthwise_grad(dy, w, dx, elems, s); } \
  KERNEL __launch_bounds__(256) depthwise_weight_##S(const T *x, const T *dy, float *dw, u32 pixels, u32 size, Windows s) { depthwise_weight(x, dy, dw, pixels, size, s); }
FOR_FLOATS(DEPTHWISE)
