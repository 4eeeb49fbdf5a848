// Convolutions of pictures x [B,H,W,C] as products of matrices: that of a picture has
// a row for each pixel of the result and a column for each tap (i, j) of the kernel
// and each channel, and is never stored. The weights lie as [O, KH*KW*C]. In 16-bit
// formats the products are those of gemm.h, with tiles of 64 x 64, and the channels
// are padded to whole pieces of eight (conv.go); else they are those of sgemm.h. Where the
// result has up to eight channels, a tile is 128 x 8.
//
// The gradient in the picture is a convolution of dy with negative dilation, one for
// each remainder of rows and columns by the stride (conv.go).
#include "gemm.h"
#include "sgemm.h"

// Pixel (b, p, q) of the result has at tap (i, j) the pixel (b, p*sh + i*dh + top,
// q*sw + j*dw + left) of a picture of h x w; the result has oh x ow, a tap kw to a
// row, a pixel c channels.
struct Windows {
  u32 h, w;
  int sh, sw, dh, dw, top, left;
  Divisor c, kw, oh, ow;
};

// Where the first tap of a row of the matrix is, and how far a column's is from it.
// What lies outside of the matrix is outside of every picture.
constexpr int no_pixel = -(1 << 29), no_tap = 1 << 30;
struct Pixel {
  u32 line; // b*h
  int row, col;
  MEMBER Pixel() {}
  MEMBER Pixel(const Windows &s, u32 at, u32 limit) {
    const u32 over = s.ow.quotient(at), b = s.oh.quotient(over);
    line = b * s.h;
    row = at < limit ? (int)(over - b * s.oh.n) * s.sh + s.top : no_pixel;
    col = (int)(at - over * s.ow.n) * s.sw + s.left;
  }
};
struct Tap {
  int row, col;
  u32 channel;
  MEMBER Tap() {}
  MEMBER Tap(const Windows &s, u32 at, u32 limit) {
    const u32 tap = s.c.quotient(at), i = s.kw.quotient(tap);
    row = at < limit ? (int)i * s.dh : no_tap;
    col = (int)(tap - i * s.kw.n) * s.dw;
    channel = at - tap * s.c.n;
  }
};
DEV bool within(const Windows &s, Pixel p, Tap t) { return (u32)(p.row + t.row) < s.h && (u32)(p.col + t.col) < s.w; }
DEV u64 offset(const Windows &s, Pixel p, Tap t) { return (u64)((p.line + (u32)(p.row + t.row)) * s.w + (u32)(p.col + t.col)) * s.c.n + t.channel; }

// Brings tiles of the matrix for tensor cores. INSIDE: K are taps and channels, else
// pixels. Channels come in whole pieces of eight, 16 aligned bytes.
template <bool INSIDE, class T> struct PictureLoader {
  static constexpr int S = 64, pieces = S / 32;
  const T *x;
  const Windows &s;
  u32 k1;
  Pixel pixels[pieces]; // of the thread; INSIDE: as long as it lives
  Tap tap;              // of all its pieces; else: as long as it lives
  u32 held[pieces][4];
  MEMBER PictureLoader(const T *x, const Windows &s, u32 i0, u32 limit, u32 k1) : x(x), s(s), k1(k1) {
    if constexpr (INSIDE) {
      UNROLL for (int p = 0; p < pieces; p++) pixels[p] = Pixel(s, i0 + Piece<S, true>(TID + 128 * p).i, limit);
    } else {
      tap = Tap(s, i0 + Piece<S, false>(TID).i, limit);
    }
  }
  // Piece p from K k0 on, if it is within the picture.
  MEMBER const T *find(int p, u32 k0, bool &valid) {
    const Piece<S, INSIDE> q(TID + 128 * p);
    if constexpr (INSIDE) {
      if (p == 0) tap = Tap(s, k0 + q.k, k1);
    } else {
      pixels[p] = Pixel(s, k0 + q.k, k1);
    }
    valid = within(s, pixels[p], tap);
    return x + offset(s, pixels[p], tap);
  }
  MEMBER void fetch(u32 k0) {
    UNROLL for (int p = 0; p < pieces; p++) {
      bool valid;
      const T *from = find(p, k0, valid);
      load_piece(held[p], from, valid);
    }
  }
  MEMBER void put(Tile<S> &t) {
    UNROLL for (int p = 0; p < pieces; p++) store_piece(t.v + Piece<S, INSIDE>(TID + 128 * p).at, held[p]);
  }
#if HAVE_CP_ASYNC
  MEMBER void copy(Tile<S> &t, u32 k0) {
    UNROLL for (int p = 0; p < pieces; p++) {
      bool valid;
      const T *from = find(p, k0, valid);
      copy_async(t.v + Piece<S, INSIDE>(TID + 128 * p).at, valid ? from : x, valid);
    }
  }
#endif
};

