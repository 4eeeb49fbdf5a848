// Attention and its gradients on tensor cores, in f16 and from sm_80 on bf16, with
// sums in float. attention_32.cu and so on make kernels for heads of up to so many
// elements, a multiple of 8; the rest of D is filled with zeros.
//
// A block of four warps has 64 queries, or 64 keys for their gradients, 16 a warp.
// What it owns stays in registers as the A operand; what it walks over passes through
// shared memory. Products of scores lie in registers as their consumer's A operand
// does: neither weights nor their gradients are ever in memory. For that the gradients
// of keys and values are computed from transposed scores, k q^T.
//
// A tile in shared memory has rows of D/8 chunks of 16 bytes. Eight rows of one chunk,
// which ldmatrix reads together, and eight chunks in order, which eight threads write,
// should meet all 32 banks. So chunk c of row r lies at c ^ swizzle(r): of the 8 rows,
// those whose starts fall on the same banks get different swizzles.
#pragma once
#include "attention.h"
#include "mma.h"

DEV u32 lane() { return TID & 31; }
DEV u32 warp() { return TID >> 5; }
// A fragment of a product has rows group and group+8, and of each 8 columns `pair` and
// the next.
DEV u32 group() { return lane() >> 2; }
DEV u32 pair() { return (lane() & 3) * 2; }

DEV void store_shared(u32 at, const u32 (&r)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}

template <int D> struct Tile {
  static constexpr u32 chunks = D / 8, spread = chunks % 8 == 0 ? 8 : chunks % 4 == 0 ? 4 : 2;
  u32 base, lane;
  MEMBER explicit Tile(u32 base, u32 lane = TID & 31) : base(base), lane(lane) {}
  MEMBER u32 at(u32 r, u32 c) const { return base + r * (2 * D) + ((c ^ (r / (8 / spread) % spread)) << 4); }
  // The A operand of rows r.. and columns 16k..
  MEMBER void rows(u32 (&f)[4], u32 r, u32 k) const { load_matrices(f, at(r + (lane & 15), 2 * k + (lane >> 4))); }
  // The B operands, 8 columns each, of the transposed tile: columns r.., rows 16k..
  MEMBER void columns(u32 (&f)[4], u32 r, u32 k) const { load_matrices(f, at(r + (lane & 7) + (lane >> 4) * 8, 2 * k + (lane >> 3 & 1))); }
  // Those of the tile: rows r.., columns 16j..
  MEMBER void across(u32 (&f)[4], u32 r, u32 j) const { load_matrices_transposed(f, at(r + (lane & 15), 2 * j + (lane >> 4))); }
};

// Vectors of a head: `stride` apart, of `size` elements, none from `end` on.
template <class T> struct Vectors {
  const T *p;
  u32 stride, size, end;
};

// Copies vectors from.. to ROWS rows of a tile. From sm_80 on they arrive by arrived().
template <int ROWS, int D, class T> DEV void fetch(const Tile<D> &to, const Vectors<T> &v, u32 from) {
  constexpr u32 all = ROWS * D / 8, steps = (all + 127) / 128;
  struct Chunk { // of a thread in a step
    u32 to;
    bool used, valid;
    const T *from;
    MEMBER Chunk(const Tile<D> &tile, const Vectors<T> &v, u32 thread, u32 first, u32 step) {
      const u32 n = step * 128 + thread, r = n / (D / 8), c = n % (D / 8);
      to = tile.at(r, c);
      used = all % 128 == 0 || n < all;
      valid = first + r < v.end && c * 8 < v.size;
      from = v.p + (valid ? (u64)(first + r) * v.stride + c * 8 : 0);
    }
  };
  const u32 thread = D > 96 ? anew(TID) : TID;
#if HAVE_CP_ASYNC
  UNROLL for (u32 i = 0; i < steps; i++) {
    const Chunk c(to, v, thread, from, i);
    if (c.used) copy_async(c.to, c.from, c.valid);
  }
  copies_commit();
#else
  constexpr u32 most = 4; // loads under way
  UNROLL for (u32 i = 0; i < steps; i += most) {
    u32 x[most][4];
    UNROLL for (u32 k = 0; k < most && i + k < steps; k++) {
      const Chunk c(to, v, thread, from, i + k);
      load_or_zero(x[k], c.from, c.valid);
    }
    UNROLL for (u32 k = 0; k < most && i + k < steps; k++) {
      const Chunk c(to, v, thread, from, i + k);
      if (c.used) store_shared(c.to, x[k]);
    }
  }
#endif
}
// Waits for what the block has fetched, and for the block.
DEV void arrived() {
#if HAVE_CP_ASYNC
  copies_wait<0>();
#endif
  SYNC();
}

