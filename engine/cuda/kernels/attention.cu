// Attention and its gradients in float, for every format, mask and head size.
//
// Blocks of 128 threads work on tiles of 64 queries and 64 keys. Thread (x, y) =
// (TID % 16, TID / 16) has rows 8y..8y+7 and columns x, x+16, x+32, x+48 of the
// scores, and of its results the same rows and columns 4x..4x+3 of each 64. Heads of
// more than 128 elements are cut by columns of the results over the grid's y.
//
// Shared memory, in floats:
//
//   stage   16 elements of two times 64 vectors, [2][16][68]: threads read 8 rows as
//           two quads (two addresses a warp) and columns x+16j (16 neighbors). Or 16
//           vectors, [16][128]: 16 threads read 64 neighbors.
//   weights [64 columns][68 rows]: thread (x, y) writes quads at 68x, so that eight
//           threads, which go together, use banks 4x..4x+3.
#include "attention.h"

constexpr u32 DEPTH = 16, PITCH = 68, WIDE = 128;

struct ALIGNED(16) Shared {
  float stage[2 * DEPTH * PITCH];
  float weights[TILE * PITCH];
  float lse[TILE], delta[TILE];    // of the queries; lse in base 2
  u32 seen[TILE][2], kept[TILE][2]; // of a query: the keys that it sees, the weights that dropout keeps
};
typedef float Scores[8][4];
typedef float Result[8][2][4];

DEV u32 tx() { return TID & 15; }
DEV u32 ty() { return TID >> 4; }

// Vectors of a head as a tile sees them: `count` of them from element `at` of p on,
// `stride` apart.
struct Vectors {
  const void *p;
  u64 at;
  u32 stride, format, count, size;
  MEMBER Vectors(const Attention &a, const void *p, u64 at, u32 stride, u32 from, u32 end)
      : p(p), at(at + (u64)stride * from), stride(stride), format(a.format), count(end > from ? end - from : 0), size(a.size) {}
  MEMBER bool whole() const { return size % 4 == 0; }
  // Elements d..d+15 of 64 vectors, by element.
  MEMBER void stage_elements(float *to, u32 d) const {
    const u32 r = TID & 63;
    NO_UNROLL for (u32 n = 0; n < 8; n += 4) {
      const u32 i = (TID >> 6) * 8 + n;
      float v[4] = {};
      if (r < count) load_some(v, format, p, this->at + (u64)r * stride + d + i, (i32)(size - d) - (i32)i, whole());
      UNROLL for (u32 j = 0; j < 4; j++) to[(i + j) * PITCH + r] = v[j];
    }
  }
  // Elements d..d+127 of vectors r..r+15.
  MEMBER void stage_vectors(float *to, u32 r, u32 d) const {
    const u32 c = (TID & 31) * 4;
    NO_UNROLL for (u32 n = 0; n < DEPTH; n += 4) {
      const u32 i = (TID >> 5) + n;
      float v[4] = {};
      if (r + i < count) load_some(v, format, p, at + (u64)(r + i) * stride + d + c, (i32)(size - d) - (i32)c, whole());
      store(to + i * WIDE + c, v);
    }
  }
};

// s = x y^T.
DEV void multiply(Scores &s, const Vectors &x, const Vectors &y, Shared &m) {
  UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 4; j++) s[i][j] = 0.0f;
  const float *rows = m.stage, *cols = m.stage + DEPTH * PITCH;
  for (u32 d = 0; d < x.size; d += DEPTH) {
    SYNC();
    x.stage_elements(m.stage, d);
    y.stage_elements(m.stage + DEPTH * PITCH, d);
    SYNC();
    _Pragma("unroll 2") for (u32 k = 0; k < DEPTH; k++) {
      float a[8], b[4];
      load(a, rows + k * PITCH + ty() * 8);
      UNROLL for (int j = 0; j < 4; j++) b[j] = cols[k * PITCH + tx() + 16 * j];
      UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 4; j++) s[i][j] = fma(a[i], b[j], s[i][j]);
    }
  }
}

