// Layer norm, RMS norm and softmax over rows, and their gradients. A row of up to
// 1024 elements, a multiple of four, stays in the registers of one warp, eight rows
// a block, and one of up to 4096 in those of a block of 256 threads; any other is read
// by a block for each pass. In the gradients of norms, whose threads also add up
// columns, a warp has rows of up to 512 elements.
#include "math.h"

// What works on a row: SIZE threads, each with K pieces of Q neighbors in
// registers, or K = 0: with any number of them, in memory.
template <int SIZE, int K, int Q> struct Group {
  static constexpr int size = SIZE, pieces = K, width = Q;
  static constexpr u32 rows = SIZE == 32 ? 8 : 1; // of a block at a time
  float *scratch;
  MEMBER u32 row() { return BLOCK_X * rows + among(); }
  MEMBER u32 among() { return SIZE == 32 ? TID >> 5 : 0; } // the rows at a time
  MEMBER u32 rank() { return SIZE == 32 ? TID & 31 : TID; }
  MEMBER float sum(float v) { return SIZE == 32 ? warp_sum(v) : block_sum(v, scratch); }
  MEMBER float top(float v) { return SIZE == 32 ? warp_max(v) : block_max(v, scratch); }
};
typedef Group<32, 2, 4> Warp256;
typedef Group<32, 8, 4> Warp1024;
typedef Group<256, 0, 1> Block; // a row of any length
typedef Group<32, 4, 4> Warp512;
typedef Group<256, 1, 4> Block1024;
typedef Group<256, 2, 4> Block2048;
typedef Group<256, 4, 4> Block4096;

// A row as the threads of a group hold it. each(f) calls f with the index of the
// first of Q neighbors and their values.
template <class G, class T> struct Row {
  static constexpr int Q = G::width, K = G::pieces;
  const T *x;
  u32 n, rank;
  float v[K > 0 ? K : 1][Q];
  MEMBER Row(const T *x, u32 n, u32 rank) : x(x), n(n), rank(rank) {
    UNROLL for (int k = 0; k < K; k++) {
      UNROLL for (int j = 0; j < Q; j++) v[k][j] = 0.0f;
      if (at(k) < n) load(v[k], x + at(k));
    }
  }
  MEMBER u32 at(u32 k) { return (k * G::size + rank) * Q; }
  template <class F> MEMBER void each(F f) {
    if constexpr (K > 0) {
      UNROLL for (int k = 0; k < K; k++) if (at(k) < n) f(at(k), v[k]);
    } else {
      for (u32 k = 0; at(k) < n; k++) {
        load(v[0], x + at(k));
        f(at(k), v[0]);
      }
    }
  }
};
#define EACH(j) UNROLL for (int j = 0; j < G::width; j++)

// y = (x - mean) * rstd * gamma + beta, or with RMS x * rstd * gamma.
template <class G, bool RMS, class T>
DEV void layer_norm(const T *x, const float *gamma, const float *beta, T *y, float *means, float *rstds, u32 rows, u32 n, float eps) {
  __shared__ float scratch[33];
  G g{scratch};
  constexpr int Q = G::width;
  const u32 row = g.row();
  if (row >= rows) return;
  Row<G, T> r(x + (u64)row * n, n, g.rank());
  float mean = 0.0f, square = 0.0f;
  if constexpr (!RMS) {
    r.each([&](u32, float (&v)[Q]) { EACH(j) mean += v[j]; });
    mean = g.sum(mean) / (float)n;
  }
  r.each([&](u32, float (&v)[Q]) { EACH(j) square = fma(v[j] - mean, v[j] - mean, square); });
  const float rstd = 1.0f / __builtin_sqrtf(g.sum(square) / (float)n + eps);
  y += (u64)row * n;
  r.each([&](u32 i, float (&v)[Q]) {
    float scale[Q], shift[Q], z[Q];
    load(scale, gamma + i);
    if constexpr (!RMS) load(shift, beta + i);
    EACH(j) z[j] = RMS ? v[j] * rstd * scale[j] : (v[j] - mean) * rstd * scale[j] + shift[j];
    store(y + i, z);
  });
  if (g.rank() == 0) {
    means[row] = mean;
    rstds[row] = rstd;
  }
}