// The same for products in float.
template <int R, bool INSIDE, class T> struct FloatPictureLoader {
  static constexpr bool inside = INSIDE;
  const T *x;
  const Windows &s;
  u32 k1;
  Pixel pixels[R / 2];
  Tap tap;
  MEMBER FloatPictureLoader(const T *x, const Windows &s, u32 i0, u32 limit, u32 k1) : x(x), s(s), k1(k1) {
    if constexpr (INSIDE) {
      UNROLL for (int p = 0; p < R / 2; p++) pixels[p] = Pixel(s, i0 + Element<R>(p, true).i, limit);
    } else {
      tap = Tap(s, i0 + Element<R>(0, false).i, limit);
    }
  }
  MEMBER void fetch(float (&v)[R / 2], u32 k0) {
    if (INSIDE) tap = Tap(s, k0 + Element<R>(0, true).k, k1);
    UNROLL for (int p = 0; p < R / 2; p++) {
      if (!INSIDE) pixels[p] = Pixel(s, k0 + Element<R>(p, false).k, k1);
      v[p] = within(s, pixels[p], tap) ? to_f32(x[offset(s, pixels[p], tap)]) : 0.0f;
    }
  }
};

// Part z of K gives the rows z*m.. of the result.
#define PART                                \
  const auto [i0, j0] = TileAt<S>(n);       \
  const u32 k0 = BLOCK_Z * part_size, k1 = min_(k0 + part_size, k)

// Pixels of the result [m] by channels [n] of it: x w^T.
template <class T> DEV void conv(const T *x, const T *w, const Windows &s, u32 m, u32 n, u32 k, u32 part_size) {
  constexpr int S = 64;
  __shared__ Tiles<S> tiles;
  PART;
  PictureLoader<true, T> la(x, s, i0, m, k1);
  Loader<S, true, true, T> lb({w, k}, j0, n, k1);
  Accumulators<S> acc;
  multiply<S, true, true, true, T>(acc, tiles, la, lb, k0, k1);
  finish(acc, tiles, m, n, i0, j0, BLOCK_Z * m);
}
// Puts a fragment of 16 pixels from i0 on by 8 channels. A lane has two neighbors of rows g
// and g+8; of two lanes, one gets four in row g, the other those in row g+8.
template <int U> DEV void put_fragment(const float (&v)[4], u32 i0, u32 m, u32 n) {
  const u32 g = (TID & 31) >> 2, t = TID & 3;
  const bool low = (t & 1) == 0;
  const u32 row = i0 + g + (low ? 0 : 8), col = (t >> 1) * 4;
  PLACE_LOAD(U, row, col, row < m && col < n);
  const float other[2] = {shuffle_xor(low ? v[2] : v[0], 1), shuffle_xor(low ? v[3] : v[1], 1)};
  const float whole[4] = {low ? v[0] : other[0], low ? v[1] : other[1], low ? other[0] : v[2], low ? other[1] : v[3]};
  PLACE_BODY(U, whole, row, col, row < m && col < n);
}

