// Norms of channels, the last dimension: x is [outer, rows, channels], and `wide`
// neighboring channels of one outer share a statistic. Batch norm has one outer and
// statistics of one channel; group norm has the rows of the batch as outer.
//
// A block has 32 channels and 8 interleaved series of the rows of a part; blocks go
// over channels, then parts, then outer. Everything of a channel is in registers.
#include "math.h"

struct Norm { u32 rows, channels, wide, size, parts; }; // size rows a part

// The work of a thread: rows [first, end) in steps of 8 of one channel.
struct Strip {
  u32 channel, outer, part, first, end;
  u64 at; // of the first row of outer
  MEMBER Strip(Norm s) {
    const u32 groups = (s.channels + 31) / 32, rest = BLOCK_X / groups;
    channel = BLOCK_X % groups * 32 + (TID & 31);
    part = rest % s.parts;
    outer = rest / s.parts;
    first = part * s.size + (TID >> 5);
    end = min_(s.rows, (part + 1) * s.size);
    at = (u64)outer * s.rows * s.channels + channel;
  }
};

// The number, mean and sum of squared deviations of some elements.
struct Moments { float n, mean, square; };
// Those of both (Chan, Golub and LeVeque 1979).
DEV Moments joined(Moments a, Moments b) {
  if (b.n == 0.0f) return a;
  if (a.n == 0.0f) return b;
  const float n = a.n + b.n, delta = b.mean - a.mean, share = b.n / n;
  return Moments{n, fma(delta, share, a.mean), a.square + b.square + delta * delta * (a.n * share)};
}

// The moments of each channel in each part, [outer, parts, channels] of mean and
// square. Deviations are from the first element of a series, so that a mean far
// from zero cancels nothing.
template <class T> DEV void channel_moments(const T *x, float *out, Norm s) {
  __shared__ float mean[8][33], square[8][33];
  const Strip t(s);
  const u32 lane = TID & 31, series = TID >> 5;
  Moments m{};
  if (t.channel < s.channels && t.first < t.end) {
    const float shift = to_f32(x[t.at + (u64)t.first * s.channels]);
    float sum = 0.0f, sq = 0.0f;
    for (u32 r = t.first; r < t.end; r += 8) {
      const float d = to_f32(x[t.at + (u64)r * s.channels]) - shift;
      sum += d;
      sq = fma(d, d, sq);
    }
    m.n = (float)((t.end - t.first + 7) / 8);
    const float mean = sum / m.n;
    m.mean = shift + mean;
    m.square = fma(-mean, sum, sq);
  }
  mean[series][lane] = m.mean;
  square[series][lane] = m.square;
  SYNC();
  if (series == 0 && t.channel < s.channels) {
    UNROLL for (u32 i = 1; i < 8; i++) m = joined(m, Moments{(float)(t.first + i < t.end ? (t.end - t.first - i + 7) / 8 : 0), mean[i][lane], square[i][lane]});
    out += (((u64)t.outer * s.parts + t.part) * s.channels + t.channel) * 2;
    out[0] = m.mean;
    out[1] = m.square > 0.0f || m.square != m.square ? m.square : 0.0f;
  }
}

// The statistics of the moments of their parts and channels. A warp each.
KERNEL __launch_bounds__(256) channel_stats(const float *moments, float *means, float *variances, u32 stats, Norm s) {
  const u32 stat = BLOCK_X * 8 + (TID >> 5), lane = TID & 31;
  if (stat >= stats) return;
  const u32 per = s.channels / s.wide, outer = stat / per, channel = stat % per * s.wide;
  moments += ((u64)outer * s.parts * s.channels + channel) * 2;
  Moments m{};
  for (u32 i = lane; i < s.parts * s.wide; i += 32) {
    const u32 part = i / s.wide;
    const float *at = moments + ((u64)part * s.channels + i % s.wide) * 2;
    m = joined(m, Moments{(float)min_(s.size, s.rows - part * s.size), at[0], at[1]});
  }
  UNROLL for (int i = 16; i > 0; i >>= 1) m = joined(m, Moments{shuffle_xor(m.n, i), shuffle_xor(m.mean, i), shuffle_xor(m.square, i)});
  if (lane == 0) {
    means[stat] = m.mean;
    variances[stat] = m.square / m.n;
  }
}

// The statistic of a strip.
DEV u32 stat_of(const Strip &t, const Norm &s) { return t.outer * (s.channels / s.wide) + t.channel / s.wide; }

// y = (x - mean)/sqrt(var + eps) * gamma + beta, rounded as the separate operations are that pass/fuse_norm.go makes of it.
template <class T> DEV void channel_norm(const T *x, const float *gamma, const float *beta, const float *means, const float *variances, T *y, float eps, Norm s) {
  const Strip t(s);
  if (t.channel >= s.channels) return;
  const u32 stat = stat_of(t, s);
  const float mean = means[stat], scale = rsqrt(variances[stat] + eps) * gamma[t.channel], shift = beta[t.channel];
  for (u32 r = t.first; r < t.end; r += 8) {
    const u64 at = t.at + (u64)r * s.channels;
    const float scaled = (to_f32(x[at]) - mean) * scale;
    y[at] = from_f32<T>(scaled + shift);
  }
}

