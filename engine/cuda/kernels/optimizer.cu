// Optimizers, and the norm of all gradients.
#include "math.h"

// How a weight is kept; see graph.Rounding.
enum Rounding { EXACT, STOCHASTIC, COMPENSATED };
template <int R> struct Weight { typedef bf16 type; };
template <> struct Weight<EXACT> { typedef float type; };
template <int R> struct Rest {};
template <> struct Rest<COMPENSATED> { bf16 *p; };
// The random bits of elements, from the block of eight that the first has; see graph.Rounding.
struct Bits {
  u32 stream, first;
};
template <int R> struct Random {};
template <> struct Random<STOCHASTIC> { Bits bits; };
#define NOTHING_IF_EMPTY [[no_unique_address]]

// x with the 16 bits that are dropped chosen by as many random ones.
DEV float stochastic(float x, u32 random) { return x != x ? x : bits_f32((f32_bits(x) + random) & 0xffff0000u); }

// What is added to the number of an update for second moments.
enum : u32 { SECOND_MOMENTS = 1u << 31 };

// The random words of eight elements, from element i on.
DEV void random_words(u32 (&c)[4], const Bits &b, u64 i, u64 seed, u32 t) {
  const u64 block = b.first + i / 8;
  c[0] = (u32)block, c[1] = (u32)(block >> 32), c[2] = b.stream, c[3] = t;
  philox(c, (u32)seed, (u32)(seed >> 32));
}
// Those of element k of the eight.
DEV u32 half(const u32 (&c)[4], int k) { return c[k / 2] >> 16 * (k & 1) & 0xffff; }

// What element i of a weight is for a step, and how the step leaves it.
template <int R, class P> DEV float weight(const P &p, u64 i) {
  float w = to_f32(p.w[i]);
  if constexpr (R == COMPENSATED) w += to_f32(p.rest.p[i]);
  return w;
}
template <int R, class P> DEV void keep(const P &p, u64 i, float x, u64 seed, const float *t) {
  if constexpr (R == STOCHASTIC) {
    const Bits &b = p.random.bits;
    x = stochastic(x, random_word((u64)b.first * 4 + i / 2, (u32)seed, (u32)(seed >> 32), b.stream, (u32)t[0]) >> 16 * (i & 1) & 0xffff);
  }
  p.w[i] = from_f32<typename Weight<R>::type>(x);
  if constexpr (R == COMPENSATED) p.rest.p[i] = from_f32<bf16>(x - to_f32(p.w[i]));
}

// Where AdamW leaves a weight in 16 bits too, or null.
template <int R> struct Half {};
template <> struct Half<EXACT> { void *p; };

// A weight, its gradient and its moments; its blocks begin with first. G is the format of a
// gradient, float or bf16.
template <int R, class G> struct Parameter {
  typename Weight<R>::type *w;
  G *g;
  float *m, *v;
  NOTHING_IF_EMPTY Rest<R> rest;
  NOTHING_IF_EMPTY Half<R> half;
  u64 n;
  u32 first;
  float decay, lr_scale;
  NOTHING_IF_EMPTY Random<R> random;
};