// Puts weights where accumulate takes them.
DEV void put(const Scores &s, Shared &m) {
  UNROLL for (int j = 0; j < 4; j++) {
    UNROLL for (int i = 0; i < 8; i += 4) {
      float v[4] = {s[i][j], s[i + 1][j], s[i + 2][j], s[i + 3][j]};
      store(m.weights + (tx() + 16 * j) * PITCH + ty() * 8 + i, v);
    }
  }
}

// r += weights y, from column d on.
DEV void accumulate(Result &r, const Vectors &y, u32 d, Shared &m) {
  const u32 end = min_(y.count, TILE);
  const bool two = y.size - d > 64;
  for (u32 k0 = 0; k0 < end; k0 += DEPTH) {
    SYNC();
    y.stage_vectors(m.stage, k0, d);
    SYNC();
    NO_UNROLL for (u32 k = 0; k < DEPTH; k++) {
      float a[8];
      load(a, m.weights + (k0 + k) * PITCH + ty() * 8);
      UNROLL for (int u = 0; u < 2; u++) {
        if (u == 1 && !two) break;
        float b[4];
        load(b, m.stage + k * WIDE + tx() * 4 + 64 * u);
        UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 4; j++) r[i][u][j] = fma(a[i], b[j], r[i][u][j]);
      }
    }
  }
}

DEV void clear(Result &r) {
  UNROLL for (int i = 0; i < 8; i++) UNROLL for (int u = 0; u < 2; u++) UNROLL for (int j = 0; j < 4; j++) r[i][u][j] = 0.0f;
}

// Writes the rows of a result times a scale each to vectors from p on, through
// shared memory as 64 rows of 68.
template <class F> DEV void write(const Attention &a, void *p, u64 at, u32 stride, u32 from, u32 end, u32 d, const Result &r, F scale, Shared &m) {
  at += (u64)stride * from;
  UNROLL for (int u = 0; u < 2; u++, d += 64) {
    if (d >= a.size) break;
    SYNC();
    UNROLL for (int i = 0; i < 8; i++) {
      float v[4];
      UNROLL for (int j = 0; j < 4; j++) v[j] = r[i][u][j] * scale(i);
      store(m.weights + (ty() * 8 + i) * PITCH + tx() * 4, v);
    }
    SYNC();
    const u32 c = d + tx() * 4;
    NO_UNROLL for (u32 i = ty(); i < TILE && from + i < end; i += 8) {
      float v[4];
      load(v, m.weights + i * PITCH + tx() * 4);
      store_some(a.format, p, at + (u64)i * stride + c, v, (i32)(a.size - c), a.size % 4 == 0);
    }
  }
}

// Finds, for the 64 queries and 64 keys of a tile, who sees whom and which weights
// dropout keeps: a word of 32 keys a thread. What reads them comes after a barrier.
// Segments hide nothing of a tile that is clear.
DEV void prepare(const Attention &a, const Head &h, u32 q0, u32 k0, bool clear, Shared &m) {
  const u32 i = TID >> 1, half = TID & 1, q = q0 + i;
  k0 += half * 32;
  u32 bits = q < a.tq ? before<32>(a, h, q, k0) : 0;
  if (a.segments && !clear && bits) {
    const i32 *segments = a.segments + (u64)h.b * a.tq, own = segments[q];
    NO_UNROLL for (u32 n = 0; n < 32 && bits >> n; n++)
      if (segments[k0 + n] != own) bits &= ~(1u << n);
  }
  m.seen[i][half] = bits;
  m.kept[i][half] = a.run ? kept<32>(a, weight(a, h, q) + k0) : ~0u;
}
DEV bool bit(const u32 (&words)[2], u32 j) { return words[j >> 5] >> (j & 31) & 1; }

// Sums and maxima over the 16 threads of a row.
DEV float row_sum(float v) { UNROLL for (int i = 8; i > 0; i >>= 1) v += shuffle_xor(v, i); return v; }
DEV float row_max(float v) { UNROLL for (int i = 8; i > 0; i >>= 1) v = fmax_(v, shuffle_xor(v, i)); return v; }

