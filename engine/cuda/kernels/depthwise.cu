// Convolutions of pictures [B,H,W,C] whose channels have filters of their own, w
// [C,KH,KW]. Neighboring threads have neighboring channels.
#include "device.h"

// Pixel (p, q) of a result of oh x ow has at tap (i, j) the pixel (p*sh + i*dh - top,
// q*sw + j*dw - left) of a picture of h x w.
struct Windows {
  int h, w, c, kh, kw, dh, dw, top, left;
  Divisor oh, ow, sh, sw;
};

// A thread does `strip` neighboring pixels of one row and channel, so that a weight is
// loaded once for all of them.
constexpr int strip = 8;

// What a thread does of pictures of `rows` rows of `cols` pixels.
struct Strip {
  int channel, first, row, b;
  MEMBER Strip(u32 at, int channels, int rows, int cols) {
    const u32 strips = (u32)(cols + strip - 1) / strip, line = at / channels / strips;
    channel = (int)(at % channels);
    first = (int)(at / channels % strips) * strip;
    row = (int)(line % rows);
    b = (int)(line / rows);
  }
};

template <class T> DEV void depthwise(const T *x, const T *w, T *y, u32 strips, const Windows &s) {
  const u32 at = BLOCK_X * 256 + TID;
  if (at >= strips) return;
  const int cols = (int)s.ow.n, step = (int)s.sw.n;
  const Strip t(at, s.c, (int)s.oh.n, cols);
  w += (u64)t.channel * s.kh * s.kw;
  float v[strip] = {};
  for (int i = 0; i < s.kh; i++) {
    const int row = t.row * (int)s.sh.n + i * s.dh - s.top;
    if ((u32)row >= (u32)s.h) continue;
    const T *from = x + ((u64)t.b * s.h + row) * s.w * s.c + t.channel;
    for (int j = 0; j < s.kw; j++) {
      const float f = to_f32(w[i * s.kw + j]);
      const int col = t.first * step + j * s.dw - s.left;
      UNROLL for (int k = 0; k < strip; k++)
        if ((u32)(col + k * step) < (u32)s.w) v[k] = __builtin_fmaf(f, to_f32(from[(u64)(col + k * step) * s.c]), v[k]);
    }
  }
  y += (((u64)t.b * s.oh.n + t.row) * cols + t.first) * s.c + t.channel;
  UNROLL for (int k = 0; k < strip; k++) if (t.first + k < cols) y[(u64)k * s.c] = from_f32<T>(v[k]);
}

// The gradient of the picture.
template <class T> DEV void depthwise_grad(const T *dy, const T *w, T *dx, u32 strips, const Windows &s) {
  const u32 at = BLOCK_X * 256 + TID;
  if (at >= strips) return;
  const Strip t(at, s.c, s.h, s.w);
  w += (u64)t.channel * s.kh * s.kw;
  float v[strip] = {};
  for (int i = 0; i < s.kh; i++) {
    const int row = t.row + s.top - i * s.dh; // times the stride
    const u32 p = s.sh.quotient((u32)row);
    if (row < 0 || p * s.sh.n != (u32)row || p >= s.oh.n) continue;
    const T *from = dy + ((u64)t.b * s.oh.n + p) * s.ow.n * s.c + t.channel;
    for (int j = 0; j < s.kw; j++) {
      const float f = to_f32(w[i * s.kw + j]);
      UNROLL for (int k = 0; k < strip; k++) {
        const int col = t.first + k + s.left - j * s.dw;
        const u32 q = s.sw.quotient((u32)col);
        if (col >= 0 && q * s.sw.n == (u32)col && q < s.ow.n) v[k] = __builtin_fmaf(f, to_f32(from[(u64)q * s.c]), v[k]);
      }
    }
  }
  dx += (((u64)t.b * s.h + t.row) * s.w + t.first) * s.c + t.channel;
  UNROLL for (int k = 0; k < strip; k++) if (t.first + k < s.w) dx[(u64)k * s.c] = from_f32<T>(v[k]);
}

// The gradient of the weights, [parts, C, KH*KW]: a block has 32 channels of tap
// BLOCK_Z and 8 interleaved series of the pixels of the result in part BLOCK_Y.
template <class T> DEV void depthwise_weight(const T *x, const T *dy, float *dw, u32 pixels, u32 size, const Windows &s) {
  __shared__ float scratch[8][33];
  const u32 lane = TID & 31, series = TID >> 5, c = BLOCK_X * 32 + lane, tap = BLOCK_Z;
  const int down = (int)tap / s.kw * s.dh - s.top, across = (int)tap % s.kw * s.dw - s.left;
  const u32 end = min_(pixels, (BLOCK_Y + 1) * size);
  float v = 0.0f;
  if (c < (u32)s.c)
    for (u32 at = BLOCK_Y * size + series; at < end; at += 8) {
      const u32 line = s.ow.quotient(at), b = s.oh.quotient(line);
      const u32 row = (line - b * s.oh.n) * s.sh.n + (u32)down, col = (at - line * s.ow.n) * s.sw.n + (u32)across;
      if (row < (u32)s.h && col < (u32)s.w) v = __builtin_fmaf(to_f32(x[((u64)(b * s.h + row) * s.w + col) * s.c + c]), to_f32(dy[(u64)at * s.c + c]), v);
    }
  scratch[series][lane] = v;
  SYNC();
  if (series == 0 && c < (u32)s.c) {
    UNROLL for (int i = 1; i < 8; i++) v += scratch[i][lane];
    dw[((u64)BLOCK_Y * s.c + c) * (s.kh * s.kw) + tap] = v;
  }
}

#define DEPTHWISE(S, T)                                                                                                                          \
  KERNEL __launch_bounds__(256) depthwise_##S(const T *x, const T *w, T *y, u32 strips, Windows s) { depthwise(x, w, y, strips, s); }              \
  KERNEL __launch_bounds__(256) depthwise_grad_##S(const T *dy, const T *w, T *dx, u32 strips, Windows s) { depthwise_grad(dy, w, dx, strips, s); } \
  KERNEL __launch_bounds__(256) depthwise_weight_##S(const T *x, const T *dy, float *dw, u32 pixels, u32 size, Windows s) { depthwise_weight(x, dy, dw, pixels, size, s); }
FOR_FLOATS(DEPTHWISE)
