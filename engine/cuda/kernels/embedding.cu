// Rows picked from a table, and their gradients added up by row.
#include "math.h"

template <class T, class U> DEV void embedding(const T *table, const int *ids, U *out, u32 n, u32 width, u32 vocabulary) {
  for (u64 i = (u64)BLOCK_X * 256 + TID; i < (u64)n * width; i += (u64)BLOCKS * 256) {
    const u32 row = (u32)(i / width), col = (u32)(i % width), id = (u32)ids[row];
    if (id < vocabulary) out[i] = from_f32<U>(to_f32(table[(u64)id * width + col]));
  }
}

// Adds the rows of dy with one id to that row of the table, in order; ids are sorted, and rows are where they were.
// Block (x, y) does 1024 columns of the id at x, if it is the first there. Up to four rows are loaded at once, as some
// ids are frequent.
template <class T> DEV void embedding_grad(const T *dy, const u32 *ids, const u32 *rows, float *table, u32 n, u32 width, u32 vocabulary) {
  constexpr int C = 4, Q = 4; // columns of a thread, 256 apart; rows
  const u32 at = BLOCK_X, col = BLOCK_Y * 256 * C + TID, lane = TID & 31, id = ids[at];
  if (id >= vocabulary || (at > 0 && ids[at - 1] == id)) return;
  table += (u64)id * width;
  float s[C];
  UNROLL for (int c = 0; c < C; c++) s[c] = col + c * 256 < width ? table[col + c * 256] : 0.0f;
  for (u32 from = at, found = 32; found == 32; from += 32) {
    const u32 i = from + lane;
    const bool is = i < n && ids[i] == id;
    const u32 own = is ? rows[i] : 0;
    found = (u32)__builtin_popcount(ballot(is));
    for (u32 k = 0; k < found; k += Q) {
      u32 row[Q];
      UNROLL for (int q = 0; q < Q; q++) row[q] = shuffle_from(own, min_(k + q, found - 1));
      UNROLL for (int c = 0; c < C; c++) if (col + c * 256 < width) {
        T v[Q];
        UNROLL for (int q = 0; q < Q; q++) v[q] = dy[(u64)row[q] * width + col + c * 256];
        UNROLL for (int q = 0; q < Q; q++) if (k + q < found) s[c] += to_f32(v[q]);
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
  KERNEL __launch_bounds__(256) embedding_grad_##S(const T *dy, const u32 *ids, const u32 *rows, float *table, u32 n, u32 width, u32 vocabulary) { \
    embedding_grad(dy, ids, rows, table, n, width, vocabulary);                                                              \
  }
FOR_FLOATS(GRAD)