// The sums of a row that its gradient needs.
struct RowSums {
  float a, b;
  MEMBER RowSums(float a, float b) : a(a), b(b) {}
  MEMBER explicit RowSums(int) : a(0.0f), b(0.0f) {}
  RowSums() = default;
  MEMBER void operator+=(const RowSums &o) { a += o.a, b += o.b; }
};
DEV RowSums shuffle_xor(const RowSums &v, int lanes) { return {shuffle_xor(v.a, lanes), shuffle_xor(v.b, lanes)}; }

// dx = rstd * (dy gamma - mean(dy gamma) - z mean(dy gamma z)), z = (x - mean) rstd;
// with RMS without the first mean. Where add is given it is added.
template <class G, bool RMS, class T, class U>
DEV void layer_norm_grad(const U *dy, const T *x, const float *gamma, const float *means, const float *rstds, const T *add, T *dx, u32 rows, u32 n) {
  __shared__ float scratch[33];
  G g{scratch};
  constexpr int Q = G::width;
  const u32 row = g.row();
  if (row >= rows) return;
  Row<G, T> r(x + (u64)row * n, n, g.rank());
  const float mean = means[row], rstd = rstds[row];
  dy += (u64)row * n;
  float a = 0.0f, b = 0.0f;
  r.each([&](u32 i, float (&v)[Q]) {
    float d[Q], scale[Q];
    load(d, dy + i);
    load(scale, gamma + i);
    EACH(j) {
      a += d[j] * scale[j];
      b = fma(d[j] * scale[j], (v[j] - mean) * rstd, b);
    }
  });
  a = RMS ? 0.0f : g.sum(a) / (float)n;
  b = g.sum(b) / (float)n;
  dx += (u64)row * n;
  if (add) add += (u64)row * n;
  r.each([&](u32 i, float (&v)[Q]) {
    float d[Q], scale[Q], z[Q], w[Q];
    load(d, dy + i);
    load(scale, gamma + i);
    EACH(j) z[j] = rounded<T>(rstd * (d[j] * scale[j] - a - (v[j] - mean) * rstd * b));
    if (add) {
      load(w, add + i);
      EACH(j) z[j] += w[j];
    }
    store(dx + i, z);
  });
}

// The same, with the sums over the rows of a part, size rows: dgamma of dy z, dbeta of dy;
// each is [parts, n].
template <class G, bool RMS, class T, class U>
DEV void layer_norm_grads(const U *dy, const T *x, const float *gamma, const float *means, const float *rstds, const T *add, T *dx, float *dgamma, float *dbeta, u32 rows, u32 n, u32 size) {
  constexpr int Q = G::width, K = G::pieces;
  __shared__ RowSums scratch[33];
  G g{};
  const u32 end = min_(rows, (BLOCK_X + 1) * size);
  float scale[K][Q], dg[K][Q], db[K][Q];
  UNROLL for (int k = 0; k < K; k++) EACH(j) scale[k][j] = dg[k][j] = db[k][j] = 0.0f;
  const u32 first = g.rank() * Q; // its pieces are size * Q apart
#define PIECES(k) UNROLL for (int k = 0; k < K; k++) if (const u32 i = first + k * G::size * Q; i < n)
  PIECES(k) load(scale[k], gamma + i);
  NO_UNROLL for (u32 row = BLOCK_X * size + g.among(); row < end; row += G::rows) {
    const u64 at = (u64)row * n;
    float v[K][Q], d[K][Q];
    UNROLL for (int k = 0; k < K; k++) EACH(j) v[k][j] = d[k][j] = 0.0f;
    PIECES(k) load(v[k], x + at + i);
    PIECES(k) load(d[k], dy + at + i);
    const float mean = means[row], rstd = rstds[row];
    RowSums s(0);
    UNROLL for (int k = 0; k < K; k++) EACH(j) {
      const float z = (v[k][j] - mean) * rstd;
      dg[k][j] = fma(d[k][j], z, dg[k][j]);
      db[k][j] += d[k][j];
      v[k][j] = z;
      d[k][j] *= scale[k][j];
      s += {d[k][j], d[k][j] * z};
    }
    s = G::size == 32 ? warp_sum(s) : block_sum(s, scratch);
    const float a = RMS ? 0.0f : s.a / (float)n, b = s.b / (float)n;
    PIECES(k) {
      float z[Q], w[Q];
      EACH(j) z[j] = rounded<T>(rstd * (d[k][j] - a - v[k][j] * b));
      if (add) {
        load(w, add + at + i);
        EACH(j) z[j] += w[j];
      }
      store(dx + at + i, z);
    }
  }
  dgamma += (u64)BLOCK_X * n;
  if (!RMS) dbeta += (u64)BLOCK_X * n;
  if constexpr (G::rows == 1) {
    PIECES(k) {
      store(dgamma + i, dg[k]);
      if (!RMS) store(dbeta + i, db[k]);
    }
  } else { // of one warp after the other
    __shared__ ALIGNED(16) float sums[2][32 * K * Q];
    for (u32 w = 0; w < G::rows; w++) {
      if (g.among() == w) PIECES(k) {
        if (w) {
          float a[Q], b[Q];
          load(a, sums[0] + i);
          load(b, sums[1] + i);
          EACH(j) dg[k][j] = a[j] + dg[k][j], db[k][j] = b[j] + db[k][j];
        }
        store(sums[0] + i, dg[k]);
        store(sums[1] + i, db[k]);
      }
      SYNC();
    }
    for (u32 i = TID; i < n; i += 256) {
      dgamma[i] = sums[0][i];
      if (!RMS) dbeta[i] = sums[1][i];
    }
  }
#undef PIECES
}

