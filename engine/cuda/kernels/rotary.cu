// Rotary positions and caches of keys and values.
#include "math.h"

// table[t] = cos, then sin, of t f, times magnitude, with f = step^i scaled by
// keep + (1-keep) shrink, keep = offset + per_pair i + per_frequency f within [0, 1]. A
// frequency is rounded to float, as the published models' are.
KERNEL __launch_bounds__(256) rotary_table(float *table, u32 rows, u32 half, float magnitude, double step, double shrink, double offset, double per_pair, double per_frequency) {
  const u32 at = BLOCK_X * 256 + TID, t = at / half, i = at % half;
  if (t >= rows) return;
  double power = 1.0;
  for (u32 n = i; n > 0; n >>= 1) {
    if (n & 1) power *= step;
    step *= step;
  }
  double keep = offset + per_pair * (double)i + per_frequency * power;
  keep = keep < 0.0 ? 0.0 : keep < 1.0 ? keep : 1.0;
  const float angle = (float)t * (float)(power * (keep + (1.0 - keep) * shrink));
  float *row = table + (u64)t * 2 * half;
  row[i] = sin_cos(angle, 1) * magnitude;
  row[half + i] = sin_cos(angle, 0) * magnitude;
}

// A row of x is `groups` heads of `size`; of each `period` the first `turned` turn. A
// thread has Q elements i and as many half further on, which turn together, or Q that
// stay behind those. In place, there are threads only for what turns.
template <int Q, class T>
DEV void rotary(const T *x, const float *table, T *y, const i32 *first, u32 time, u32 limit, u32 size, u32 half, u32 groups, u32 turned, u32 period, u32 inverse) {
  const bool in_place = x == y;
  const u32 row = BLOCK_X, per = (in_place ? half : size - half) / Q, unit = BLOCK_Y * 256 + TID;
  const u32 i = unit % per * Q, head = unit / per, group = in_place ? head / turned * period + head % turned : head;
  if (group >= groups) return;
  const bool pair = i < half, turns = pair && group % period < turned;
  const u64 at = ((u64)row * groups + group) * size + i;
  float a[Q], b[Q];
  load(b, x + at + half);
  if (pair) load(a, x + at);
  if (turns) {
    i32 t = (i32)(row % time) + (first ? first[row / time] : 0);
    t = t < 0 ? 0 : t < (i32)limit ? t : (i32)limit - 1;
    const float *angles = table + (u64)t * 2 * half + i;
    float c[Q], s[Q];
    load(c, angles);
    load(s, angles + half);
    UNROLL for (int j = 0; j < Q; j++) {
      const float sin = inverse ? -s[j] : s[j], p = a[j], q = b[j];
      a[j] = fma(p, c[j], -q * sin);
      b[j] = fma(q, c[j], p * sin);
    }
  }
  if (pair) store(y + at, a);
  store(y + at + half, b);
}

// Rows of x to positions first[b].. of a cache; those beyond its end are left out.
template <class T> DEV void cache_write(const T *x, const i32 *first, T *cache, u32 rows, u32 limit, u32 width) {
  const u32 row = BLOCK_X, b = row / rows;
  const i64 t = (i64)first[b] + row % rows;
  if (t < 0 || t >= limit) return;
  const T *from = x + (u64)row * width;
  T *to = cache + ((u64)b * limit + t) * width;
  UNROLL for (u32 i = 0; i < 4; i++) {
    const u32 c = BLOCK_Y * 1024 + i * 256 + TID;
    if (c < width) to[c] = from[c];
  }
}

#define ROTARY_OF(NAME, Q, S, T)                                                                                                                       \
  KERNEL __launch_bounds__(256) NAME##_##S(const T *x, const float *table, T *y, const i32 *first, u32 time, u32 limit, u32 size, u32 half, u32 groups, u32 turned, \
                                           u32 period, u32 inverse) {                                                                                  \
    rotary<Q>(x, table, y, first, time, limit, size, half, groups, turned, period, inverse);                                                          \
  }
#define ROTARY(S, T)                                                                                                                                   \
  ROTARY_OF(rotary_one, 1, S, T) ROTARY_OF(rotary_four, 4, S, T)                                                                                       \
  KERNEL __launch_bounds__(256) cache_write_##S(const T *x, const i32 *first, T *cache, u32 rows, u32 limit, u32 width) { cache_write(x, first, cache, rows, limit, width); }
FOR_FLOATS(ROTARY)
