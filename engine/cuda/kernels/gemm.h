// A block's tile of C = op(A) op(B) on tensor cores.
//
// The tile is S x S (128 or 64), K goes by 64 bytes: 32 elements of 16 bits, 16 of
// tf32. Four warps as 2 x 2 hold S/2 x S/2 each: at 128, of 16-bit elements, 64 x 64 a warp reads 1 byte of shared memory for 32 products, so
// that a Turing card, whose shared memory gives 64 bytes a clock, is bound by its
// tensor cores.
//
// A tile of an operand lies in shared memory as in global memory, in pieces of 16
// bytes that are permuted so that neither the stores nor the loads of fragments meet
// a bank twice:
//   K inside: S rows of 4 pieces; piece c of row r lies at c ^ (r/2 mod 4);
//   K outside, 16 bits: 32 rows of S/8 pieces; piece c of row k lies at c ^ (k mod 8);
//   K outside, tf32: 16 rows of S/4 pieces; piece c of row k lies at c ^ 2(k mod 4).
// ldmatrix transposes 16-bit elements that lie the other way. It moves those of tf32 by
// rows alone, so that they are read one by one where K is outside.
#pragma once
#include "mma.h"
#include "place.h"

struct Matrix {
  const void *data;
  u32 ld; // elements from row to row
};

// A problem: C is [m, n], K goes from k0 to k1.
struct Problem {
  Matrix a, b;
  u32 m, n, k0, k1;
};

// How many elements a piece has, and a tile of K.
template <class T> constexpr int PIECE = 16 / sizeof(T);
template <class T> constexpr int STEP = 4 * PIECE<T>;

template <int S> struct ALIGNED(128) Tile { u16 v[S * 32]; };

// Where the E elements of piece q (0..4S) of a tile lie: index and K, relative to the
// tile, and their place in shared memory.
template <int S, bool INSIDE, int E = 8> struct Piece {
  u32 i, k, at;
  MEMBER Piece(u32 q) {
    if (INSIDE) {
      i = q >> 2;
      k = (q & 3) * E;
      at = i * 32 + (((q & 3) ^ (i >> 1 & 3)) << 3);
    } else {
      k = q / (S / E);
      i = q % (S / E) * E;
      at = k * (S * 8 / E) + ((q % (S / E) ^ (E == 8 ? k & 7 : (k & 3) << 1)) << 3);
    }
  }
};

// Stores a piece that a thread holds.
DEV void store_piece(u16 *to, const u32 (&v)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(to)), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
// Loads a piece of memory that nobody writes; zeros where valid is false.
DEV void load_piece(u32 (&v)[4], const void *from, bool valid) {
  if (valid) {
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(from));
  } else {
    UNROLL for (int j = 0; j < 4; j++) v[j] = 0;
  }
}

// Brings the tile of an operand that begins at index i0 and K k0. INSIDE: K is the
// contiguous dimension. VECTOR: rows begin at multiples of 16 bytes, and no piece
// lies across a border.
template <int S, bool INSIDE, bool VECTOR, class T> struct Loader {
  static constexpr int pieces = S / 32; // of a thread
  const T *data;
  u32 ld, limit, k1, i0;
  u32 held[pieces][4];
  MEMBER Loader(Matrix m, u32 i0, u32 limit, u32 k1) : data((const T *)m.data), ld(m.ld), limit(limit), k1(k1), i0(i0) {}

  MEMBER const T *address(u32 i, u32 k) { return data + (INSIDE ? (u64)i * ld + k : (u64)k * ld + i); }
  MEMBER bool inside(u32 i, u32 k) { return i < limit && k < k1; }

  // To registers, and from there to shared memory.
  MEMBER void fetch(u32 k0) {
    UNROLL for (int p = 0; p < pieces; p++) {
      Piece<S, INSIDE, PIECE<T>> q(TID + 128 * p);
      const u32 i = i0 + q.i, k = k0 + q.k;
      if constexpr (VECTOR) {
        load_piece(held[p], address(i, k), inside(i, k));
      } else {
        UNROLL for (int j = 0; j < 4; j++) {
          constexpr int words = 4 / sizeof(T); // elements of a word
          u32 w[words];
          UNROLL for (int e = 0; e < words; e++) {
            const u32 x = i + (INSIDE ? 0 : words * j + e), y = k + (INSIDE ? words * j + e : 0);
            w[e] = inside(x, y) ? address(x, y)->bits : 0;
          }
          held[p][j] = words == 2 ? w[0] | w[words - 1] << 16 : w[0];
        }
      }
    }
  }
  MEMBER void put(Tile<S> &t) {
    UNROLL for (int p = 0; p < pieces; p++) {
      Piece<S, INSIDE, PIECE<T>> q(TID + 128 * p);
      store_piece(t.v + q.at, held[p]);
    }
  }
#if HAVE_CP_ASYNC
  MEMBER void copy(Tile<S> &t, u32 k0) {
    UNROLL for (int p = 0; p < pieces; p++) {
      Piece<S, INSIDE, PIECE<T>> q(TID + 128 * p);
      const bool valid = inside(i0 + q.i, k0 + q.k);
      copy_async(t.v + q.at, valid ? address(i0 + q.i, k0 + q.k) : data, valid);
    }
  }
#endif
};

