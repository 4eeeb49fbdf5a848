// What the kernels of attention share: the operands, what a query sees, and the
// random numbers of dropout.
#pragma once
#include "math.h"

enum { F32, F16, BF16 }; // formats

// An attention of batch*heads heads of queries, of which `group` next to each other share
// a head of keys and values. Element c of position t of head h in row b of q, or of its
// gradient, is row*(b*T+t) + head*h + c from where that begins; of k or v likewise with
// key_row, and of o and its gradient with rows of heads*size. `inverse` is 2^31/group
// rounded up: a division takes registers that these kernels do not have.
struct Attention {
  u32 heads, group, inverse, tq, tk, size, row, key_row, head;
  u32 format, causal, seed0, seed1, stream;
  u32 kept;    // a weight stays if the upper 24 bits of its random word are below
  float scale; // of the scores
  float drop_scale;
  const i32 *lens, *segments; // null where not enabled, as is run
  const u32 *run;
};

// One head of it: number `index` of all, in row b of the batch.
struct Head {
  u32 b, index;
  u32 keys;  // all queries see none from here on
  u32 shift; // a causal query i sees the first i + 1 + shift keys
  MEMBER Head(const Attention &a, u32 index) : b(index / a.heads), index(index), keys(a.tk), shift(0) {
    i32 n = (i32)a.tk;
    if (a.lens) asm("ld.global.nc.s32 %0, [%1];" : "=r"(n) : "l"(a.lens + b)); // in asm, or clang puts tk into memory to choose between addresses
    keys = min_(a.tk, n > 0 ? (u32)n : 0);
    shift = n > (i32)a.tq ? (u32)n - a.tq : 0;
  }
  MEMBER void next() { index++; }                                          // in the same row of the batch
  MEMBER u32 in_row(const Attention &a) const { return index - b * a.heads; } // computed where needed: a register less
  // How many keys query i sees, but for segments.
  MEMBER u32 visible(const Attention &a, u32 i) const { return a.causal ? min_(keys, i + 1 + shift) : keys; }
  // The first query that sees key j.
  MEMBER u32 first(const Attention &a, u32 j) const { return a.causal && j > shift ? j - shift : 0; }
  MEMBER u64 queries(const Attention &a) const { return (u64)b * a.tq * a.row + (u64)in_row(a) * a.head; }
  MEMBER u64 others(const Attention &a) const { return (u64)b * a.tk * a.key_row + (in_row(a) * (u64)a.inverse >> 31) * a.head; } // keys and values
  MEMBER u64 output(const Attention &a) const { return ((u64)b * a.tq * a.heads + in_row(a)) * a.size; }
};

// Which of the N <= 32 keys from j on query i sees, but for segments.
template <int N> DEV u32 before(const Attention &a, const Head &h, u32 i, u32 j) {
  const u32 end = h.visible(a, i);
  return j + N <= end ? ~0u >> (32 - N) : j < end ? (1u << (end - j)) - 1 : 0;
}

// The segments of a row of the batch, which has as many queries as keys.
struct Segments {
  const i32 *of;
  u32 last;
  MEMBER Segments(const Attention &a, const Head &h) : of(a.segments + (u64)h.b * a.tq), last(a.tq - 1) {}
  MEMBER i32 operator[](u32 i) const { return of[min_(i, last)]; }
};
// Which of 16 positions, whose segments lanes from, from+STEP, ... hold, are in segment own. Four at a
// time: more take registers that kernels for small heads do not have.
template <int STEP> DEV u32 same(i32 held, i32 own, u32 from) {
  u32 bits = 0;
  _Pragma("unroll 4") for (u32 n = 0; n < 16; n++) bits |= (u32)((i32)shuffle_from((u32)held, from + STEP * n) == own) << n;
  return bits;
}

// Which of N keys each query of a warp sees: lane 2i+p has one query, and of 2N keys from
// k0 on half p.
template <int N> DEV u32 seen(const Attention &a, const Head &h, u32 i, u32 k0) {
  const u32 p = TID & 1, j = k0 + p * N;
  u32 bits = before<N>(a, h, i, j);
  if (a.segments) {
    const Segments s(a, h);
    const i32 own = s[i];
    u32 equal = 0;
    UNROLL for (u32 n = 0; n < N; n += 16) equal |= same<2>(s[j + n + ((TID & 31) >> 1)], own, p) << n;
    bits &= equal;
  }
  return bits;
}
// Which of 16 keys each query of a warp sees, a query a lane.
DEV u32 seen_of_16(const Attention &a, const Head &h, u32 i, u32 k0) {
  u32 bits = before<16>(a, h, i, k0);
  if (a.segments) {
    const Segments s(a, h);
    bits &= same<1>(s[k0 + (TID & 15)], s[i], 0);
  }
  return bits;
}

