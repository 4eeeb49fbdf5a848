// Rows picked from a table, and their gradients added up by row.
#include "math.h"

template <class T, class U> DEV void embedding(const T *table, const int *ids, U *out, u32 n, u32 width, u32 vocabulary) {
  for (u64 i = (u64)BLOCK_X * 256 + TID; i < (u64)n * width; i += (u64)BLOCKS * 256) {
    const u32 row = (u32)(i / width), col = (u32)(i % width), id = (u32)ids[row];
    if (id < vocabulary) out[i] = from_f32<U>(to_f32(table[(u64)id * width + col]));
  }
}

// Which positions come first with their id: first[i] is 1 there. A warp a position.
KERNEL __launch_bounds__(256) embedding_first(const int *ids, u32 *first, u32 n) {
  const u32 at = BLOCK_X * 8 + (TID >> 5), lane = TID & 31;
  if (at >= n) return;
  const int id = ids[at];
  u32 seen = 0;
  for (u32 i = lane; i < at; i += 32) seen |= ids[i] == id;
  UNROLL for (int k = 16; k > 0; k >>= 1) seen |= shuffle_xor(seen, k);
  if (lane == 0) first[at] = !seen;
}

// Adds the rows of dy with one id to that row of the table, in order. Block (x, y) does
// 1024 columns of the position x, if it is the first with its id. Up to four rows are
// loaded at once, as some ids are frequent.
template <class T> DEV void embedding_grad(const T *dy, const int *ids, const u32 *first, float *table, u32 n, u32 width, u32 vocabulary) {
  constexpr int C = 4, Q = 4; // columns of a thread, 256 apart; rows
  const u32 at = BLOCK_X, col = BLOCK_Y * 256 * C + TID;
  const u32 id = (u32)ids[at];
  if (!first[at] || id >= vocabulary) return;
  __shared__ u32 found[8];
  table += (u64)id * width;
  float s[C];
  UNROLL for (int c = 0; c < C; c++) s[c] = col + c * 256 < width ? table[col + c * 256] : 0.0f;
  for (u32 from = at; from < n; from += 256) {
    const u32 i = from + TID;
    const u32 hit = ballot(i < n && (u32)ids[i] == id);
    SYNC();
    if ((TID & 31) == 0) found[TID >> 5] = hit;
    SYNC();
    for (u32 w = 0; w < 8; w++)
      for (u32 bits = found[w]; bits;) {
        u32 row[Q];
        bool is[Q];
        UNROLL for (int q = 0; q < Q; q++) {
          is[q] = bits != 0;
          row[q] = from + w * 32 + (bits ? (u32)__builtin_ctz(bits) : 0);
          bits &= bits - 1;
        }
        UNROLL for (int c = 0; c < C; c++) if (col + c * 256 < width) {
          T v[Q];
          UNROLL for (int q = 0; q < Q; q++) v[q] = dy[(u64)row[q] * width + col + c * 256];
          UNROLL for (int q = 0; q < Q; q++) if (is[q]) s[c] += to_f32(v[q]);
        }
      }
  }
  UNROLL for (int c = 0; c < C; c++) if (col + c * 256 < width) table[col + c * 256] = s[c];
}

#define PICK(S, T, R, U)                                                                                                     \
  KERNEL __launch_bounds__(256) embedding_##S##_##R(const T *table, const int *ids, U *out, u32 n, u32 width, u32 vocabulary) { \
    embedding(table, ids, out, n, width, vocabulary);                                                                         \
  }
#define PICKS(S, T) PICK(S, T, f32, float) PICK(S, T, f16, f16) PICK(S, T, bf16, bf16)
FOR_FLOATS(PICKS)
#define GRAD(S, T)                                                                                                            \
  KERNEL __launch_bounds__(256) embedding_grad_##S(const T *dy, const int *ids, const u32 *first, float *table, u32 n, u32 width, u32 vocabulary) { \
    embedding_grad(dy, ids, first, table, n, width, vocabulary);                                                              \
  }
FOR_FLOATS(GRAD)
