// AdamW, and the norm of all gradients.
#include "math.h"

// One step; see graph.AdamW. rest is 1-beta, and log_beta the logarithm of beta, so
// that 1-beta^t does not cancel. Four elements a thread.
KERNEL __launch_bounds__(256) adamw(float *w, float *g, float *m, float *v, const float *lr, const float *gscale, const float *t, const float *ok,
                                    u64 n, float beta1, float beta2, float rest1, float rest2, float log_beta1, float log_beta2, float eps, float decay, float lr_scale, u32 zero_grad) {
  const bool apply = ok[0] != 0.0f;
  const float rate = lr[0] * lr_scale, scale = gscale[0];
  const float l1 = t[0] * log_beta1, l2 = t[0] * log_beta2;
  const float c1 = l1 < -26.0f ? 1.0f : -expm1_(l1), c2 = l2 < -26.0f ? 1.0f : -expm1_(l2);
  const u64 at = ((u64)BLOCK_X * 256 + TID) * 4;
  UNROLL for (int k = 0; k < 4; k++) {
    const u64 i = at + k;
    if (i >= n) return;
    if (apply) {
      const float d = g[i] * scale;
      const float mi = fma(beta1, m[i], rest1 * d);
      const float vi = fma(beta2, v[i], rest2 * d * d);
      float wi = w[i];
      wi -= rate * decay * wi;
      wi -= rate * (mi / c1) / (__builtin_sqrtf(vi / c2) + eps);
      w[i] = wi;
      m[i] = mi;
      v[i] = vi;
    }
    if (zero_grad) g[i] = 0.0f;
  }
}

// The sum of squares of 16384 elements a block, in double.
KERNEL __launch_bounds__(256) sum_squares(const float *x, double *out, u64 n) {
  __shared__ double scratch[33];
  const u64 first = (u64)BLOCK_X * 16384;
  double s = 0.0;
  for (u32 k = TID; k < 16384 && first + k < n; k += 256) {
    double v = x[first + k];
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
