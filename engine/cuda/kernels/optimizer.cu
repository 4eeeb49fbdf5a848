// Optimizers, and the norm of all gradients.
#include "math.h"

// The entry of a table, in order of first, that a block belongs to.
template <class T> DEV T entry(const T *table, u32 count, u32 block) {
  u32 lo = 0;
  for (u32 hi = count; hi - lo > 1;) {
    u32 mid = (lo + hi) / 2;
    if (table[mid].first <= block) lo = mid;
    else hi = mid;
  }
  return table[lo];
}

// A weight, its gradient and its moments; its blocks begin with first.
struct Parameter {
  float *w, *g, *m, *v;
  u64 n;
  u32 first;
  float decay, lr_scale;
};

// One step for every parameter of a table; see graph.AdamW. rest is 1-beta, and
// log_beta the logarithm of beta, so that 1-beta^t does not cancel. Four elements a
// thread.
KERNEL __launch_bounds__(256) adamw(const Parameter *table, u32 count, const float *lr, const float *gscale, const float *t, const float *ok, float beta1, float beta2,
                                    float rest1, float rest2, float log_beta1, float log_beta2, float eps, u32 zero_grad) {
  const Parameter p = entry(table, count, BLOCK_X);
  const bool apply = ok[0] != 0.0f;
  const float rate = lr[0] * p.lr_scale, scale = gscale[0];
  const float l1 = t[0] * log_beta1, l2 = t[0] * log_beta2;
  const float c1 = l1 < -26.0f ? 1.0f : -expm1_(l1), c2 = l2 < -26.0f ? 1.0f : -expm1_(l2);
  const u64 at = ((u64)(BLOCK_X - p.first) * 256 + TID) * 4;
  if (at >= p.n) return;
  const int left = p.n - at < 4 ? (int)(p.n - at) : 4;
  float w[4], g[4], m[4], v[4];
  auto get = [&](float (&x)[4], const float *from) {
    if (left == 4) load(x, from + at);
    else UNROLL for (int k = 0; k < 4; k++) x[k] = k < left ? from[at + k] : 0.0f;
  };
  auto put = [&](float *to, const float (&x)[4]) {
    if (left == 4) store(to + at, x);
    else UNROLL for (int k = 0; k < 4; k++) if (k < left) to[at + k] = x[k];
  };
  if (apply) {
    get(w, p.w);
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
    put(p.w, w);
    put(p.m, m);
    put(p.v, v);
  }
  if (zero_grad) {
    UNROLL for (int k = 0; k < 4; k++) g[k] = 0.0f;
    put(p.g, g);
  }
}

// Lion; see graph.Lion.
struct LionParameter {
  float *w, *g, *m;
  u64 n;
  u32 first;
  float decay, lr_scale;
};

KERNEL __launch_bounds__(256) lion(const LionParameter *table, u32 count, const float *lr, const float *gscale, const float *ok, float beta1, float beta2, float rest1, float rest2,
                                   u32 zero_grad) {
  const LionParameter p = entry(table, count, BLOCK_X);
  const float rate = lr[0] * p.lr_scale, scale = gscale[0];
  const u64 at = ((u64)(BLOCK_X - p.first) * 256 + TID) * 4;
  for (u64 i = at; i < at + 4 && i < p.n; i++) {
    if (ok[0] != 0.0f) {
      const float g = p.g[i] * scale, m = p.m[i], w = p.w[i];
      const float c = fma(beta1, m, rest1 * g);
      p.w[i] = w - rate * p.decay * w - (c > 0.0f ? rate : c < 0.0f ? -rate : 0.0f);
      p.m[i] = fma(beta2, m, rest2 * g);
    }
    if (zero_grad) p.g[i] = 0.0f;
  }
}

// AdamW with moments in 8 bits; see graph.AdamW8bit. A warp has a block of 256 elements,
// eight a lane, 32 apart.
struct Parameter8bit {
  float *w, *g;
  unsigned char *m, *v;
  float *m_scale, *v_scale;
  u64 n;
  u32 first;
  float decay, lr_scale;
};

// The numbers that codes stand for, and the largest that each code is given to.
struct Book {
  float values[256], above[256];
};