template <int N> DEV void clear(float (&x)[N][4]) { UNROLL for (int i = 0; i < N; i++) UNROLL for (int j = 0; j < 4; j++) x[i][j] = 0.0f; }

// Writes rows from.. of a warp's result, times a scale for rows group and group+8, by
// way of its 16 rows of a tile that no other warp uses any more.
template <int D, class T> DEV void write(const Tile<D> &by, float (&x)[D / 8][4], float low, float high, T *p, u32 stride, u32 size, u32 from, u32 end) {
  const u32 first = warp() * 16;
  UNROLL for (u32 j = 0; j < D / 8; j++) UNROLL for (u32 k = 0; k < 2; k++) {
    const float scale = k ? high : low;
    const u32 v = pack2<T>(x[j][2 * k] * scale, x[j][2 * k + 1] * scale);
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(by.at(first + group() + 8 * k, j) + (lane() & 3) * 4), "r"(v) : "memory");
  }
  warp_sync();
  UNROLL for (u32 i = 0; i < D / 16; i++) {
    const u32 n = i * 32 + lane(), r = first + n / (D / 8), c = n % (D / 8);
    u32 v[4];
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(by.at(r, c)) : "memory");
    if (from + r < end && c * 8 < size)
      asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p + (u64)(from + r) * stride + c * 8), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
  }
}

// Who sees whom and what dropout keeps, of a warp's 16 queries and 2 PART keys: lane
// 2i+p has the bits of keys p*PART.. of query i.
template <int PART> struct Masks {
  u32 visible, keep;
  u32 some;    // bit i is set if one of the queries sees one of the i-th 16 keys: the products of others are not needed
  bool masked; // whether somebody does not see something
  // No segment hides anything from position clear to the last key of h.
  MEMBER Masks(const Attention &a, const Head &h, u32 clear, u32 q0, u32 k0) : visible(~0u), keep(~0u), some(~0u) {
    masked = k0 < clear || k0 + 2 * PART > h.visible(a, q0);
    const u32 q = min_(q0 + warp() * 16 + (lane() >> 1), a.tq - 1);
    if (masked) {
      visible = seen<PART>(a, h, q, k0);
      some = 0;
      UNROLL for (u32 i = 0; i < PART / 16; i++) {
        const u32 of = ballot((visible >> 16 * i & 0xffff) != 0);
        some |= (u32)((of & 0x55555555) != 0) << i | (u32)((of & 0xaaaaaaaa) != 0) << (i + PART / 16);
      }
    }
    if (a.run) keep = kept<PART>(a, weight(a, h, q) + k0 + (lane() & 1) * PART);
  }
  // The word of a fragment's row group (or group+8) from key k on.
  static MEMBER u32 word(u32 of, u32 k, u32 low) { return shuffle_from(of, (group() + low) * 2 + k / PART) >> (k % PART + pair()); }
};