// The lane's element of the 8 indices from i on and the 4 of K from k on, where K is
// outside: the lanes of an index read one word each of a piece and its neighbor.
template <int S> DEV u32 word_outside(const Tile<S> &t, u32 i, u32 k) {
  const u32 lane = TID & 31, g = lane >> 2, row = k + (lane & 3);
  return ((const u32 *)t.v)[row * S + ((((i + g) >> 2) ^ ((row & 3) << 1)) << 2) + (g & 3)];
}

// A fragment of 16 indices from i on and half a step of K from k on, as operand A.
template <int S, bool INSIDE, class T> DEV void fragment_a(u32 (&r)[4], const Tile<S> &t, u32 i, u32 k) {
  const u32 lane = TID & 31;
  if constexpr (INSIDE) {
    const u32 row = i + (lane & 15), c = k / PIECE<T> + (lane >> 4);
    load_matrices(r, t.v + row * 32 + ((c ^ (row >> 1 & 3)) << 3));
  } else if constexpr (PIECE<T> == 8) {
    const u32 row = k + (lane & 7) + (lane >> 4) * 8, c = (i >> 3) + (lane >> 3 & 1);
    load_matrices_transposed(r, t.v + row * S + ((c ^ (row & 7)) << 3));
  } else {
    UNROLL for (int e = 0; e < 4; e++) r[e] = word_outside(t, i + (e & 1) * 8, k + (e >> 1) * 4);
  }
  for_product<T>(r);
}

// The same as operand B: two fragments of 8 indices.
template <int S, bool INSIDE, class T> DEV void fragment_b(u32 (&r)[4], const Tile<S> &t, u32 i, u32 k) {
  const u32 lane = TID & 31;
  if constexpr (INSIDE) {
    const u32 row = i + (lane & 7) + (lane >> 4) * 8, c = k / PIECE<T> + (lane >> 3 & 1);
    load_matrices(r, t.v + row * 32 + ((c ^ (row >> 1 & 3)) << 3));
  } else if constexpr (PIECE<T> == 8) {
    const u32 row = k + (lane & 15), c = (i >> 3) + (lane >> 4);
    load_matrices_transposed(r, t.v + row * S + ((c ^ (row & 7)) << 3));
  } else {
    UNROLL for (int e = 0; e < 4; e++) r[e] = word_outside(t, i + (e >> 1) * 8, k + (e & 1) * 4);
  }
  for_product<T>(r);
}

#if HAVE_CP_ASYNC
#define STAGES 3
#else
#define STAGES 2
#endif

template <int S> struct Tiles { Tile<S> a[STAGES], b[STAGES]; };

// What a warp holds of C: S/32 x S/16 fragments of 16 x 8.
template <int S> struct Accumulators {
  float v[S / 32][S / 16][4];
  MEMBER void clear() {
    UNROLL for (int i = 0; i < S / 32; i++) UNROLL for (int j = 0; j < S / 16; j++) UNROLL for (int e = 0; e < 4; e++) v[i][j][e] = 0.0f;
  }
};

template <int S, bool A_INSIDE, bool B_INSIDE, class T> DEV void multiply_tiles(Accumulators<S> &acc, const Tile<S> &ta, const Tile<S> &tb) {
  const u32 warp = TID >> 5, m = (warp & 1) * (S / 2), n = (warp >> 1) * (S / 2);
  UNROLL for (int k = 0; k < STEP<T>; k += STEP<T> / 2) {
    u32 a[S / 32][4], b[S / 32][4];
    UNROLL for (int i = 0; i < S / 32; i++) fragment_a<S, A_INSIDE, T>(a[i], ta, m + i * 16, k);
    UNROLL for (int j = 0; j < S / 32; j++) fragment_b<S, B_INSIDE, T>(b[j], tb, n + j * 16, k);
    UNROLL for (int i = 0; i < S / 32; i++) UNROLL for (int j = 0; j < S / 16; j++) mma<T>(acc.v[i][j], a[i], b[j >> 1][(j & 1) * 2], b[j >> 1][(j & 1) * 2 + 1]);
  }
}