// The part of positions first..after-1 that segments let a tile see: from the first to the
// last whose segment is between the least and the greatest of the tile's own. That holds for
// any numbers; for numbers in order, as in a packed row, each tile of the part has something
// that is seen.
struct Span {
  u32 from, end;
  u32 clear; // all from here to the end are in the tile's only segment; ~0u where that does not hold
  // own is the tile's first position; scratch is 12 words that nobody uses, and free again afterwards.
  MEMBER Span(const Attention &a, const Head &h, u32 own, u32 first, u32 after, u32 *scratch) : from(first), end(after), clear(0) {
    if (!a.segments) return;
    const Segments s(a, h);
    const i32 x = s[own + (TID & 31)], y = s[own + 32 + (TID & 31)];
    i32 least = x < y ? x : y, most = x < y ? y : x;
    UNROLL for (int i = 16; i > 0; i >>= 1) {
      const i32 l = (i32)shuffle_xor((u32)least, i), m = (i32)shuffle_xor((u32)most, i);
      least = l < least ? l : least;
      most = m > most ? m : most;
    }
    u32 count = 0;
    from = after;
    end = 0;
    _Pragma("unroll 4") for (u32 j = first + TID; j < after; j += 128) {
      const i32 id = s.of[j];
      if (least <= id && id <= most) {
        from = min_(from, j);
        end = j + 1;
        count++;
      }
    }
    UNROLL for (int i = 16; i > 0; i >>= 1) {
      from = min_(from, shuffle_xor(from, i));
      end = max_(end, shuffle_xor(end, i));
      count += shuffle_xor(count, i);
    }
    if ((TID & 31) == 0) {
      u32 *to = scratch + (TID >> 5) * 3;
      to[0] = from;
      to[1] = end;
      to[2] = count;
    }
    SYNC();
    from = after;
    end = count = 0;
    UNROLL for (u32 w = 0; w < 4; w++) {
      from = min_(from, scratch[w * 3]);
      end = max_(end, scratch[w * 3 + 1]);
      count += scratch[w * 3 + 2];
    }
    SYNC();
    from = min_(from, end);
    clear = least == most && count == end - from ? from : ~0u;
  }
};
// A span in shared memory, where a kernel has no registers for it: to be read after a barrier.
struct HeldSpan {
  u32 from, end, clear;
  MEMBER void operator=(const Span &s) {
    if (TID == 0) {
      from = s.from;
      end = s.end;
      clear = s.clear;
    }
  }
};

// Which of the weights from `first` on, N <= 32 of them, dropout keeps: bit i is that
// of weight first+i. Four weights share a block of random numbers.
template <int N> DEV u32 kept(const Attention &a, u64 first) {
  const u32 skip = (u32)first & 3;
  u64 bits = 0;
  NO_UNROLL for (u32 n = 0; n < (N + 3 + skip) / 4; n++) {
    const u64 block = (first >> 2) + n;
    u32 c[4] = {(u32)block, (u32)(block >> 32), a.stream, a.run[0]};
    philox(c, a.seed0, a.seed1);
    u32 four = 0;
    UNROLL for (int i = 0; i < 4; i++) four |= (u32)(c[i] >> 8 < a.kept) << i;
    bits |= (u64)four << 4 * n;
  }
  return (u32)(bits >> skip);
}
// The number of the weight of query i for key 0.
DEV u64 weight(const Attention &a, const Head &h, u32 i) { return ((u64)h.index * a.tq + i) * a.tk; }

// The tile of queries or keys that a block has, the tiles of a head next to each other.
constexpr u32 TILE = 64;
DEV u32 tiles(u32 n) { return (n + TILE - 1) / TILE; }
DEV u32 head_of_block(u32 n) { return BLOCK_X / tiles(n); }
DEV u32 tile_of_block(u32 n) { return BLOCK_X % tiles(n) * TILE; }
// The last one first: later causal queries see more, and long work should begin early.
DEV u32 last_tile_of_block(u32 n) { return (tiles(n) - 1 - BLOCK_X % tiles(n)) * TILE; }

// Up to n of four neighbors of any format; the others are read as zeros. Where whole is
// set, n is a multiple of four and p aligned to four elements.
template <class T> DEV void load_some(float (&v)[4], const T *p, i32 n, bool whole) {
  if (whole) {
    if (n > 0) load(v, p);
  } else {
    UNROLL for (int i = 0; i < 4; i++) if (i < n) v[i] = to_f32(p[i]);
  }
}
template <class T> DEV void store_some(T *p, const float (&v)[4], i32 n, bool whole) {
  if (whole) {
    if (n > 0) store(p, v);
  } else {
    UNROLL for (int i = 0; i < 4; i++) if (i < n) p[i] = from_f32<T>(v[i]);
  }
}
DEV void load_some(float (&v)[4], u32 format, const void *p, u64 at, i32 n, bool whole) {
  UNROLL for (int i = 0; i < 4; i++) v[i] = 0.0f;
  if (format == F32) load_some(v, (const float *)p + at, n, whole);
  else if (format == F16) load_some(v, (const f16 *)p + at, n, whole);
  else load_some(v, (const bf16 *)p + at, n, whole);
}
DEV void store_some(u32 format, void *p, u64 at, const float (&v)[4], i32 n, bool whole) {
  if (format == F32) store_some((float *)p + at, v, n, whole);
  else if (format == F16) store_some((f16 *)p + at, v, n, whole);
  else store_some((bf16 *)p + at, v, n, whole);
}