// o = softmax(scale q k^T) v.
template <class T, int D> DEV void forward(const T *q, const T *k, const T *v, T *o, float *lse, const Attention &a) {
  __shared__ ALIGNED(128) T memory[2][TILE * D];
  const Tile<D> keys(shared_address(memory[0])), values(shared_address(memory[1]));
  Head h(a, head_of_block(a.tq));
  const u32 q0 = last_tile_of_block(a.tq), row = q0 + warp() * 16 + group();
  const Span span(a, h, q0, 0, h.visible(a, min_(q0 + TILE, a.tq) - 1), (u32 *)memory[0]);
  const u32 begin = span.from / TILE * TILE, end = span.end;
  h.keys = min_(h.keys, end);
  const Vectors<T> vk{k + h.others(a), a.key_row, a.size, end}, vv{v + h.others(a), a.key_row, a.size, end};
  const float scale = a.scale * LOG2E;

  fetch<TILE>(keys, Vectors<T>{q + h.queries(a), a.row, a.size, a.tq}, q0);
  arrived();
  u32 qf[D / 16][4];
  UNROLL for (u32 i = 0; i < D / 16; i++) keys.rows(qf[i], warp() * 16, i);
  SYNC();
  if (begin < end) fetch<TILE>(keys, vk, begin);

  // top is the largest score in base 2. The weights so far are relative to it, rounded as it
  // is: where it stays, they are multiplied by exactly 1, so that a tile of which nothing is
  // seen would change no bit.
  float r[D / 8][4], top[2] = {-__builtin_inff(), -__builtin_inff()}, sum[2] = {0.0f, 0.0f};
  clear(r);
  NO_UNROLL for (u32 k0 = begin; k0 < end; k0 += TILE) {
    arrived(); // the keys; and the values before are done with
    fetch<TILE>(values, vv, k0);
    const Masks<32> m(a, h, span.clear, q0, k0);
    float s[8][4];
    clear(s);
    const bool whole = m.some == ~0u; // without branches, loads of one product overlap others
    auto score = [&](u32 first, u32 n) __attribute__((always_inline)) {
      UNROLL for (u32 i = 0; i < D / 16; i++) UNROLL for (u32 j = first; j < first + n; j++) {
        u32 b[4];
        keys.columns(b, j * 16, i);
        mma<T>(s[2 * j], qf[i], b[0], b[1]);
        mma<T>(s[2 * j + 1], qf[i], b[2], b[3]);
      }
    };
    if (whole) score(0, 4);
    else // by 32 keys: four sums at a time, so that none waits for itself
      UNROLL for (u32 j = 0; j < 4; j += 2) if (m.some >> j & 3) score(j, 2);
    if (m.masked)
      UNROLL for (u32 half = 0; half < 2; half++) UNROLL for (u32 p = 0; p < 2; p++) {
        const u32 w = m.word(m.visible, p * 32, half * 8);
        UNROLL for (u32 j = 0; j < 4; j++) UNROLL for (u32 x = 0; x < 2; x++)
          if (!(w >> (j * 8 + x) & 1)) s[p * 4 + j][2 * half + x] = -__builtin_inff();
      }
    UNROLL for (u32 half = 0; half < 2; half++) {
      float t = -__builtin_inff();
      UNROLL for (u32 j = 0; j < 8; j++) t = fmax_(t, fmax_(s[j][2 * half], s[j][2 * half + 1]));
      t = fmax_(t, shuffle_xor(t, 1));
      t = fmax_(t, shuffle_xor(t, 2));
      t = fmax_(top[half], t * scale);
      const float base = t == -__builtin_inff() ? 0.0f : t; // nothing seen yet
      const float shrink = ex2(top[half] - base);
      top[half] = t;
      sum[half] *= shrink;
      UNROLL for (u32 j = 0; j < D / 8; j++) {
        r[j][2 * half] *= shrink;
        r[j][2 * half + 1] *= shrink;
      }
      UNROLL for (u32 j = 0; j < 8; j++) UNROLL for (u32 x = 0; x < 2; x++) {
        s[j][2 * half + x] = ex2(fma(s[j][2 * half + x], scale, -base));
        sum[half] += s[j][2 * half + x];
      }
    }
    if (a.run)
      UNROLL for (u32 half = 0; half < 2; half++) UNROLL for (u32 p = 0; p < 2; p++) {
        const u32 w = m.word(m.keep, p * 32, half * 8);
        UNROLL for (u32 j = 0; j < 4; j++) UNROLL for (u32 x = 0; x < 2; x++)
          if (!(w >> (j * 8 + x) & 1)) s[p * 4 + j][2 * half + x] = 0.0f;
      }
    arrived(); // the values; and the keys are done with
    if (k0 + TILE < end) fetch<TILE>(keys, vk, k0 + TILE);
    auto weigh = [&](u32 i) __attribute__((always_inline)) {
      const u32 p[4] = {pack2<T>(s[2 * i][0], s[2 * i][1]), pack2<T>(s[2 * i][2], s[2 * i][3]), pack2<T>(s[2 * i + 1][0], s[2 * i + 1][1]),
                        pack2<T>(s[2 * i + 1][2], s[2 * i + 1][3])};
      UNROLL for (u32 j = 0; j < D / 16; j++) {
        u32 b[4];
        values.across(b, i * 16, j);
        mma<T>(r[2 * j], p, b[0], b[1]);
        mma<T>(r[2 * j + 1], p, b[2], b[3]);
      }
    };
    if (whole) UNROLL for (u32 i = 0; i < 4; i++) weigh(i);
    else UNROLL for (u32 i = 0; i < 4; i++) if (m.some >> i & 1) weigh(i);
  }
  UNROLL for (u32 half = 0; half < 2; half++) {
    float s = sum[half];
    s += shuffle_xor(s, 1);
    s += shuffle_xor(s, 2);
    if ((lane() & 3) == 0 && row + 8 * half < a.tq)
      lse[(u64)h.index * a.tq + row + 8 * half] = top[half] == -__builtin_inff() ? top[half] : fma(top[half], 1.0f / LOG2E, log_(s));
    sum[half] = s == 0.0f ? 0.0f : a.drop_scale / s;
  }
  SYNC();
  write(values, r, sum[0], sum[1], o + h.output(a), a.heads * a.size, a.size, q0, a.tq);
}