// conv for up to eight channels. A warp has 32 pixels, and its lanes hold both factors:
// a piece of eight of K from memory is, word by word, what a lane holds of fragments whose K
// is in another order, the same for both.
template <class T> DEV void conv_few(const T *x, const T *w, const Windows &s, u32 m, u32 n, u32 k) {
  const u32 lane = TID & 31, g = lane >> 2, t = lane & 3, i0 = BLOCK_X * 128 + (TID >> 5) * 32;
  Pixel pixels[4];
  UNROLL for (int p = 0; p < 4; p++) pixels[p] = Pixel(s, i0 + p * 8 + g, m);
  float acc[2][4] = {};
  for (u32 step = 0; step < k; step += 32) {
    const u32 k0 = step + 8 * t;
    const Tap tap(s, k0, k);
    u32 a[4][4], b[4];
    load_or_zero(b, w + (u64)g * k + k0, g < n && k0 < k);
    UNROLL for (int p = 0; p < 4; p++) load_or_zero(a[p], x + offset(s, pixels[p], tap), within(s, pixels[p], tap));
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int h = 0; h < 4; h += 2) mma<T>(acc[i], {a[2 * i][h], a[2 * i + 1][h], a[2 * i][h + 1], a[2 * i + 1][h + 1]}, b[h], b[h + 1]);
  }
  put_fragment<0>(acc[0], i0, m, n);
  put_fragment<1>(acc[1], i0 + 16, m, n);
}
template <int R, class T> DEV void sconv(const T *x, const T *w, const Windows &s, u32 m, u32 n, u32 k, u32 part_size) {
  constexpr int S = 16 * R;
  PART;
  FloatPictureLoader<R, true, T> la(x, s, i0, m, k1);
  MatrixLoader<R, T> lb{w, k, j0, n, k1, true};
  sgemm<R>(la, lb, m, n, i0, j0, k0, k1, BLOCK_Z * m);
}

// The gradient of the weights, channels of the result [m] by taps and channels of the
// picture [n]: dy^T x, with K the pixels of the result.
template <class T> DEV void conv_weight(const T *dy, const T *x, const Windows &s, u32 m, u32 n, u32 k, u32 part_size) {
  constexpr int S = 64;
  __shared__ Tiles<S> tiles;
  PART;
  Loader<S, false, true, T> la({dy, m}, i0, m, k1);
  PictureLoader<false, T> lb(x, s, j0, n, k1);
  Accumulators<S> acc;
  multiply<S, false, false, true, T>(acc, tiles, la, lb, k0, k1);
  finish(acc, tiles, m, n, i0, j0, BLOCK_Z * m);
}
template <int R, class T> DEV void sconv_weight(const T *dy, const T *x, const Windows &s, u32 m, u32 n, u32 k, u32 part_size) {
  constexpr int S = 16 * R;
  PART;
  MatrixLoader<R, T> la{dy, m, i0, m, k1, false};
  FloatPictureLoader<R, false, T> lb(x, s, j0, n, k1);
  sgemm<R>(la, lb, m, n, i0, j0, k0, k1, BLOCK_Z * m);
}

#define CONV(NAME, BOUNDS, CALL, F, T)                                                                                                              \
  KERNEL __launch_bounds__ BOUNDS NAME##_##F(const T *a, const T *b, Windows s, u32 m, u32 n, u32 k, u32 part_size, Operands) { CALL(a, b, s, m, n, k, part_size); }
#define CONVS(F, T)                                                                                                                                 \
  CONV(conv_64, (128, 4), conv, F, T) CONV(conv_weight_64, (128, 4), conv_weight, F, T)                                                             \
  KERNEL __launch_bounds__(128, 8) conv_few_##F(const T *a, const T *b, Windows s, u32 m, u32 n, u32 k, u32, Operands) { conv_few(a, b, s, m, n, k); }
#define SCONVS(F, T)                                                                          \
  CONV(sconv_64, (256, 2), sconv<4>, F, T) CONV(sconv_128, (256, 2), sconv<8>, F, T)          \
  CONV(sconv_weight_64, (256, 2), sconv_weight<4>, F, T) CONV(sconv_weight_128, (256, 2), sconv_weight<8>, F, T)
CONVS(f16, f16)
SCONVS(f32, float)
#if HAVE_BF16
CONVS(bf16, bf16)
#else
SCONVS(bf16, bf16)
#endif