// One step for every parameter of a table; see graph.AdamW. rest is 1-beta, and
// log_beta the logarithm of beta, so that 1-beta^t does not cancel. to_bf16 is the format
// of weights in 16 bits: bf16, not half. Four elements a thread.
template <int R, class G> DEV void adamw_step(const Parameter<R, G> *table, u32 count, const float *lr, const float *gscale, const float *t, const float *ok, float beta1, float beta2,
                                     float rest1, float rest2, float log_beta1, float log_beta2, float eps, u32 zero_grad, u64 seed, u32 to_bf16) {
  const Parameter<R, G> p = entry(table, count, BLOCK_X);
  const bool apply = ok[0] != 0.0f;
  const float rate = lr[0] * p.lr_scale, scale = gscale[0];
  const float l1 = t[0] * log_beta1, l2 = t[0] * log_beta2;
  const float c1 = l1 < -26.0f ? 1.0f : -expm1_(l1), c2 = l2 < -26.0f ? 1.0f : -expm1_(l2);
  const u64 at = ((u64)(BLOCK_X - p.first) * 256 + TID) * 4;
  if (at >= p.n) return;
  const int left = p.n - at < 4 ? (int)(p.n - at) : 4;
  float w[4], g[4], m[4], v[4];
  auto get = [&](float (&x)[4], const auto *from) {
    if (left == 4) load(x, from + at);
    else UNROLL for (int k = 0; k < 4; k++) x[k] = k < left ? to_f32(from[at + k]) : 0.0f;
  };
  auto put = [&]<class T>(T *to, const float (&x)[4]) {
    if (left == 4) store(to + at, x);
    else UNROLL for (int k = 0; k < 4; k++) if (k < left) to[at + k] = from_f32<T>(x[k]);
  };
  if (apply) {
    get(w, p.w);
    if constexpr (R == COMPENSATED) {
      float r[4];
      get(r, p.rest.p);
      UNROLL for (int k = 0; k < 4; k++) w[k] += r[k];
    }
    get(g, p.g);
    get(m, p.m);
    get(v, p.v);
    UNROLL for (int k = 0; k < 4; k++) {
      const float d = g[k] * scale;
      m[k] = fma(beta1, m[k], rest1 * d);
      v[k] = fma(beta2, v[k], rest2 * d * d);
      w[k] -= rate * p.decay * w[k];
      w[k] -= rate * (m[k] / c1) / (__builtin_sqrtf(v[k] / c2) + eps);
    }
    if constexpr (R == STOCHASTIC) { // half a block of random words
      u32 c[4];
      random_words(c, p.random.bits, at, seed, (u32)t[0]);
      const u32 all = at & 4 ? ~0u : 0u; // a choice of elements would be one by address, in memory
      const u32 mine[4] = {c[0] ^ ((c[0] ^ c[2]) & all), c[1] ^ ((c[1] ^ c[3]) & all)};
      UNROLL for (int k = 0; k < 4; k++) w[k] = stochastic(w[k], half(mine, k));
    }
    put(p.w, w);
    if constexpr (R == COMPENSATED) {
      UNROLL for (int k = 0; k < 4; k++) w[k] -= rounded<bf16>(w[k]);
      put(p.rest.p, w);
    }
    put(p.m, m);
    put(p.v, v);
    if constexpr (R == EXACT) {
      if (p.half.p) { // in one format or the other, by one store: two took registers that are not there
        u16 *to = (u16 *)p.half.p + at, h[4];
        UNROLL for (int k = 0; k < 4; k++) h[k] = to_bf16 ? from_f32<bf16>(w[k]).bits : from_f32<f16>(w[k]).bits;
        if (left == 4) *(u64 *)to = h[0] | (u32)h[1] << 16 | (u64)(h[2] | (u32)h[3] << 16) << 32;
        else UNROLL for (int k = 0; k < 4; k++) if (k < left) to[k] = h[k];
      }
    }
  }
  if (zero_grad) {
    UNROLL for (int k = 0; k < 4; k++) g[k] = 0.0f;
    put(p.g, g);
  }
}