KERNEL __launch_bounds__(128, 3) attention(const void *q, const void *k, const void *v, void *o, float *lse, Attention a) {
  __shared__ Shared m;
  const Head h(a, head_of_block(a.tq));
  const u32 q0 = last_tile_of_block(a.tq), d = BLOCK_Y * WIDE;
  const Span span(a, h, q0, 0, h.visible(a, min_(q0 + TILE, a.tq) - 1), m.seen[0]);
  const float scale = a.scale * LOG2E;
  const Vectors queries(a, q, h.queries(a), a.row, q0, a.tq);
  Result r;
  clear(r);
  float top[8], sum[8];
  UNROLL for (int i = 0; i < 8; i++) {
    top[i] = -__builtin_inff();
    sum[i] = 0.0f;
  }
  for (u32 k0 = span.from / TILE * TILE; k0 < span.end; k0 += TILE) {
    Scores s;
    SYNC();
    prepare(a, h, q0, k0, false, m);
    multiply(s, queries, Vectors(a, k, h.others(a), a.key_row, k0, span.end), m);
    UNROLL for (int i = 0; i < 8; i++) {
      float t = top[i];
      UNROLL for (int j = 0; j < 4; j++) {
        s[i][j] = bit(m.seen[ty() * 8 + i], tx() + 16 * j) ? s[i][j] * scale : -__builtin_inff();
        t = fmax_(t, s[i][j]);
      }
      t = row_max(t);
      const float base = t == -__builtin_inff() ? 0.0f : t; // nothing seen yet
      const float shrink = ex2(top[i] - base);
      top[i] = t;
      sum[i] *= shrink;
      UNROLL for (int u = 0; u < 2; u++) UNROLL for (int j = 0; j < 4; j++) r[i][u][j] *= shrink;
      UNROLL for (int j = 0; j < 4; j++) {
        s[i][j] = ex2(s[i][j] - base);
        sum[i] += s[i][j];
        if (!bit(m.kept[ty() * 8 + i], tx() + 16 * j)) s[i][j] = 0.0f;
      }
    }
    put(s, m);
    accumulate(r, Vectors(a, v, h.others(a), a.key_row, k0, span.end), d, m);
  }
  UNROLL for (int i = 0; i < 8; i++) {
    const u32 row = q0 + ty() * 8 + i;
    sum[i] = row_sum(sum[i]);
    if (d == 0 && tx() == 0 && row < a.tq) lse[(u64)h.index * a.tq + row] = top[i] == -__builtin_inff() ? top[i] : log_(sum[i]) + top[i] * (1.0f / LOG2E);
    sum[i] = sum[i] == 0.0f ? 0.0f : a.drop_scale / sum[i];
  }
  write(a, o, h.output(a), a.heads * a.size, q0, a.tq, d, r, [&](int i) { return sum[i]; }, m);
}

// delta = do o for 64 queries: what the gradients of a query's weights have in common.
// Two threads have a query.
DEV void find_delta(const Attention &a, const Head &h, const void *dy, const void *o, float *delta, u32 q0, Shared &m) {
  const u32 i = q0 + (TID >> 1);
  float s = 0.0f;
  if (i < a.tq)
    NO_UNROLL for (u32 d = (TID & 1) * 4; d < a.size; d += 8) {
      const u64 at = h.output(a) + (u64)i * a.heads * a.size + d;
      float x[4], y[4];
      load_some(x, a.format, dy, at, (i32)(a.size - d), a.size % 4 == 0);
      load_some(y, a.format, o, at, (i32)(a.size - d), a.size % 4 == 0);
      UNROLL for (int j = 0; j < 4; j++) s = fma(x[j], y[j], s);
    }
  s += shuffle_xor(s, 1);
  m.delta[TID >> 1] = s;
  if (BLOCK_Y == 0 && i < a.tq && (TID & 1) == 0) delta[(u64)h.index * a.tq + i] = s;
}

// A value of each query of a tile, in float.
DEV void bring(float (&to)[TILE], const Attention &a, const Head &h, const float *from, u32 q0, float scale) {
  if ((u32)TID < TILE) to[TID] = q0 + TID < a.tq ? from[(u64)h.index * a.tq + q0 + TID] * scale : 0.0f;
}

// One weight and its gradient: of a score s and the product dp of do and v it makes
// the weight after dropout and the gradient of the scaled score.
DEV void weight_grad(float &s, float &dp, const Attention &a, u32 i, u32 j, const Shared &m) {
  const float p = bit(m.seen[i], j) ? ex2(fma(s, a.scale * LOG2E, -m.lse[i])) : 0.0f;
  s = bit(m.kept[i], j) ? p * a.drop_scale : 0.0f;
  dp = fma(s, dp, -p * m.delta[i]);
}

