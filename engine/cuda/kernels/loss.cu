// Cross-entropy of rows of logits.
#include "math.h"

// The log-sum-exp of row n, and loss[n] = weight * (lse - logits[label]); a
// negative label counts as weight 0, and one without a class makes the loss NaN. A
// block of 256 threads a row.
template <class T> DEV void cross_entropy(const T *x, const int *labels, const float *weights, float *lse, float *loss, u32 n) {
  __shared__ float scratch[33];
  const u32 row = BLOCK_X;
  x += (u64)row * n;
  float m = -__builtin_inff(), s = 0.0f;
  for (u32 i = TID; i < n; i += 256) { float v = to_f32(x[i]); m = v > m || v != v ? v : m; }
  m = block_max(m, scratch);
  for (u32 i = TID; i < n; i += 256) s += exp_(to_f32(x[i]) - m);
  s = block_sum(s, scratch);
  if (TID == 0) {
    float l = m + log_(s);
    int label = labels[row];
    lse[row] = l;
    loss[row] = label < 0 ? 0.0f : weights[row] * (l - ((u32)label < n ? to_f32(x[label]) : __builtin_nanf("")));
  }
}

// dx = dloss * weight * (softmax - onehot). dx may lie on x.
template <class T> DEV void cross_entropy_grad(const T *x, const int *labels, const float *weights, const float *lse, const float *dloss, T *dx, u32 n) {
  const u32 row = BLOCK_X;
  const int label = labels[row];
  const float scale = label < 0 ? 0.0f : dloss[0] * weights[row], l = lse[row];
  x += (u64)row * n;
  dx += (u64)row * n;
  for (u32 i = BLOCK_Y * 1024 + TID; i < min_(n, (BLOCK_Y + 1) * 1024); i += 256) {
    float p = exp_(to_f32(x[i]) - l);
    if ((int)i == label) p -= 1.0f;
    dx[i] = from_f32<T>(scale == 0.0f ? 0.0f : p * scale);
  }
}

#define LOSS(S, T)                                                                                                                  \
  KERNEL __launch_bounds__(256) cross_entropy_##S(const T *x, const int *labels, const float *weights, float *lse, float *loss, u32 n) { \
    cross_entropy(x, labels, weights, lse, loss, n);                                                                                \
  }                                                                                                                                 \
  KERNEL __launch_bounds__(256) cross_entropy_grad_##S(const T *x, const int *labels, const float *weights, const float *lse, const float *dloss, T *dx, u32 n) { \
    cross_entropy_grad(x, labels, weights, lse, dloss, dx, n);                                                                      \
  }
FOR_FLOATS(LOSS)