#define ADAMW(NAME, R, G, ...) \
  KERNEL __launch_bounds__(256) NAME(const Parameter<R, G> *table, u32 count, const float *lr, const float *gscale, const float *t, const float *ok, float beta1, float beta2, float rest1, \
                                     float rest2, float log_beta1, float log_beta2, float eps, u32 zero_grad __VA_OPT__(,) __VA_ARGS__) { \
    adamw_step<R>(table, count, lr, gscale, t, ok, beta1, beta2, rest1, rest2, log_beta1, log_beta2, eps, zero_grad, LAST_##R); \
  }
#define LAST_EXACT 0, to_bf16
#define LAST_STOCHASTIC seed, 0
#define LAST_COMPENSATED 0, 0
ADAMW(adamw, EXACT, float, u32 to_bf16)
ADAMW(adamw_stochastic, STOCHASTIC, float, u64 seed)
ADAMW(adamw_compensated, COMPENSATED, float)
ADAMW(adamw_bf16, EXACT, bf16, u32 to_bf16)
ADAMW(adamw_stochastic_bf16, STOCHASTIC, bf16, u64 seed)
ADAMW(adamw_compensated_bf16, COMPENSATED, bf16)

// Lion; see graph.Lion.
template <int R, class G> struct LionParameter {
  typename Weight<R>::type *w;
  G *g;
  float *m;
  NOTHING_IF_EMPTY Rest<R> rest;
  u64 n;
  u32 first;
  float decay, lr_scale;
  NOTHING_IF_EMPTY Random<R> random;
};

template <int R, class G> DEV void lion_step(const LionParameter<R, G> *table, u32 count, const float *lr, const float *gscale, const float *t, const float *ok, float beta1, float beta2, float rest1,
                                    float rest2, u32 zero_grad, u64 seed) {
  const LionParameter<R, G> p = entry(table, count, BLOCK_X);
  const float rate = lr[0] * p.lr_scale, scale = gscale[0];
  const u64 at = ((u64)(BLOCK_X - p.first) * 256 + TID) * 4;
  for (u64 i = at; i < at + 4 && i < p.n; i++) {
    if (ok[0] != 0.0f) {
      const float g = to_f32(p.g[i]) * scale, m = p.m[i], w = weight<R>(p, i);
      const float c = fma(beta1, m, rest1 * g);
      keep<R>(p, i, w - rate * p.decay * w - (c > 0.0f ? rate : c < 0.0f ? -rate : 0.0f), seed, t);
      p.m[i] = fma(beta2, m, rest2 * g);
    }
    if (zero_grad) p.g[i] = from_f32<G>(0.0f);
  }
}

#define LION(NAME, R, G) \
  KERNEL __launch_bounds__(256) NAME(const LionParameter<R, G> *table, u32 count, const float *lr, const float *gscale, const float *ok, float beta1, float beta2, float rest1, float rest2, u32 zero_grad) { \
    lion_step<R>(table, count, lr, gscale, ok, ok, beta1, beta2, rest1, rest2, zero_grad, 0); \
  }
#define LION_STOCHASTIC(NAME, G) \
  KERNEL __launch_bounds__(256) NAME(const LionParameter<STOCHASTIC, G> *table, u32 count, const float *lr, const float *gscale, const float *t, const float *ok, float beta1, float beta2, float rest1, \
                                     float rest2, u32 zero_grad, u64 seed) { \
    lion_step<STOCHASTIC>(table, count, lr, gscale, t, ok, beta1, beta2, rest1, rest2, zero_grad, seed); \
  }
LION(lion, EXACT, float)
LION_STOCHASTIC(lion_stochastic, float)
LION(lion_compensated, COMPENSATED, float)
LION(lion_bf16, EXACT, bf16)
LION_STOCHASTIC(lion_stochastic_bf16, bf16)
LION(lion_compensated_bf16, COMPENSATED, bf16)

// A step along the gradient; see graph.SGD.
template <int R, class G> struct SGDParameter {
  typename Weight<R>::type *w;
  G *g;
  NOTHING_IF_EMPTY Rest<R> rest;
  u64 n;
  u32 first;
  float decay, lr_scale;
  NOTHING_IF_EMPTY Random<R> random;
};

template <int R, class G> DEV void sgd_step(const SGDParameter<R, G> *table, u32 count, const float *lr, const float *gscale, const float *t, const float *ok, u32 zero_grad, u64 seed) {
  const SGDParameter<R, G> p = entry(table, count, BLOCK_X);
  const float rate = lr[0] * p.lr_scale, scale = gscale[0];
  const u64 at = ((u64)(BLOCK_X - p.first) * 256 + TID) * 4;
  for (u64 i = at; i < at + 4 && i < p.n; i++) {
    if (ok[0] != 0.0f) {
      const float w = weight<R>(p, i);
      keep<R>(p, i, w - rate * p.decay * w - rate * (to_f32(p.g[i]) * scale), seed, t);
    }
    if (zero_grad) p.g[i] = from_f32<G>(0.0f);
  }
}

#define SGD(NAME, R, G) \
  KERNEL __launch_bounds__(256) NAME(const SGDParameter<R, G> *table, u32 count, const float *lr, const float *gscale, const float *ok, u32 zero_grad) { \
    sgd_step<R>(table, count, lr, gscale, ok, ok, zero_grad, 0); \
  }
#define SGD_STOCHASTIC(NAME, G) \
  KERNEL __launch_bounds__(256) NAME(const SGDParameter<STOCHASTIC, G> *table, u32 count, const float *lr, const float *gscale, const float *t, const float *ok, u32 zero_grad, u64 seed) { \
    sgd_step<STOCHASTIC>(table, count, lr, gscale, t, ok, zero_grad, seed); \
  }
SGD(sgd, EXACT, float)
SGD_STOCHASTIC(sgd_stochastic, float)
SGD(sgd_compensated, COMPENSATED, float)
SGD(sgd_bf16, EXACT, bf16)
SGD_STOCHASTIC(sgd_stochastic_bf16, bf16)
SGD(sgd_compensated_bf16, COMPENSATED, bf16)

// AdamW with moments in 8 bits; see graph.AdamW8bit. A warp has a block of 256 elements,
// eight neighbors a lane.
template <int R, class G> struct Parameter8bit {
  typename Weight<R>::type *w;
  G *g;
  unsigned char *m, *v;
  float *m_scale, *v_scale;
  NOTHING_IF_EMPTY Rest<R> rest;
  u64 n;
  u32 first;
  float decay, lr_scale;
  Bits bits;
};

// The numbers that codes stand for, and the largest that each code is given to, before
// stochastic rounding.
struct Book {
  float values[256], above[256];
};

DEV u32 code_of(const Book &b, float x) {
  u32 lo = 0;
  UNROLL for (u32 step = 128; step > 0; step >>= 1) if (x > b.above[lo + step - 1]) lo += step;
  return lo;
}
// The code above or below x, which is not negative, by 16 random bits. It is not that of 0 if
// x is above 0.
DEV u32 stochastic_code(const Book &b, float x, u32 random) {
  u32 code = code_of(b, x);
  const float part = (float)random * 0x1p-16f + 0x1p-17f, way = (b.above[code] - b.values[code]) * part;
  if (x >= b.values[code] + way) code++;
  return x > 0.0f && code == 0 ? 1 : code;
}

// Up to eight elements, and zeros for those from left on. With these for adamw's four, ptxas
// spills registers there.
template <class T> DEV void get8(float (&x)[8], const T *from, int left) {
  if (left >= 8) load(x, from);
  else UNROLL for (int k = 0; k < 8; k++) x[k] = k < left ? to_f32(from[k]) : 0.0f;
}
template <class T> DEV void put8(T *to, const float (&x)[8], int left) {
  if (left >= 8) store(to, x);
  else UNROLL for (int k = 0; k < 8; k++) if (k < left) to[k] = from_f32<T>(x[k]);
}
DEV u64 get_codes(const unsigned char *from, int left) {
  if (left >= 8) return *(const u64 *)from;
  u64 all = 0;
  UNROLL for (int k = 0; k < 8; k++) if (k < left) all |= (u64)from[k] << 8 * k;
  return all;
}
DEV void put_codes(unsigned char *to, u64 all, int left) {
  if (left >= 8) *(u64 *)to = all;
  else UNROLL for (int k = 0; k < 8; k++) if (k < left) to[k] = (unsigned char)(all >> 8 * k);
}

template <int R, class G> DEV void adamw8bit_step(const Parameter8bit<R, G> *table, u32 count, const float *lr, const float *gscale, const float *t, const float *ok, float beta1, float beta2,
                                         float rest1, float rest2, float log_beta1, float log_beta2, float eps, const float *books, u32 zero_grad, u64 seed) {
  __shared__ Book book[2];
  for (u32 i = TID; i < 1024; i += 256) ((float *)book)[i] = books[i];
  __syncthreads();
  const Parameter8bit<R, G> p = entry(table, count, BLOCK_X);
  const bool apply = ok[0] != 0.0f;
  const float rate = lr[0] * p.lr_scale, scale = gscale[0];
  const float l1 = t[0] * log_beta1, l2 = t[0] * log_beta2;
  const float c1 = l1 < -26.0f ? 1.0f : -expm1_(l1), c2 = l2 < -26.0f ? 1.0f : -expm1_(l2);
  const u64 block = (u64)(BLOCK_X - p.first) * 8 + TID / 32, at = block * 256 + TID % 32 * 8;
  if (block * 256 >= p.n) return; // the whole warp
  const int left = at >= p.n ? 0 : p.n - at < 8 ? (int)(p.n - at) : 8;
  float x[8];
  if (apply) {
    float w[8], m[8], v[8], m_top = 0.0f, v_top = 0.0f;
    const float m_old = p.m_scale[block], v_old = p.v_scale[block];
    const u64 m_codes = get_codes(p.m + at, left), v_codes = get_codes(p.v + at, left);
    get8(w, p.w + at, left);
    if constexpr (R == COMPENSATED) {
      get8(x, p.rest.p + at, left);
      UNROLL for (int k = 0; k < 8; k++) w[k] += x[k];
    }
    get8(x, p.g + at, left);
    UNROLL for (int k = 0; k < 8; k++) {
      const float g = x[k] * scale;
      m[k] = fma(beta1, book[0].values[m_codes >> 8 * k & 255] * m_old, rest1 * g);
      v[k] = fma(beta2, book[1].values[v_codes >> 8 * k & 255] * v_old, rest2 * g * g);
      w[k] -= rate * p.decay * w[k];
      w[k] -= rate * (m[k] / c1) / (__builtin_sqrtf(v[k] / c2) + eps);
      if (k >= left) m[k] = v[k] = 0.0f;
      m_top = __builtin_fmaxf(m_top, __builtin_fabsf(m[k]));
      v_top = __builtin_fmaxf(v_top, v[k]);
    }
    u32 random[4];
    if constexpr (R == STOCHASTIC) {
      random_words(random, p.bits, at, seed, (u32)t[0]);
      UNROLL for (int k = 0; k < 8; k++) w[k] = stochastic(w[k], half(random, k));
    }
    put8(p.w + at, w, left);
    if constexpr (R == COMPENSATED) {
      UNROLL for (int k = 0; k < 8; k++) w[k] -= rounded<bf16>(w[k]);
      put8(p.rest.p + at, w, left);
    }
    m_top = warp_max(m_top);
    v_top = warp_max(v_top);
    warp_sync(); // all lanes have read the scales that the first replaces
    if (TID % 32 == 0) {
      p.m_scale[block] = m_top;
      p.v_scale[block] = v_top;
    }
    const float m_inv = m_top > 0.0f ? 1.0f / m_top : 0.0f, v_inv = v_top > 0.0f ? 1.0f / v_top : 0.0f;
    random_words(random, p.bits, at, seed, (u32)t[0] | SECOND_MOMENTS);
    u64 m_new = 0, v_new = 0;
    UNROLL for (int k = 0; k < 8; k++) {
      m_new |= (u64)code_of(book[0], m[k] * m_inv) << 8 * k;
      v_new |= (u64)stochastic_code(book[1], v[k] * v_inv, half(random, k)) << 8 * k;
    }
    put_codes(p.m + at, m_new, left);
    put_codes(p.v + at, v_new, left);
  }
  if (zero_grad) {
    UNROLL for (int k = 0; k < 8; k++) x[k] = 0.0f;
    put8(p.g + at, x, left);
  }
}

// Told of two blocks a multiprocessor, ptxas takes the registers that it needs; told of
// none, it spills one for sm_90.
#define ADAMW8BIT(NAME, R, G) \
  KERNEL __launch_bounds__(256, 2) NAME(const Parameter8bit<R, G> *table, u32 count, const float *lr, const float *gscale, const float *t, const float *ok, float beta1, float beta2, float rest1, \
                                        float rest2, float log_beta1, float log_beta2, float eps, const float *books, u32 zero_grad, u64 seed) { \
    adamw8bit_step<R>(table, count, lr, gscale, t, ok, beta1, beta2, rest1, rest2, log_beta1, log_beta2, eps, books, zero_grad, seed); \
  }
ADAMW8BIT(adamw8bit, EXACT, float)
ADAMW8BIT(adamw8bit_stochastic, STOCHASTIC, float)
ADAMW8BIT(adamw8bit_compensated, COMPENSATED, float)
ADAMW8BIT(adamw8bit_bf16, EXACT, bf16)
ADAMW8BIT(adamw8bit_stochastic_bf16, STOCHASTIC, bf16)
ADAMW8BIT(adamw8bit_compensated_bf16, COMPENSATED, bf16)

// Adafactor; see graph.Adafactor. Blocks have tiles of a matrix: 64 rows, eight a warp,
// by 128 columns, four a lane, 32 apart. The matrices of a weight are BLOCKS_Z apart. Of
// a weight that is not factored, row is null and the means of the one row are v.
enum { TILE_ROWS = 64, TILE_COLUMNS = 128 };

// The sums of squares of a tile's rows, [batch, rows, tiles], and of its columns,
// [batch, tiles, columns].
template <class G> DEV void sums_of(const G *g, const float *gscale, const float *ok, float *row_sums, float *column_sums, u32 batch, u32 rows, u32 columns) {
  __shared__ float sums[8][TILE_COLUMNS];
  const u32 lane = TID % 32, warp = TID / 32;
  const bool apply = ok[0] != 0.0f;
  const float scale = gscale[0];
  for (u32 z = BLOCK_Z; z < batch; z += BLOCKS_Z) {
    float column[4] = {};
    UNROLL for (u32 k = 0; k < 8; k++) {
      const u32 r = BLOCK_Y * TILE_ROWS + warp * 8 + k;
      if (r >= rows) break; // the whole warp
      float s = 0.0f;
      UNROLL for (u32 q = 0; q < 4; q++) {
        const u32 c = BLOCK_X * TILE_COLUMNS + lane + 32 * q;
        if (apply && c < columns) {
          float d = to_f32(g[((u64)z * rows + r) * columns + c]) * scale;
          d *= d;
          s += d;
          column[q] += d;
        }
      }
      s = warp_sum(s);
      if (lane == 0) row_sums[((u64)z * rows + r) * BLOCKS + BLOCK_X] = s;
    }
    UNROLL for (u32 q = 0; q < 4; q++) sums[warp][lane + 32 * q] = column[q];
    SYNC();
    const u32 c = BLOCK_X * TILE_COLUMNS + TID;
    if (TID < TILE_COLUMNS && c < columns) {
      float s = sums[0][TID];
      UNROLL for (int w = 1; w < 8; w++) s += sums[w][TID];
      column_sums[((u64)z * BLOCKS_Y + BLOCK_Y) * columns + c] = s;
    }
    SYNC(); // sums is read
  }
}
KERNEL __launch_bounds__(256) adafactor_sums(const float *g, const float *gscale, const float *ok, float *row_sums, float *column_sums, u32 batch, u32 rows, u32 columns) {
  sums_of(g, gscale, ok, row_sums, column_sums, batch, rows, columns);
}
KERNEL __launch_bounds__(256) adafactor_sums_bf16(const bf16 *g, const float *gscale, const float *ok, float *row_sums, float *column_sums, u32 batch, u32 rows, u32 columns) {
  sums_of(g, gscale, ok, row_sums, column_sums, batch, rows, columns);
}

// The next means of rows and columns, one a thread.
KERNEL __launch_bounds__(256) adafactor_moments(const float *row_sums, const float *column_sums, float *row, float *column, const float *t, const float *ok, u32 batch, u32 rows, u32 columns,
                                                float decay, float eps) {
  if (ok[0] == 0.0f) return;
  const float rest = exp_(-decay * log_(t[0]));
  const u32 i = BLOCK_X * 256 + TID, down = (rows + TILE_ROWS - 1) / TILE_ROWS, across = (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
  for (u32 z = BLOCK_Z; z < batch; z += BLOCKS_Z) {
    float s = 0.0f;
    if (i < rows) {
      if (!row) continue;
      const u64 at = (u64)z * rows + i;
      for (u32 k = 0; k < across; k++) s += row_sums[at * across + k];
      row[at] = fma(1.0f - rest, row[at], rest * (s / columns + eps));
    } else if (i < rows + columns) {
      const u64 at = (u64)z * columns + i - rows;
      for (u32 k = 0; k < down; k++) s += column_sums[((u64)z * down + k) * columns + i - rows];
      column[at] = fma(1.0f - rest, column[at], rest * (s / rows + eps));
    }
  }
}

// What the gradients of a row are divided by, but for their column's.
DEV float of_row(const float *row, const float *mean, u32 z, u64 at) { return row ? __builtin_sqrtf(row[at] / mean[z]) : 1.0f; }

// The sums of squares of tiles of the step, before it is bounded, in double.
template <class G> DEV void squares_of(const G *g, const float *row, const float *column, const float *mean, const float *gscale, const float *ok, double *out, u32 batch, u32 rows, u32 columns) {
  __shared__ double scratch[33];
  const u32 lane = TID % 32, warp = TID / 32;
  const float scale = gscale[0];
  double s = 0.0;
  if (ok[0] != 0.0f)
    for (u32 z = BLOCK_Z; z < batch; z += BLOCKS_Z)
      for (u32 k = 0; k < 8; k++) {
        const u32 r = BLOCK_Y * TILE_ROWS + warp * 8 + k;
        if (r >= rows) break;
        const u64 at = (u64)z * rows + r;
        const float by = of_row(row, mean, z, at);
        UNROLL for (u32 q = 0; q < 4; q++) {
          const u32 c = BLOCK_X * TILE_COLUMNS + lane + 32 * q;
          if (c < columns) {
            const double x = to_f32(g[at * columns + c]) * scale / by / __builtin_sqrtf(column[(u64)z * columns + c]);
            s = __builtin_fma(x, x, s);
          }
        }
      }
  s = block_sum(s, scratch);
  if (TID == 0) out[((u64)BLOCK_Z * BLOCKS_Y + BLOCK_Y) * BLOCKS + BLOCK_X] = s;
}
// Two blocks: see ADAMW8BIT.
KERNEL __launch_bounds__(256, 2) adafactor_squares(const float *g, const float *row, const float *column, const float *mean, const float *gscale, const float *ok, double *out, u32 batch, u32 rows,
                                                u32 columns) {
  squares_of(g, row, column, mean, gscale, ok, out, batch, rows, columns);
}
KERNEL __launch_bounds__(256, 2) adafactor_squares_bf16(const bf16 *g, const float *row, const float *column, const float *mean, const float *gscale, const float *ok, double *out, u32 batch, u32 rows,
                                                     u32 columns) {
  squares_of(g, row, column, mean, gscale, ok, out, batch, rows, columns);
}

// How a step keeps a weight.
template <int R> struct Kept {
  typename Weight<R>::type *w;
  NOTHING_IF_EMPTY Rest<R> rest;
  NOTHING_IF_EMPTY Random<R> random;
};

// The step. norm is the root of the sum of squares, room that which is not bounded.
template <int R, class G> DEV void adafactor_step(const Kept<R> &p, G *g, const float *row, const float *column, const float *mean, const float *norm, const float *lr, const float *gscale, const float *t,
                                         const float *ok, u32 batch, u32 rows, u32 columns, float room, float decay, float lr_scale, u32 zero_grad, u64 seed) {
  const u32 lane = TID % 32, warp = TID / 32;
  const bool apply = ok[0] != 0.0f;
  const float rate = lr[0] * lr_scale, scale = gscale[0], over = norm[0] / room, bounded = rate / (over > 1.0f ? over : 1.0f);
  for (u32 z = BLOCK_Z; z < batch; z += BLOCKS_Z)
    for (u32 k = 0; k < 8; k++) {
      const u32 r = BLOCK_Y * TILE_ROWS + warp * 8 + k;
      if (r >= rows) break;
      const u64 at = (u64)z * rows + r;
      const float by = of_row(row, mean, z, at);
      UNROLL for (u32 q = 0; q < 4; q++) {
        const u32 c = BLOCK_X * TILE_COLUMNS + lane + 32 * q;
        if (c >= columns) break;
        const u64 i = at * columns + c;
        if (apply) {
          const float w = weight<R>(p, i), x = to_f32(g[i]) * scale / by / __builtin_sqrtf(column[(u64)z * columns + c]);
          keep<R>(p, i, w - rate * decay * w - bounded * x, seed, t);
        }
        if (zero_grad) g[i] = from_f32<G>(0.0f);
      }
    }
}

#define ADAFACTOR(NAME, R, G, REST, STREAM) \
  KERNEL __launch_bounds__(256, 2) NAME(typename Weight<R>::type *w, [[maybe_unused]] bf16 *rest, [[maybe_unused]] u32 stream, u64 seed, G *g, const float *row, const float *column, const float *mean, const float *norm, \
                                     const float *lr, const float *gscale, const float *t, const float *ok, u32 batch, u32 rows, u32 columns, float room, float decay, float lr_scale, u32 zero_grad) { \
    adafactor_step<R>(Kept<R>{w, {REST}, {STREAM}}, g, row, column, mean, norm, lr, gscale, t, ok, batch, rows, columns, room, decay, lr_scale, zero_grad, seed); \
  }
ADAFACTOR(adafactor, EXACT, float, , )
ADAFACTOR(adafactor_stochastic, STOCHASTIC, float, , (Bits{stream, 0}))
ADAFACTOR(adafactor_compensated, COMPENSATED, float, rest, )
ADAFACTOR(adafactor_bf16, EXACT, bf16, , )
ADAFACTOR(adafactor_stochastic_bf16, STOCHASTIC, bf16, , (Bits{stream, 0}))
ADAFACTOR(adafactor_compensated_bf16, COMPENSATED, bf16, rest, )

// A tensor of a norm.
template <class G> struct Summand {
  const G *x;
  u64 n;
  u32 first;
};

// The sum of squares of 16384 elements of a tensor a block, in double.
template <class G> DEV void sum_of_squares(const Summand<G> *table, u32 count, double *out) {
  __shared__ double scratch[33];
  const Summand<G> p = entry(table, count, BLOCK_X);
  const u64 first = (u64)(BLOCK_X - p.first) * 16384;
  double s = 0.0;
  for (u32 k = TID; k < 16384 && first + k < p.n; k += 256) {
    double v = to_f32(p.x[first + k]);
    s = __builtin_fma(v, v, s);
  }
  s = block_sum(s, scratch);
  if (TID == 0) out[BLOCK_X] = s;
}
KERNEL __launch_bounds__(256) sum_squares(const Summand<float> *table, u32 count, double *out) { sum_of_squares(table, count, out); }
KERNEL __launch_bounds__(256) sum_squares_bf16(const Summand<bf16> *table, u32 count, double *out) { sum_of_squares(table, count, out); }

// A state of 16 bits that is added to, four elements a thread; see graph.Assign.
template <class V> DEV void accumulate_random(bf16 *state, const V *x, const int *run, u64 n, u32 add, u32 stream, u64 seed) {
  const u64 at = ((u64)BLOCK_X * 256 + TID) * 4;
  if (at >= n) return;
  u32 c[4];
  random_words(c, {stream, 0}, at, seed, (u32)run[0]);
  const u32 all = at & 4 ? ~0u : 0u; // as in adamw_step
  const u32 mine[4] = {c[0] ^ ((c[0] ^ c[2]) & all), c[1] ^ ((c[1] ^ c[3]) & all)};
  UNROLL for (int k = 0; k < 4; k++)
    if (at + k < n) {
      float s = to_f32(x[at + k]);
      if (add) s += to_f32(state[at + k]);
      state[at + k] = from_f32<bf16>(stochastic(s, half(mine, k)));
    }
}
KERNEL __launch_bounds__(256) accumulate_f32(bf16 *state, const float *x, const int *run, u64 n, u32 add, u32 stream, u64 seed) { accumulate_random(state, x, run, n, add, stream, seed); }
KERNEL __launch_bounds__(256) accumulate_bf16(bf16 *state, const bf16 *x, const int *run, u64 n, u32 add, u32 stream, u64 seed) { accumulate_random(state, x, run, n, add, stream, seed); }
KERNEL __launch_bounds__(256) accumulate_f16(bf16 *state, const f16 *x, const int *run, u64 n, u32 add, u32 stream, u64 seed) { accumulate_random(state, x, run, n, add, stream, seed); }

// The root of the sum of n numbers, in one block.
KERNEL __launch_bounds__(256) root_of_sum(const double *x, float *out, u32 n) {
  __shared__ double scratch[33];
  double s = 0.0;
  for (u32 i = TID; i < n; i += 256) s += x[i];
  s = block_sum(s, scratch);
  if (TID == 0) out[0] = (float)__builtin_sqrt(s);
}