// Adds up parts: dgamma, and along y dbeta. A block has 32 columns and 32 interleaved series
// of parts.
KERNEL __launch_bounds__(1024) layer_norm_sums(const float *gammas, const float *betas, float *dgamma, float *dbeta, u32 parts, u32 n) {
  __shared__ float scratch[32][33];
  const float *const from = BLOCK_Y ? betas : gammas;
  float *const to = BLOCK_Y ? dbeta : dgamma;
  const u32 lane = TID & 31, series = TID >> 5, col = BLOCK_X * 32 + lane;
  float s = 0.0f;
  if (col < n)
    for (u32 p = series; p < parts; p += 32) s += from[(u64)p * n + col];
  scratch[series][lane] = s;
  SYNC();
  s = warp_sum(scratch[lane][series]);
  if (lane == 0 && BLOCK_X * 32 + series < n) to[BLOCK_X * 32 + series] = s;
}

// The sums over the rows of a part: dgamma of dy z, dbeta of dy; each is [parts, n].
// A block has 32 columns and 8 interleaved series of rows.
template <class T, class U>
DEV void layer_norm_columns(const U *dy, const T *x, const float *means, const float *rstds, float *dgamma, float *dbeta, u32 rows, u32 n, u32 size) {
  __shared__ float scratch[2][8][33];
  const u32 lane = TID & 31, series = TID >> 5, col = BLOCK_X * 32 + lane, part = BLOCK_Y;
  const u32 end = min_(rows, (part + 1) * size);
  float a = 0.0f, b = 0.0f;
  if (col < n)
    for (u32 r = part * size + series; r < end; r += 8) {
      float d = to_f32(dy[(u64)r * n + col]);
      a = fma(d, (to_f32(x[(u64)r * n + col]) - means[r]) * rstds[r], a);
      b += d;
    }
  scratch[0][series][lane] = a;
  scratch[1][series][lane] = b;
  SYNC();
  if (series < 2 && col < n) {
    float v = scratch[series][0][lane];
    UNROLL for (int i = 1; i < 8; i++) v += scratch[series][i][lane];
    if (series == 0) dgamma[(u64)part * n + col] = v;
    else if (dbeta) dbeta[(u64)part * n + col] = v;
  }
}

// y = e^(x - max) / sum.
template <class G> DEV void softmax(const float *x, float *y, u32 rows, u32 n) {
  __shared__ float scratch[33];
  G g{scratch};
  constexpr int Q = G::width;
  const u32 row = g.row();
  if (row >= rows) return;
  Row<G, float> r(x + (u64)row * n, n, g.rank());
  float m = -__builtin_inff(), s = 0.0f;
  r.each([&](u32, float (&v)[Q]) { EACH(j) m = v[j] > m || v[j] != v[j] ? v[j] : m; });
  m = g.top(m);
  r.each([&](u32, float (&v)[Q]) { EACH(j) s += exp_(v[j] - m); });
  s = g.sum(s);
  y += (u64)row * n;
  r.each([&](u32 i, float (&v)[Q]) {
    float z[Q];
    EACH(j) z[j] = exp_(v[j] - m) / s;
    store(y + i, z);
  });
}

