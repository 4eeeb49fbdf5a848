// The functions of engine/graph in float, with the polynomials of the CPU's
// kernels (tools/asm/simd). Errors are in units in the last place, with the exact
// ex2, lg2 and rcp of the hardware within their documented bounds.
#pragma once
#include "coefficients.h"
#include "device.h"

DEV float ex2(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEV float rcp(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEV float rsqrt(float x) { float y; asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEV float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEV float abs_(float x) { return __builtin_fabsf(x); }

template <int N> DEV float poly(const float (&c)[N], float x) {
  float p = c[N - 1];
  UNROLL for (int i = N - 2; i >= 0; i--) p = fma(p, x, c[i]);
  return p;
}

// Bounds that let NaN pass, which min.f32 would not.
DEV float at_most(float x, float hi) { return x > hi ? hi : x; }
DEV float at_least(float x, float lo) { return x < lo ? lo : x; }

#define LOG2E 1.44269504088896340736f
#define LN2_HI 0x1.62ep-1f
#define LN2_LO (float)(0.69314718055994530942 - 0x1.62ep-1)

// 2^n for n in [-252, 254], in two factors.
DEV float scale2(float p, int n) {
  int first = n >> 1, second = n - first;
  return p * bits_f32((u32)(first + 127) << 23) * bits_f32((u32)(second + 127) << 23);
}

// e^r - 1 - r over r^2 for |r| <= ln2/2.
DEV float exp_rest(float r) { return poly(exp_poly, r); }

// e^x. Error: 1 ulp.
DEV float exp_(float x) {
  x = at_least(at_most(x, 89.0f), -104.0f);
  float n = __builtin_rintf(x * LOG2E);
  float r = fma(-n, LN2_LO, fma(-n, LN2_HI, x));
  float p = fma(fma(exp_rest(r), r, 1.0f), r, 1.0f);
  return scale2(p, x == x ? (int)n : 0);
}

// e^x - 1 for |x| <= 26 or NaN.
DEV float expm1_(float x) {
  float n = __builtin_rintf(x * LOG2E);
  float r = fma(-n, LN2_LO, fma(-n, LN2_HI, x));
  float s = bits_f32((u32)((x == x ? (int)n : 0) + 127) << 23);
  return fma(fma(exp_rest(r), r * r, r), s, s - 1.0f);
}

// log(1+f) - f for 1+f in [0.75, 1.5].
DEV float log1p_tail(float f) { return fma(poly(log_poly, f), f, -0.5f) * (f * f); }

// The natural logarithm. Error: 1 ulp.
DEV float log_(float x) {
  float small = x < 0x1p-126f ? 0x1p23f : 1.0f;
  float scaled = x * small;
  int power = (int)(f32_bits(scaled) - f32_bits(0.75f)) >> 23;
  float m = bits_f32(f32_bits(scaled) - ((u32)power << 23));
  float e = (float)power - (small == 1.0f ? 0.0f : 23.0f);
  float f = m - 1.0f;
  float y = fma(e, LN2_HI, fma(e, LN2_LO, log1p_tail(f)) + f);
  y = x == __builtin_inff() ? x : y;
  y = x == 0.0f ? -__builtin_inff() : y;
  return x < 0.0f || x != x ? __builtin_nanf("") : y;
}

// log(1+x) for 0 <= x <= 1 or NaN.
DEV float log1p_unit(float x) {
  bool upper = x >= 0.5f;
  float f = upper ? (x - 1.0f) * 0.5f : x;
  return log1p_tail(f) + f + (upper ? 0.69314718055994530942f : 0.0f);
}

DEV float sigmoid_(float x) {
  float e = exp_(-abs_(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

DEV float tanh_(float x) {
  float t = at_most(abs_(x), 9.25f);
  t = expm1_(t + t);
  return __builtin_copysignf(t / (t + 2.0f), x);
}

DEV float softplus_(float x) { return log1p_unit(exp_(-abs_(x))) + at_least(x, 0.0f); }

// sin (shift 0) or cos (shift 1). Beyond 1e5 the quarter turn is taken off in
// double, which is slow and seldom.
DEV float sin_cos(float x, u32 shift) {
  u32 quarter;
  float r;
  if (abs_(x) <= 1e5f) {
    const float p1 = 0x1.921fb6p+0f, p2 = -0x1.777a5cp-25f, p3 = -0x1.ee59dap-50f; // pi/2
    float n = __builtin_rintf(x * 0.63661977236758134308f);
    r = fma(-n, p3, fma(-n, p2, fma(-n, p1, x)));
    quarter = (u32)(int)n;
  } else {
    double n = __builtin_rint((double)x * 0.63661977236758134308);
    double d = __builtin_fma(-n, 6.123233995736766e-17, __builtin_fma(-n, 1.5707963267948966, (double)x));
    r = (float)d;
    quarter = (u32)(i64)n;
  }
  float z = r * r;
  float s = fma(poly(sin_poly, z), z * r, r);
  float c = fma(poly(cos_poly, z), z * z, fma(z, -0.5f, 1.0f));
  quarter += shift;
  float y = quarter & 1 ? c : s;
  return x - x != 0.0f ? __builtin_nanf("") : bits_f32(f32_bits(y) ^ (quarter << 30 & 0x80000000u));
}

// Phi(-|x|) for |x| <= 14.5 or NaN, Phi the normal distribution function, and
// e^(-x^2/2). The exponent keeps all its bits: what x^2 loses is added back.
DEV float normal_tail(float x, float *density) {
  float t = abs_(x), half = t * -0.5f;
  float n = __builtin_rintf(t * half * LOG2E);
  float r = fma(-n, LN2_LO, fma(half, t, -n * LN2_HI));
  float slope = fma(poly(exp_poly, r), r, 1.0f); // (e^r - 1) / r
  float d = fma(t, 0.6f, 1.0f), v = rcp(d);
  // v is 1/(1+0.6t) but for the share of itself that it lacks, since it is rounded.
  float lost = fma(-v, fma(t, 0.6f, 1.0f - d), fma(-v, d, 1.0f));
  float u = fma(-v, lost, 1.0f - v);
  float ratio = fma(poly(normal_poly, u), u, 0.5f) * v;
  int k = x == x ? (int)n : 0;
  *density = scale2(fma(slope, r, 1.0f), k);
  return scale2(fma(fma(slope, r, lost), ratio, ratio), k);
}

#define NORMAL_LIMIT 14.5f
#define INV_SQRT_2PI 0.39894228040143267794f

// x Phi(x) = max(x, 0) - |x| Phi(-|x|). Error: 2 ulp, or 2^-27 for x < -4.
DEV float gelu_(float x) {
  float t = at_most(abs_(x), NORMAL_LIMIT), e;
  return fma(-t, normal_tail(t, &e), at_least(x, 0.0f));
}

DEV float gelu_grad(float x, float dy) {
  float l = at_most(at_least(x, -NORMAL_LIMIT), NORMAL_LIMIT), e;
  float tail = normal_tail(l, &e);
  return fma(l * e, INV_SQRT_2PI, x < 0.0f ? tail : 1.0f - tail) * dy;
}

// The tanh form is x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
#define GELU_LINEAR (2 * 0.79788456080286535588f)
#define GELU_CUBE (GELU_LINEAR * 0.044715f)

DEV float gelu_tanh(float x) {
  float l = at_most(at_least(x, -20.0f), 20.0f);
  return sigmoid_(l * fma(l * l, GELU_CUBE, GELU_LINEAR)) * at_least(x, -20.0f);
}

DEV float gelu_tanh_grad(float x, float dy) {
  float l = at_most(at_least(x, -20.0f), 20.0f), square = l * l;
  float u = l * fma(square, GELU_CUBE, GELU_LINEAR);
  float s = sigmoid_(u), c = sigmoid_(-u);
  return s * fma(l * c, fma(square, 3 * GELU_CUBE, GELU_LINEAR), 1.0f) * dy;
}

DEV float silu_(float x) { return sigmoid_(x) * at_least(x, -104.0f); }

DEV float silu_grad(float x, float dy) {
  float l = at_most(at_least(x, -104.0f), 104.0f);
  return sigmoid_(l) * fma(l, sigmoid_(-l), 1.0f) * dy;
}

// One block of Philox4x32-10 (Salmon et al. 2011).
DEV void philox(u32 c[4], u32 k0, u32 k1) {
  UNROLL for (int i = 0; i < 10; i++) {
    u64 a = (u64)c[0] * 0xd2511f53u, b = (u64)c[2] * 0xcd9e8d57u;
    c[0] = (u32)(b >> 32) ^ c[1] ^ k0;
    c[1] = (u32)b;
    c[2] = (u32)(a >> 32) ^ c[3] ^ k1;
    c[3] = (u32)a;
    k0 += 0x9e3779b9u;
    k1 += 0xbb67ae85u;
  }
}

// The random word of element i of a stream in a run; see graph.Dropout.
DEV u32 random_word(u64 i, u32 seed0, u32 seed1, u32 stream, u32 run) {
  u32 c[4] = {(u32)(i >> 2), (u32)(i >> 34), stream, run};
  philox(c, seed0, seed1);
  u32 lane = (u32)i & 3;
  return lane == 0 ? c[0] : lane == 1 ? c[1] : lane == 2 ? c[2] : c[3];
}

// What element i is multiplied by under dropout.
DEV float dropout_scale(u32 word, float keep, float scale) { return (float)(word >> 8) * 0x1p-24f < keep ? scale : 0.0f; }