// dq = scale sum ds k, for 64 queries.
KERNEL __launch_bounds__(128, 2) attention_dq(const void *q, const void *k, const void *v, const void *dy, const void *o, const float *lse, float *delta, void *dq, Attention a) {
  __shared__ Shared m;
  __shared__ HeldSpan span; // of keys
  const Head h(a, head_of_block(a.tq));
  const u32 q0 = last_tile_of_block(a.tq), d = BLOCK_Y * WIDE;
  span = Span(a, h, q0, 0, h.visible(a, min_(q0 + TILE, a.tq) - 1), m.seen[0]);
  SYNC();
  const Vectors queries(a, q, h.queries(a), a.row, q0, a.tq), grads(a, dy, h.output(a), a.heads * a.size, q0, a.tq);
  find_delta(a, h, dy, o, delta, q0, m);
  bring(m.lse, a, h, lse, q0, LOG2E);
  Result r;
  clear(r);
  for (u32 k0 = span.from / TILE * TILE; k0 < span.end; k0 += TILE) {
    const Vectors keys(a, k, h.others(a), a.key_row, k0, span.end), values(a, v, h.others(a), a.key_row, k0, span.end);
    Scores s, dp;
    SYNC();
    prepare(a, h, q0, k0, span.clear <= k0 && k0 + TILE <= span.end, m);
    multiply(s, queries, keys, m);
    multiply(dp, grads, values, m);
    UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 4; j++) weight_grad(s[i][j], dp[i][j], a, ty() * 8 + i, tx() + 16 * j, m);
    put(dp, m);
    accumulate(r, keys, d, m);
  }
  write(a, dq, h.queries(a), a.row, q0, a.tq, d, r, [&](int) { return a.scale; }, m);
}

// dk = scale sum ds q and dv = sum p do, for 64 keys: rows are keys, columns queries, of
// one head after another that share the keys.
KERNEL __launch_bounds__(128, 2) attention_dkv(const void *q, const void *k, const void *v, const void *dy, const float *lse, const float *delta, void *dk, void *dv, Attention a) {
  __shared__ Shared m;
  __shared__ HeldSpan span; // of queries
  Head h(a, head_of_block(a.tk) * a.group);
  const u32 k0 = tile_of_block(a.tk), d = BLOCK_Y * WIDE;
  const Vectors keys(a, k, h.others(a), a.key_row, k0, h.keys), values(a, v, h.others(a), a.key_row, k0, h.keys);
  const u64 at = h.others(a);
  Result rk, rv;
  clear(rk);
  clear(rv);
  span = Span(a, h, k0, h.first(a, k0), k0 < h.keys ? a.tq : 0, m.seen[0]); // keys that nothing sees have no gradient
  SYNC();
  NO_UNROLL for (u32 n = 0; n < a.group; n++, h.next())
    for (u32 q0 = span.from / TILE * TILE; q0 < span.end; q0 += TILE) {
      const Vectors queries(a, q, h.queries(a), a.row, q0, a.tq), grads(a, dy, h.output(a), a.heads * a.size, q0, a.tq);
      Scores s, dp;
      SYNC();
      prepare(a, h, q0, k0, span.clear <= q0 && q0 + TILE <= span.end, m);
      bring(m.lse, a, h, lse, q0, LOG2E);
      bring(m.delta, a, h, delta, q0, 1.0f);
      multiply(s, keys, queries, m);
      multiply(dp, values, grads, m);
      UNROLL for (int i = 0; i < 8; i++) UNROLL for (int j = 0; j < 4; j++) weight_grad(s[i][j], dp[i][j], a, tx() + 16 * j, ty() * 8 + i, m);
      put(s, m);
      accumulate(rv, grads, d, m);
      SYNC();
      put(dp, m);
      accumulate(rk, queries, d, m);
    }
  write(a, dk, at, a.key_row, k0, a.tk, d, rk, [&](int) { return a.scale; }, m);
  write(a, dv, at, a.key_row, k0, a.tk, d, rv, [&](int) { return 1.0f; }, m);
}