// The sums of dy and of dy h over the rows of each part, h = (x - mean)/sqrt(var +
// eps); each is [outer, parts, channels].
template <class T, class U>
DEV void channel_grad_sums(const U *dy, const T *x, const float *means, const float *variances, float *sums, float *products, float eps, Norm s) {
  __shared__ float scratch[2][8][33];
  const Strip t(s);
  const u32 lane = TID & 31, series = TID >> 5;
  float a = 0.0f, b = 0.0f;
  if (t.channel < s.channels) {
    const u32 stat = stat_of(t, s);
    const float mean = means[stat], rstd = 1.0f / __builtin_sqrtf(variances[stat] + eps);
    for (u32 r = t.first; r < t.end; r += 8) {
      const u64 at = t.at + (u64)r * s.channels;
      const float d = to_f32(dy[at]);
      a += d;
      b = fma(d, (to_f32(x[at]) - mean) * rstd, b);
    }
  }
  scratch[0][series][lane] = a;
  scratch[1][series][lane] = b;
  SYNC();
  if (series < 2 && t.channel < s.channels) {
    float v = scratch[series][0][lane];
    UNROLL for (int i = 1; i < 8; i++) v += scratch[series][i][lane];
    (series == 0 ? sums : products)[((u64)t.outer * s.parts + t.part) * s.channels + t.channel] = v;
  }
}

// The means over the elements of each statistic of dy gamma and of dy gamma h, of
// the sums over rows [outer, channels]. A warp each.
KERNEL __launch_bounds__(256) channel_grad_means(const float *sums, const float *products, const float *gamma, float *means, u32 stats, Norm s) {
  const u32 stat = BLOCK_X * 8 + (TID >> 5), lane = TID & 31;
  if (stat >= stats) return;
  const u32 per = s.channels / s.wide, outer = stat / per, channel = stat % per * s.wide;
  float a = 0.0f, b = 0.0f;
  for (u32 i = lane; i < s.wide; i += 32) {
    const u64 at = (u64)outer * s.channels + channel + i;
    const float g = gamma[channel + i];
    a = fma(g, sums[at], a);
    b = fma(g, products[at], b);
  }
  a = warp_sum(a);
  b = warp_sum(b);
  const float n = (float)s.rows * (float)s.wide;
  if (lane == 0) {
    means[(u64)stat * 2] = a / n;
    means[(u64)stat * 2 + 1] = b / n;
  }
}

// dx = (dy gamma - mean(dy gamma) - h mean(dy gamma h))/sqrt(var + eps).
template <class T, class U>
DEV void channel_norm_grad(const U *dy, const T *x, const float *gamma, const float *means, const float *variances, const float *grads, T *dx, float eps, Norm s) {
  const Strip t(s);
  if (t.channel >= s.channels) return;
  const u32 stat = stat_of(t, s);
  const float mean = means[stat], rstd = 1.0f / __builtin_sqrtf(variances[stat] + eps), scale = gamma[t.channel];
  const float a = grads[(u64)stat * 2], b = grads[(u64)stat * 2 + 1];
  for (u32 r = t.first; r < t.end; r += 8) {
    const u64 at = t.at + (u64)r * s.channels;
    dx[at] = from_f32<T>((fma(to_f32(dy[at]), scale, -a) - (to_f32(x[at]) - mean) * rstd * b) * rstd);
  }
}

// Moves running statistics towards those of a batch.
KERNEL __launch_bounds__(256) running_stats(float *mean, float *variance, const float *batch_mean, const float *batch_variance, u32 n, float momentum, float unbiased) {
  const u32 i = BLOCK_X * 256 + TID;
  if (i >= n) return;
  mean[i] = fma(momentum, batch_mean[i] - mean[i], mean[i]);
  variance[i] = fma(momentum, batch_variance[i] * unbiased - variance[i], variance[i]);
}

#define NORM(S, T)                                                                                                                    \
  KERNEL __launch_bounds__(256) channel_moments_##S(const T *x, float *out, Norm s) { channel_moments(x, out, s); }                   \
  KERNEL __launch_bounds__(256) channel_norm_##S(const T *x, const float *gamma, const float *beta, const float *means, const float *variances, T *y, float eps, Norm s) { \
    channel_norm(x, gamma, beta, means, variances, y, eps, s);                                                                        \
  }
FOR_FLOATS(NORM)
// The formats of x and dy.
#define GRAD(S, T, R, U)                                                                                                              \
  KERNEL __launch_bounds__(256) channel_grad_sums_##S##_##R(const U *dy, const T *x, const float *means, const float *variances, float *sums, float *products, float eps, Norm s) { \
    channel_grad_sums(dy, x, means, variances, sums, products, eps, s);                                                               \
  }                                                                                                                                   \
  KERNEL __launch_bounds__(256) channel_norm_grad_##S##_##R(const U *dy, const T *x, const float *gamma, const float *means, const float *variances, const float *grads, T *dx, float eps, Norm s) { \
    channel_norm_grad(dy, x, gamma, means, variances, grads, dx, eps, s);                                                             \
  }
GRAD(f32, float, f32, float) GRAD(f16, f16, f16, f16) GRAD(bf16, bf16, bf16, bf16) GRAD(f16, f16, f32, float) GRAD(bf16, bf16, f32, float)