// How many keys or queries the gradients fetch at a time, and how many such tiles there
// are: with two, one arrives while the other is worked on.
#if HAVE_CP_ASYNC
constexpr u32 STAGES = 2, STEP = 32;
#else
constexpr u32 STAGES = 1, STEP = 64;
#endif

// dq = scale sum ds k, and delta = do o, what the gradients of a query's weights have
// in common.
template <class T, int D> DEV void grad_queries(const T *q, const T *k, const T *v, const T *dy, const T *o, const float *lse, float *delta, T *dq, const Attention &a) {
  __shared__ ALIGNED(128) T memory[2][STAGES * STEP * D]; // and nothing else: two blocks of heads of 128 fill a T4's
  Head h(a, head_of_block(a.tq));
  const u32 q0 = last_tile_of_block(a.tq), own = warp() * 16 + group();
  const Span span(a, h, q0, 0, h.visible(a, min_(q0 + TILE, a.tq) - 1), (u32 *)memory[0]);
  const u32 begin = span.from / STEP * STEP, end = span.end, width = a.heads * a.size;
  h.keys = min_(h.keys, end);
  const Vectors<T> vk{k + h.others(a), a.key_row, a.size, end}, vv{v + h.others(a), a.key_row, a.size, end};
  const float scale = a.scale * LOG2E;

  u32 qf[D / 16][4], gf[D / 16][4];
  float common[2];
  {
    const Tile<D> queries(shared_address(memory[0])), grads(shared_address(memory[1]));
    fetch<TILE>(queries, Vectors<T>{q + h.queries(a), a.row, a.size, a.tq}, q0);
    fetch<TILE>(grads, Vectors<T>{dy + h.output(a), width, a.size, a.tq}, q0);
    const u32 i = q0 + (TID >> 1); // two threads compute delta of a query, both of the warp that needs it
    float s = 0.0f;
    if (i < a.tq)
      NO_UNROLL for (u32 c = (TID & 1) * 8; c < a.size; c += 16) {
        const u64 at = h.output(a) + (u64)i * width + c;
        float x[8], y[8];
        load(x, dy + at);
        load(y, o + at);
        UNROLL for (int j = 0; j < 8; j++) s = fma(x[j], y[j], s);
      }
    s += shuffle_xor(s, 1);
    if (i < a.tq && (TID & 1) == 0) delta[(u64)h.index * a.tq + i] = s;
    UNROLL for (u32 half = 0; half < 2; half++) common[half] = bits_f32(shuffle_from(f32_bits(s), 2 * (group() + 8 * half)));
    arrived();
    UNROLL for (u32 j = 0; j < D / 16; j++) {
      queries.rows(qf[j], warp() * 16, j);
      grads.rows(gf[j], warp() * 16, j);
    }
    SYNC();
  }
  float base[2];
  UNROLL for (u32 half = 0; half < 2; half++) {
    const u32 i = q0 + own + 8 * half;
    base[half] = i < a.tq ? lse[(u64)h.index * a.tq + i] * LOG2E : 0.0f;
  }

  float r[D / 8][4];
  clear(r);
  auto tile = [&](u32 which, u32 stage) { return Tile<D>(shared_address(memory[which]) + stage * (STEP * D * 2)); };
  auto get = [&](u32 k0, u32 stage) {
    fetch<STEP>(tile(0, stage), vk, k0);
    fetch<STEP>(tile(1, stage), vv, k0);
  };
  u32 stage = 0;
  if (STAGES == 2 && begin < end) get(begin, 0);
  NO_UNROLL for (u32 k0 = begin; k0 < end; k0 += STEP, stage ^= STAGES - 1) {
    if (STAGES == 1) {
      SYNC();
      get(k0, 0);
    }
    arrived();
    if (STAGES == 2 && k0 + STEP < end) get(k0 + STEP, stage ^ 1);
    const Tile<D> keys = tile(0, stage), values = tile(1, stage);
    const Masks<STEP / 2> m(a, h, span.clear, q0, k0);
    NO_UNROLL for (u32 c = 0; c < STEP; c += 16) {
      if (!(m.some >> c / 16 & 1)) continue;
      float s[2][4], dp[2][4];
      clear(s);
      clear(dp);
      UNROLL for (u32 i = 0; i < D / 16; i++) {
        u32 b[4];
        keys.columns(b, c, i);
        mma<T>(s[0], qf[i], b[0], b[1]);
        mma<T>(s[1], qf[i], b[2], b[3]);
        values.columns(b, c, i);
        mma<T>(dp[0], gf[i], b[0], b[1]);
        mma<T>(dp[1], gf[i], b[2], b[3]);
      }
      UNROLL for (u32 j = 0; j < 2; j++) UNROLL for (u32 x = 0; x < 4; x++) s[j][x] = ex2(fma(s[j][x], scale, -base[x >> 1]));
      if (m.masked)
        UNROLL for (u32 half = 0; half < 2; half++) {
          const u32 w = m.word(m.visible, c, half * 8);
          UNROLL for (u32 j = 0; j < 2; j++) UNROLL for (u32 x = 0; x < 2; x++) if (!(w >> (j * 8 + x) & 1)) s[j][2 * half + x] = 0.0f;
        }
      if (a.run)
        UNROLL for (u32 half = 0; half < 2; half++) {
          const u32 w = m.word(m.keep, c, half * 8);
          UNROLL for (u32 j = 0; j < 2; j++) UNROLL for (u32 x = 0; x < 2; x++) dp[j][2 * half + x] = w >> (j * 8 + x) & 1 ? dp[j][2 * half + x] * a.drop_scale : 0.0f;
        }
      UNROLL for (u32 j = 0; j < 2; j++) UNROLL for (u32 x = 0; x < 4; x++) s[j][x] *= dp[j][x] - common[x >> 1];
      const u32 ds[4] = {pack2<T>(s[0][0], s[0][1]), pack2<T>(s[0][2], s[0][3]), pack2<T>(s[1][0], s[1][1]), pack2<T>(s[1][2], s[1][3])};
      UNROLL for (u32 j = 0; j < D / 16; j++) {
        u32 b[4];
        keys.across(b, c, j);
        mma<T>(r[2 * j], ds, b[0], b[1]);
        mma<T>(r[2 * j + 1], ds, b[2], b[3]);
      }
    }
  }
  SYNC();
  write(Tile<D>(shared_address(memory[0])), r, a.scale, a.scale, dq + h.queries(a), a.row, a.size, q0, a.tq);
}