DEV u32 code_of(const Book &b, float x) {
  u32 lo = 0;
  UNROLL for (u32 step = 128; step > 0; step >>= 1) if (x > b.above[lo + step - 1]) lo += step;
  return x > 0.0f && lo == 0 ? 1 : lo;
}

KERNEL __launch_bounds__(256) adamw8bit(const Parameter8bit *table, u32 count, const float *lr, const float *gscale, const float *t, const float *ok, float beta1, float beta2,
                                        float rest1, float rest2, float log_beta1, float log_beta2, float eps, const float *books, u32 zero_grad) {
  __shared__ Book book[2];
  for (u32 i = TID; i < 1024; i += 256) ((float *)book)[i] = books[i];
  __syncthreads();
  const Parameter8bit p = entry(table, count, BLOCK_X);
  const bool apply = ok[0] != 0.0f;
  const float rate = lr[0] * p.lr_scale, scale = gscale[0];
  const float l1 = t[0] * log_beta1, l2 = t[0] * log_beta2;
  const float c1 = l1 < -26.0f ? 1.0f : -expm1_(l1), c2 = l2 < -26.0f ? 1.0f : -expm1_(l2);
  const u64 block = (u64)(BLOCK_X - p.first) * 8 + TID / 32, at = block * 256 + TID % 32;
  if (block * 256 >= p.n) return; // the whole warp
  if (apply) {
    float m[8], v[8], m_top = 0.0f, v_top = 0.0f;
    const float m_old = p.m_scale[block], v_old = p.v_scale[block];
    UNROLL for (int k = 0; k < 8; k++) {
      const u64 i = at + 32 * k;
      m[k] = v[k] = 0.0f;
      if (i < p.n) {
        const float g = p.g[i] * scale;
        m[k] = fma(beta1, book[0].values[p.m[i]] * m_old, rest1 * g);
        v[k] = fma(beta2, book[1].values[p.v[i]] * v_old, rest2 * g * g);
        float w = p.w[i];
        w -= rate * p.decay * w;
        w -= rate * (m[k] / c1) / (__builtin_sqrtf(v[k] / c2) + eps);
        p.w[i] = w;
      }
      m_top = __builtin_fmaxf(m_top, __builtin_fabsf(m[k]));
      v_top = __builtin_fmaxf(v_top, v[k]);
    }
    m_top = warp_max(m_top);
    v_top = warp_max(v_top);
    if (TID % 32 == 0) {
      p.m_scale[block] = m_top;
      p.v_scale[block] = v_top;
    }
    const float m_inv = m_top > 0.0f ? 1.0f / m_top : 0.0f, v_inv = v_top > 0.0f ? 1.0f / v_top : 0.0f;
    UNROLL for (int k = 0; k < 8; k++) {
      const u64 i = at + 32 * k;
      if (i < p.n) {
        p.m[i] = (unsigned char)code_of(book[0], m[k] * m_inv);
        p.v[i] = (unsigned char)code_of(book[1], v[k] * v_inv);
      }
    }
  }
  if (zero_grad)
    UNROLL for (int k = 0; k < 8; k++) if (at + 32 * k < p.n) p.g[at + 32 * k] = 0.0f;
}

// A tensor of a norm.
struct Summand {
  const float *x;
  u64 n;
  u32 first;
};

// The sum of squares of 16384 elements of a tensor a block, in double.
KERNEL __launch_bounds__(256) sum_squares(const Summand *table, u32 count, double *out) {
  __shared__ double scratch[33];
  const Summand p = entry(table, count, BLOCK_X);
  const u64 first = (u64)(BLOCK_X - p.first) * 16384;
  double s = 0.0;
  for (u32 k = TID; k < 16384 && first + k < p.n; k += 256) {
    double v = p.x[first + k];
    s = __builtin_fma(v, v, s);
  }
  s = block_sum(s, scratch);
  if (TID == 0) out[BLOCK_X] = s;
}

// The root of the sum of n numbers, in one block.
KERNEL __launch_bounds__(256) root_of_sum(const double *x, float *out, u32 n) {
  __shared__ double scratch[33];
  double s = 0.0;
  for (u32 i = TID; i < n; i += 256) s += x[i];
  s = block_sum(s, scratch);
  if (TID == 0) out[0] = (float)__builtin_sqrt(s);
}
