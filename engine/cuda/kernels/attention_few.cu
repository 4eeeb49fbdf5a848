// Attention of a few queries, as generation has them, in float for every format: a
// block of 128 threads has one query of a head and a part of the keys, so that one
// row of text keeps a card busy. Where there are several parts, a second kernel joins
// them in their order.
//
// A part goes by 128 keys. Eight threads multiply a key with the query; then thread
// (group, quad) adds up four elements of every `groups`th value.
#include "attention.h"

constexpr u32 KEYS = 128, MOST = 512; // elements of a head

// What a part leaves behind: its sum of weighted values, then its largest score in
// base 2 and the sum of its weights.
DEV u64 part_of(const Attention &a, u64 query, u32 part, u32 parts) { return (query * parts + part) * (a.size + 2); }

DEV void finish(const Attention &a, const Head &h, u32 i, float top, float sum, float *lse) {
  if (TID == 0) lse[(u64)h.index * a.tq + i] = top == -__builtin_inff() ? top : log_(sum) + top * (1.0f / LOG2E);
}
DEV void write(const Attention &a, const Head &h, u32 i, u32 d, void *o, float v, float sum) {
  const u64 at = h.output(a) + (u64)i * a.heads * a.size + d;
  const float one[4] = {sum == 0.0f ? 0.0f : v * rcp(sum)};
  store_some(a.format, o, at, one, 1, false);
}

KERNEL __launch_bounds__(128, 8) attention_few(const void *q, const void *k, const void *v, void *o, float *lse, float *partial, u32 parts, u32 per, Attention a) {
  __shared__ ALIGNED(16) float query[MOST];
  __shared__ float weights[KEYS], scratch[33], sums[MOST];
  const Head h(a, BLOCK_X / a.tq);
  const u32 i = BLOCK_X % a.tq, part = BLOCK_Y, first = part * per, end = min_(first + per, h.visible(a, i));
  const bool whole = a.size % 4 == 0;
  for (u32 d = TID * 4; d < (a.size + 31) / 32 * 32; d += 512) {
    float x[4];
    load_some(x, a.format, q, h.queries(a) + (u64)i * a.row + d, (i32)(a.size - d), whole);
    UNROLL for (int j = 0; j < 4; j++) query[d + j] = x[j] * (a.scale * LOG2E);
  }
  const u32 quads = (a.size + 3) / 4, groups = 128 / quads, quad = TID % quads, group = TID / quads;
  const i32 *segments = a.segments + (u64)h.b * a.tq;
  float top = -__builtin_inff(), sum = 0.0f, r[4] = {};
  SYNC();
  NO_UNROLL for (u32 k0 = first; k0 < end; k0 += KEYS) {
    NO_UNROLL for (u32 n = TID >> 3; n < KEYS; n += 16) {
      const u32 key = k0 + n;
      float s = 0.0f;
      if (key < end)
        for (u32 d = (TID & 7) * 4; d < a.size; d += 32) {
          float x[4], y[4];
          load_some(x, a.format, k, h.others(a) + (u64)key * a.key_row + d, (i32)(a.size - d), whole);
          load(y, query + d);
          UNROLL for (int j = 0; j < 4; j++) s = fma(x[j], y[j], s);
        }
      UNROLL for (int j = 4; j > 0; j >>= 1) s += shuffle_xor(s, j);
      const bool sees = key < end && (!a.segments || segments[key] == segments[i]);
      if ((TID & 7) == 0) weights[n] = sees ? s : -__builtin_inff();
    }
    SYNC();
    const float s = weights[TID], t = fmax_(top, block_max(s, scratch));
    const float base = t == -__builtin_inff() ? 0.0f : t, shrink = ex2(top - base), w = ex2(s - base);
    top = t;
    sum = fma(sum, shrink, block_sum(w, scratch));
    weights[TID] = w; // its own: the sum's barriers have passed
    SYNC();
    UNROLL for (int j = 0; j < 4; j++) r[j] *= shrink;
    if (group < groups)
      NO_UNROLL for (u32 n = group; n < KEYS && k0 + n < end; n += groups) {
        float x[4];
        load_some(x, a.format, v, h.others(a) + (u64)(k0 + n) * a.key_row + quad * 4, (i32)(a.size - quad * 4), whole);
        UNROLL for (int j = 0; j < 4; j++) r[j] = fma(weights[n], x[j], r[j]);
      }
    SYNC();
  }
  if (group < groups)
    UNROLL for (u32 j = 0; j < 4; j++) sums[(group * quads + quad) * 4 + j] = r[j];
  SYNC();
  float *to = parts > 1 ? partial + part_of(a, BLOCK_X, part, parts) : nullptr;
  for (u32 d = TID; d < a.size; d += 128) {
    float x = sums[d];
    for (u32 n = 1; n < groups; n++) x += sums[n * quads * 4 + d];
    if (to) to[d] = x;
    else write(a, h, i, d, o, x, sum);
  }
  if (!to) finish(a, h, i, top, sum, lse);
  else if (TID == 0) {
    to[a.size] = top;
    to[a.size + 1] = sum;
  }
}

KERNEL __launch_bounds__(128) attention_join(const float *partial, void *o, float *lse, u32 parts, Attention a) {
  const Head h(a, BLOCK_X / a.tq);
  const u32 i = BLOCK_X % a.tq;
  const float *from = partial + part_of(a, BLOCK_X, 0, parts);
  const u64 stride = a.size + 2;
  float top = -__builtin_inff(), sum = 0.0f;
  for (u32 n = 0; n < parts; n++) top = fmax_(top, from[n * stride + a.size]);
  const float base = top == -__builtin_inff() ? 0.0f : top;
  for (u32 n = 0; n < parts; n++) sum = fma(from[n * stride + a.size + 1], ex2(from[n * stride + a.size] - base), sum);
  for (u32 d = TID; d < a.size; d += 128) {
    float x = 0.0f;
    for (u32 n = 0; n < parts; n++) x = fma(from[n * stride + d], ex2(from[n * stride + a.size] - base), x);
    write(a, h, i, d, o, x, sum);
  }
  finish(a, h, i, top, sum, lse);
}