// dk = scale sum ds q and dv = sum p do, of one head after another that share keys.
template <class T, int D> DEV void grad_keys(const T *q, const T *k, const T *v, const T *dy, const float *lse, const float *delta, T *dk, T *dv, const Attention &a) {
  // With more than 96 elements the values find no room in registers.
  constexpr bool stay = D > 96;
  constexpr u32 QUERIES = stay ? 16 : 32;
  __shared__ ALIGNED(128) T memory[STAGES * 2 * QUERIES * D], own[stay ? TILE * D : 8]; // of each stage the queries, then the gradients
  __shared__ float bases[STAGES][QUERIES], commons[STAGES][QUERIES];
  __shared__ HeldSpan span; // of queries
  const Tile<D> whole(shared_address(stay ? own : memory)); // of 64 vectors
  static_assert(stay || sizeof(memory) >= 2 * TILE * D);
  Head h(a, head_of_block(a.tk) * a.group);
  const u32 k0 = tile_of_block(a.tk), kw = k0 + warp() * 16;
  const float scale = a.scale * LOG2E;
  span = Span(a, h, k0, h.first(a, k0), k0 < h.keys ? a.tq : 0, (u32 *)bases);

  u32 kf[D / 16][4], vf[stay ? 1 : D / 16][4];
  fetch<TILE>(whole, Vectors<T>{k + h.others(a), a.key_row, a.size, h.keys}, k0);
  arrived();
  UNROLL for (u32 i = 0; i < D / 16; i++) whole.rows(kf[i], warp() * 16, i);
  SYNC();
  fetch<TILE>(whole, Vectors<T>{v + h.others(a), a.key_row, a.size, h.keys}, k0);
  arrived();
  if (!stay) {
    UNROLL for (u32 i = 0; i < D / 16; i++) whole.rows(vf[i], warp() * 16, i);
    SYNC();
  }

  float rk[D / 8][4], rv[D / 8][4];
  clear(rk);
  clear(rv);
  auto tile = [&](u32 which, u32 stage) { return Tile<D>(shared_address(memory) + (2 * stage + which) * (QUERIES * D * 2)); };
  auto get = [&](u32 q0, u32 stage) {
    fetch<QUERIES>(tile(0, stage), Vectors<T>{q + h.queries(a), a.row, a.size, span.end}, q0);
    fetch<QUERIES>(tile(1, stage), Vectors<T>{dy + h.output(a), a.heads * a.size, a.size, span.end}, q0);
    if ((u32)TID < QUERIES) {
      const u64 at = (u64)h.index * a.tq + q0 + TID;
      const bool in = q0 + TID < span.end; // the gradients of others are zeros
      bases[stage][TID] = in ? lse[at] * LOG2E : 0.0f;
      commons[stage][TID] = in ? delta[at] : 0.0f;
    }
  };
  if (k0 < h.keys) // keys that nothing sees have no gradient
    NO_UNROLL for (u32 n = 0; D >= 64 ? h.index < (head_of_block(a.tk) + 1) * a.group : n < a.group; n++, h.next()) {
      u32 q0 = span.from / QUERIES * QUERIES, stage = 0;
      if (STAGES == 2 && q0 < span.end) get(q0, 0);
      NO_UNROLL for (; q0 < span.end; q0 += QUERIES, stage ^= STAGES - 1) {
        if (STAGES == 1) {
          SYNC();
          get(q0, 0);
        }
        arrived();
        if (STAGES == 2 && q0 + QUERIES < span.end) get(q0 + QUERIES, stage ^ 1);
        // A lane has the bits of the warp's 16 keys for a query.
        const bool masked = q0 < span.clear || k0 + TILE > h.visible(a, q0);
        u32 visible = ~0u, keep = ~0u;
        {
          const u32 i = min_(q0 + lane(), a.tq - 1);
          if (masked) visible = seen_of_16(a, h, i, kw);
          if (a.run) keep = kept<16>(a, weight(a, h, i) + kw);
        }
        NO_UNROLL for (u32 c = 0; c < QUERIES; c += 16) {
          if (!(ballot(visible != 0) >> c & 0xffff)) continue; // none of these queries sees the warp's keys
          const u32 thread = D >= 64 ? anew(TID) : TID, own_lane = thread & 31;
          const Tile<D> queries(tile(0, stage).base, own_lane), grads(tile(1, stage).base, own_lane), values(whole.base, own_lane);
          float s[2][4], dp[2][4];
          clear(s);
          clear(dp);
          UNROLL for (u32 i = 0; i < D / 16; i++) {
            u32 b[4];
            queries.columns(b, c, i);
            mma<T>(s[0], kf[i], b[0], b[1]);
            mma<T>(s[1], kf[i], b[2], b[3]);
            u32 held[4];
            if (stay) values.rows(held, (thread >> 5) * 16, i);
            const u32(&f)[4] = stay ? held : vf[i];
            grads.columns(b, c, i);
            mma<T>(dp[0], f, b[0], b[1]);
            mma<T>(dp[1], f, b[2], b[3]);
          }
          UNROLL for (u32 j = 0; j < 2; j++) UNROLL for (u32 x = 0; x < 2; x++) {
            const u32 i = c + j * 8 + pair() + x;
            const float base = bases[stage][i], common = commons[stage][i];
            const u32 sees = masked ? shuffle_from(visible, i) >> group() : ~0u, keeps = a.run ? shuffle_from(keep, i) >> group() : ~0u;
            UNROLL for (u32 half = 0; half < 2; half++) {
              float &p = s[j][2 * half + x], &d = dp[j][2 * half + x];
              const float weight = ex2(fma(p, scale, -base)), grad = d * a.drop_scale;
              p = sees >> (8 * half) & 1 ? weight : 0.0f;
              d = p * ((keeps >> (8 * half) & 1 ? grad : 0.0f) - common);
              p = keeps >> (8 * half) & 1 ? p : 0.0f;
            }
          }
          const u32 pf[4] = {pack2<T>(s[0][0], s[0][1]), pack2<T>(s[0][2], s[0][3]), pack2<T>(s[1][0], s[1][1]), pack2<T>(s[1][2], s[1][3])};
          const u32 df[4] = {pack2<T>(dp[0][0], dp[0][1]), pack2<T>(dp[0][2], dp[0][3]), pack2<T>(dp[1][0], dp[1][1]), pack2<T>(dp[1][2], dp[1][3])};
          UNROLL for (u32 j = 0; j < D / 16; j++) {
            u32 b[4];
            grads.across(b, c, j);
            mma<T>(rv[2 * j], pf, b[0], b[1]);
            mma<T>(rv[2 * j + 1], pf, b[2], b[3]);
            queries.across(b, c, j);
            mma<T>(rk[2 * j], df, b[0], b[1]);
            mma<T>(rk[2 * j + 1], df, b[2], b[3]);
          }
        }
      }
      SYNC();
    }
  const u64 at = Head(a, head_of_block(a.tk) * a.group).others(a); // anew: it is not kept meanwhile
  write(whole, rk, a.scale, a.scale, dk + at, a.key_row, a.size, k0, a.tk);
  warp_sync();
  write(whole, rv, a.drop_scale, a.drop_scale, dv + at, a.key_row, a.size, k0, a.tk);
}

