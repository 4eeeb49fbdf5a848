// What ranks do besides sending, when they exchange gradients from card to card: parts of
// states go into a row and back, and what all have sent is added up. Four elements a thread.
#include "device.h"

template <class A, class B> struct Same { static constexpr bool value = false; };
template <class A> struct Same<A, A> { static constexpr bool value = true; };
template <class To, class From> DEV To convert(From x) {
  if constexpr (Same<To, From>::value) return x; // bit by bit
  else return from_f32<To>(to_f32(x));
}

// Copies up to four of n elements from a place on.
template <class To, class From> DEV void copy(To *to, const From *from, u64 at, u64 n) {
  if (at >= n) return;
  if (n - at >= 4) {
    const Neighbors<From, 4> x = *(const Neighbors<From, 4> *)(from + at);
    Neighbors<To, 4> y;
    UNROLL for (int i = 0; i < 4; i++) y.v[i] = convert<To>(x.v[i]);
    *(Neighbors<To, 4> *)(to + at) = y;
  } else {
    UNROLL for (int i = 0; i < 3; i++) if (at + i < n) to[at + i] = convert<To>(from[at + i]);
  }
}

// A part of a state, and where it is in the row, in elements; its blocks begin with first.
struct Piece {
  void *part;
  u64 at, n;
  u32 first;
};

// Copies parts to the row, and clears them if that is asked for.
template <class T, class S> DEV void take(const Piece *table, u32 count, T *row, u32 clear) {
  const Piece p = entry(table, count, BLOCK_X);
  const u64 at = ((u64)(BLOCK_X - p.first) * 256 + TID) * 4;
  S *part = (S *)p.part;
  copy(row + p.at, part, at, p.n);
  if (clear) UNROLL for (int i = 0; i < 4; i++) if (at + i < p.n) part[at + i] = S{};
}

// Copies the row to the parts.
template <class T, class S> DEV void give(const Piece *table, u32 count, const T *row) {
  const Piece p = entry(table, count, BLOCK_X);
  copy((S *)p.part, row + p.at, ((u64)(BLOCK_X - p.first) * 256 + TID) * 4, p.n);
}

// Adds what ranks have sent, one after the other, to a sum of n elements, a multiple of four. The
// first of all becomes the sum.
template <class T> DEV void add(float *sum, const T *sent, u64 stride, u32 ranks, u64 n, u32 first) {
  const u64 at = ((u64)BLOCK_X * 256 + TID) * 4;
  if (at >= n) return;
  float s[4], v[4];
  if (first) load(s, sent + at);
  else load(s, sum + at);
  for (u32 r = first; r < ranks; r++) {
    load(v, sent + r * stride + at);
    UNROLL for (int i = 0; i < 4; i++) s[i] += v[i];
  }
  store(sum + at, s);
}

#define EXCHANGE(name, T, S) \
  KERNEL __launch_bounds__(256) exchange_take_##name(const Piece *table, u32 count, T *row, u32 clear) { take<T, S>(table, count, row, clear); } \
  KERNEL __launch_bounds__(256) exchange_give_##name(const Piece *table, u32 count, const T *row) { give<T, S>(table, count, row); }
EXCHANGE(f32, float, float)
EXCHANGE(bf16, bf16, float)
EXCHANGE(half, u16, u16) // whatever has 16 bits
EXCHANGE(widened, float, bf16)

#define SUMS(name, T) \
  KERNEL __launch_bounds__(256) exchange_add_##name(float *sum, const T *sent, u64 stride, u32 ranks, u64 n, u32 first) { add(sum, sent, stride, ranks, n, first); } \
  KERNEL __launch_bounds__(256) exchange_send_##name(const float *sum, T *to, u64 n) { copy(to, sum, ((u64)BLOCK_X * 256 + TID) * 4, n); }
SUMS(f32, float)
SUMS(bf16, bf16)

// A run of sums in the order of those who made them, and where it is in the order of all.
struct Run { u64 from, to, n; };

// Puts runs in the order of all, a block each.
KERNEL __launch_bounds__(256) exchange_order(const Run *table, const double *from, double *to) {
  const Run r = table[BLOCK_X];
  for (u64 i = TID; i < r.n; i += 256) to[r.to + i] = from[r.from + i];
}