// dx = y (dy - sum(dy y)).
template <class G> DEV void softmax_grad(const float *y, const float *dy, float *dx, u32 rows, u32 n) {
  __shared__ float scratch[33];
  G g{scratch};
  constexpr int Q = G::width;
  const u32 row = g.row();
  if (row >= rows) return;
  Row<G, float> r(y + (u64)row * n, n, g.rank());
  dy += (u64)row * n;
  float s = 0.0f;
  r.each([&](u32 i, float (&v)[Q]) {
    float d[Q];
    load(d, dy + i);
    EACH(j) s = fma(v[j], d[j], s);
  });
  s = g.sum(s);
  dx += (u64)row * n;
  r.each([&](u32 i, float (&v)[Q]) {
    float d[Q];
    load(d, dy + i);
    EACH(j) d[j] = v[j] * (d[j] - s);
    store(dx + i, d);
  });
}

// FOR_GROUPS(F, ...) expands F(suffix, group, ...).
#define FOR_GROUPS(F, ...)                                                                                                          \
  F(w256, Warp256, __VA_ARGS__) F(w1024, Warp1024, __VA_ARGS__) F(b2048, Block2048, __VA_ARGS__) F(b4096, Block4096, __VA_ARGS__)   \
  F(block, Block, __VA_ARGS__)
#define BOUNDS __launch_bounds__(256)

#define NORM_OF(NAME, RMS, W, G, S, T)                                                                                              \
  KERNEL BOUNDS NAME##_##W##_##S(const T *x, const float *gamma, const float *beta, T *y, float *means, float *rstds, u32 rows, u32 n, float eps) { \
    layer_norm<G, RMS>(x, gamma, beta, y, means, rstds, rows, n, eps);                                                              \
  }
#define NORM(W, G, S, T) NORM_OF(layer_norm, false, W, G, S, T) NORM_OF(rms_norm, true, W, G, S, T)
#define NORM_GRAD(NAME, RMS, S, T, R, U)                                                                                            \
  KERNEL BOUNDS NAME##_block_##S##_##R(const U *dy, const T *x, const float *gamma, const float *means, const float *rstds, const T *add, T *dx, u32 rows, u32 n) { \
    layer_norm_grad<Block, RMS>(dy, x, gamma, means, rstds, add, dx, rows, n);                                                      \
  }
#define NORM_GRADS_OF(NAME, RMS, W, G, S, T, R, U)                                                                                  \
  KERNEL BOUNDS NAME##_##W##_##S##_##R(const U *dy, const T *x, const float *gamma, const float *means, const float *rstds, const T *add, T *dx, float *dgamma, float *dbeta, u32 rows, u32 n, u32 size) { \
    layer_norm_grads<G, RMS>(dy, x, gamma, means, rstds, add, dx, dgamma, dbeta, rows, n, size);                                    \
  }
#define NORM_GRADS(W, G, S, T, R, U) NORM_GRADS_OF(layer_norm_grad, false, W, G, S, T, R, U) NORM_GRADS_OF(rms_norm_grad, true, W, G, S, T, R, U)
#define NORM_COLUMNS(S, T, R, U)                                                                                                    \
  KERNEL BOUNDS layer_norm_columns_##S##_##R(const U *dy, const T *x, const float *means, const float *rstds, float *dgamma, float *dbeta, u32 rows, u32 n, u32 size) { \
    layer_norm_columns(dy, x, means, rstds, dgamma, dbeta, rows, n, size);                                                          \
  }
#define SOFTMAX(W, G, _)                                                                                                            \
  KERNEL BOUNDS softmax_##W(const float *x, float *y, u32 rows, u32 n) { softmax<G>(x, y, rows, n); }                               \
  KERNEL BOUNDS softmax_grad_##W(const float *y, const float *dy, float *dx, u32 rows, u32 n) { softmax_grad<G>(y, dy, dx, rows, n); }

#define NORMS(S, T) FOR_GROUPS(NORM, S, T)
#define GRADS(S, T, R, U)                                                                                                           \
  NORM_GRADS(w512, Warp512, S, T, R, U) NORM_GRADS(b1024, Block1024, S, T, R, U) NORM_GRADS(b2048, Block2048, S, T, R, U) NORM_GRADS(b4096, Block4096, S, T, R, U) \
  NORM_GRAD(layer_norm_grad, false, S, T, R, U) NORM_GRAD(rms_norm_grad, true, S, T, R, U) NORM_COLUMNS(S, T, R, U)
FOR_FLOATS(NORMS)
// The formats of x and dy.
GRADS(f32, float, f32, float) GRADS(f16, f16, f16, f16) GRADS(bf16, bf16, bf16, bf16) GRADS(f16, f16, f32, float) GRADS(bf16, bf16, f32, float)
FOR_GROUPS(SOFTMAX, )