// As many blocks an SM as registers allow without spills: five take 96 each, four 128, three 168.
#define BOUNDS(D) __launch_bounds__(128, D <= 16 ? 5 : D <= 32 ? 4 : D <= 64 ? 3 : 2)
#define ATTENTION_OF(D, S, T)                                                                                                                        \
  KERNEL BOUNDS(D) attention_##S##_##D(const T *q, const T *k, const T *v, T *o, float *lse, Attention a) { forward<T, D>(q, k, v, o, lse, a); }      \
  KERNEL BOUNDS(D) attention_dq_##S##_##D(const T *q, const T *k, const T *v, const T *dy, const T *o, const float *lse, float *delta, T *dq, Attention a) { \
    grad_queries<T, D>(q, k, v, dy, o, lse, delta, dq, a);                                                                                           \
  }                                                                                                                                                  \
  KERNEL BOUNDS(D) attention_dkv_##S##_##D(const T *q, const T *k, const T *v, const T *dy, const float *lse, const float *delta, T *dk, T *dv, Attention a) { \
    grad_keys<T, D>(q, k, v, dy, lse, delta, dk, dv, a);                                                                                             \
  }
#if HAVE_BF16
#define ATTENTION(D) ATTENTION_OF(D, f16, f16) ATTENTION_OF(D, bf16, bf16)
#else
#define ATTENTION(D) ATTENTION_OF(D, f16, f16)
#endif
