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

// Which of the 32 keys from j on query i sees.
DEV u32 seen(const Attention &a, const Head &h, u32 i, u32 j) {
  const u32 end = h.visible(a, i);
  u32 bits = j + 32 <= end ? ~0u : j < end ? (1u << (end - j)) - 1 : 0;
  if (a.segments) {
    const i32 *segments = a.segments + (u64)h.b * a.tq, own = segments[i];
    NO_UNROLL for (u32 n = 0; n < 32 && j + n < end; n++)
      if (segments[j + n] != own) bits &= ~(1u << n);
  }
  return bits;
}

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