// The product of the tiles that two loaders bring, K from k0 to k1.
template <int S, bool A_INSIDE, bool B_INSIDE, bool VECTOR, class T, class A, class B>
DEV void multiply(Accumulators<S> &acc, Tiles<S> &tiles, A &la, B &lb, u32 k0, u32 k1) {
  acc.clear();
#if HAVE_CP_ASYNC
  if constexpr (VECTOR) { // two tiles are on their way while one is multiplied
    UNROLL for (u32 s = 0; s < STAGES - 1; s++) {
      if (k0 + s * STEP<T> < k1) {
        la.copy(tiles.a[s], k0 + s * STEP<T>);
        lb.copy(tiles.b[s], k0 + s * STEP<T>);
      }
      copies_commit();
    }
    u32 now = 0;
    for (u32 k = k0; k < k1; k += STEP<T>) {
      copies_wait<STAGES - 2>();
      SYNC();
      const u32 next = now == 0 ? STAGES - 1 : now - 1;
      if (k + (STAGES - 1) * STEP<T> < k1) {
        la.copy(tiles.a[next], k + (STAGES - 1) * STEP<T>);
        lb.copy(tiles.b[next], k + (STAGES - 1) * STEP<T>);
      }
      copies_commit();
      multiply_tiles<S, A_INSIDE, B_INSIDE, T>(acc, tiles.a[now], tiles.b[now]);
      now = now + 1 == STAGES ? 0 : now + 1;
    }
    copies_wait<0>();
    return;
  }
#endif
  if (k0 < k1) {
    la.fetch(k0);
    lb.fetch(k0);
    la.put(tiles.a[0]);
    lb.put(tiles.b[0]);
  }
  u32 now = 0;
  for (u32 k = k0; k < k1; k += STEP<T>, now ^= 1) {
    const bool more = k + STEP<T> < k1;
    if (more) { // the next tile comes while this one is multiplied
      la.fetch(k + STEP<T>);
      lb.fetch(k + STEP<T>);
    }
    SYNC();
    multiply_tiles<S, A_INSIDE, B_INSIDE, T>(acc, tiles.a[now], tiles.b[now]);
    if (more) {
      la.put(tiles.a[now ^ 1]);
      lb.put(tiles.b[now ^ 1]);
    }
  }
}

// The tile of C that begins at (i0, j0).
template <int S, bool A_INSIDE, bool B_INSIDE, bool VECTOR, class T>
DEV void multiply(Accumulators<S> &acc, Tiles<S> &tiles, const Problem &p, u32 i0, u32 j0) {
  Loader<S, A_INSIDE, VECTOR, T> la(p.a, i0, p.m, p.k1);
  Loader<S, B_INSIDE, VECTOR, T> lb(p.b, j0, p.n, p.k1);
  multiply<S, A_INSIDE, B_INSIDE, VECTOR, T>(acc, tiles, la, lb, p.k0, p.k1);
}

// Brings the tile at (i0, j0) through shared memory, 32 rows of each warp at a time, so
// that a lane has four neighbors of a row, and puts these through a writer. Calls of its
// before precede those of put by up to four pieces, so that what it loads overlaps.
//
// A row of a warp has S/8 pieces of 16 bytes; piece c of row r lies at c ^ 2(r mod 4):
// neither the pairs that fragments consist of nor the pieces meet a bank twice.
template <int S, class Writer> DEV void by_rows(const Accumulators<S> &acc, Tiles<S> &tiles, u32 i0, u32 j0, const Writer &to) {
  constexpr u32 W = S / 2, C = S / 8, R = 32 / C; // columns, pieces of a row, rows that a warp reads at once
  const u32 lane = TID & 31, warp = TID >> 5, g = lane >> 2, t = (lane & 3) * 2;
  float *staged = (float *)&tiles + warp * 32 * W;
  const u32 c = lane % C, h = lane / C;
  const u32 rows = i0 + (warp & 1) * W, col = j0 + (warp >> 1) * W + c * 4;
  SYNC();
  UNROLL for (u32 p = 0; p < W / 32; p++) {
    if (p) warp_sync();
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int j = 0; j < S / 16; j++) {
      const float(&v)[4] = acc.v[p * 2 + i][j];
      const u32 at = (i * 16 + g) * W + (((j * 2 + (t >> 2)) ^ (g & 3) << 1) << 2) + (t & 2);
      *(Neighbors<float, 2> *)(staged + at) = {v[0], v[1]};
      *(Neighbors<float, 2> *)(staged + at + 8 * W) = {v[2], v[3]};
    }
    warp_sync();
    NO_UNROLL for (u32 r = h; r < 32; r += 4 * R) {
      const u32 row = rows + p * 32 + r;
      to.template before<0>(row, col);
      to.template before<1>(row + R, col);
      to.template before<2>(row + 2 * R, col);
      to.template before<3>(row + 3 * R, col);
#define PUT(u)                                                                                                                 \
  {                                                                                                                            \
    const Neighbors<float, 4> v = *(const Neighbors<float, 4> *)(staged + (r + u * R) * W + ((c ^ ((r + u * R) & 3) << 1) << 2)); \
    to.template put<u>(v.v, row + u * R, col);                                                                                 \
  }
      PUT(0)
      PUT(1)
      PUT(2)
      PUT(3)
#undef PUT
    }
  }
}

// Writes the tile of a result of m rows and n columns to a place. first is the row of the
// whole result that row 0 is.
struct ToPlace {
  u32 m, n, first;
  template <int U> MEMBER void before(u32 row, u32 col) const { PLACE_LOAD(U, first + row, col, row < m && col < n); }
  template <int U> MEMBER void put(const float (&v)[4], u32 row, u32 col) const { PLACE_BODY(U, v, first + row, col, row < m && col < n); }
};
template <int S> DEV void finish(const Accumulators<S> &acc, Tiles<S> &tiles, u32 m, u32 n, u32 i0, u32 j0, u32 first) {
  by_rows(acc, tiles, i0, j0, ToPlace{m, n, first});
}
