#include "logits.h"
#include "gemm.h"
#include "sgemm.h"

// Keeps four neighbors.
template <class T> struct ToKept {
  T *kept;
  u32 m, pitch;
  template <int U> MEMBER void before(u32, u32) const {}
  template <int U> MEMBER void put(const float (&v)[4], u32 row, u32 col) const {
    if (row < m && col < pitch) store(kept + (u64)row * pitch + col, v);
  }
};

// Leaves the remains of a tile on tensor cores, whose rows two warps share.
template <int S, class T> DEV void leave(Accumulators<S> &acc, Tiles<S> &tiles, const Remains<T> &to, u32 m, u32 n, u32 i0, u32 j0) {
  constexpr u32 W = S / 2;
  const u32 lane = TID & 31, warp = TID >> 5, half = warp >> 1;
  const u32 first = (warp & 1) * W + (lane >> 2), col = j0 + half * W + (lane & 3) * 2;
  float *const tops = (float *)&tiles, *const sums = tops + 2 * S; // of both halves of each row
  SYNC();
  UNROLL for (int i = 0; i < S / 32; i++) UNROLL for (int h = 0; h < 2; h++) {
    float top = -__builtin_inff();
    UNROLL for (int j = 0; j < S / 16; j++) UNROLL for (int e = 0; e < 2; e++)
      if (col + j * 8 + e < n) top = fmax_(top, acc.v[i][j][h * 2 + e]);
    top = fmax_(top, shuffle_xor(top, 1));
    top = fmax_(top, shuffle_xor(top, 2));
    if ((lane & 3) == 0) tops[half * S + first + i * 16 + h * 8] = top;
  }
  SYNC();
  UNROLL for (int i = 0; i < S / 32; i++) UNROLL for (int h = 0; h < 2; h++) {
    const u32 r = first + i * 16 + h * 8, row = i0 + r;
    const float base = base_of(fmax_(tops[r], tops[S + r]));
    const u32 label = to.label(row, m, n) - col; // the lane has numbers 8j and 8j + 1
    if (label < W && (label & 7) < 2) {
      float own = 0.0f;
      UNROLL for (int j = 0; j < S / 16; j++) UNROLL for (int e = 0; e < 2; e++) own = label == (u32)(j * 8 + e) ? acc.v[i][j][h * 2 + e] : own;
      to.own[row] = own;
    }
    float sum = 0.0f;
    UNROLL for (int j = 0; j < S / 16; j++) UNROLL for (int e = 0; e < 2; e++) {
      float &v = acc.v[i][j][h * 2 + e];
      v = col + j * 8 + e < n ? raised_exp<T>(v - base) : 0.0f;
      sum += v;
    }
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    if ((lane & 3) == 0) sums[half * S + r] = sum;
  }
  SYNC();
  if (TID < S && i0 + TID < m) to.part(i0 + TID, n, j0, S, fmax_(tops[TID], tops[S + TID]), sums[TID] + sums[S + TID]);
  if (to.kept) by_rows(acc, tiles, i0, j0, ToKept<T>{to.kept, m, to.pitch});
}

// The same for a tile in float, whose rows sixteen threads share.
template <int R, class T> DEV void leave(float (&acc)[R][R], const Remains<T> &to, u32 m, u32 n, u32 i0, u32 j0) {
  constexpr u32 S = 16 * R;
  const u32 col = j0 + (TID & 15) * 4;
  UNROLL for (int i = 0; i < R; i++) {
    const u32 row = i0 + (TID >> 4) * 4 + (i & 3) + (i >> 2) * 64;
    float top = -__builtin_inff();
    UNROLL for (int j = 0; j < R; j++) if (col + (j & 3) + (j >> 2) * 64 < n) top = fmax_(top, acc[i][j]);
    UNROLL for (int by = 1; by < 16; by *= 2) top = fmax_(top, shuffle_xor(top, by));
    const float base = base_of(top);
    const u32 label = to.label(row, m, n);
    float sum = 0.0f;
    UNROLL for (int j = 0; j < R; j++) {
      const u32 at = col + (j & 3) + (j >> 2) * 64;
      if (at == label) to.own[row] = acc[i][j];
      acc[i][j] = at < n ? raised_exp<T>(acc[i][j] - base) : 0.0f;
      sum += acc[i][j];
    }
    UNROLL for (int by = 1; by < 16; by *= 2) sum += shuffle_xor(sum, by);
    if (row >= m) continue;
    if ((TID & 15) == 0) to.part(row, n, j0, S, top, sum);
    if (to.kept) UNROLL for (int h = 0; h < R / 4; h++) {
      const float v[4] = {acc[i][h * 4], acc[i][h * 4 + 1], acc[i][h * 4 + 2], acc[i][h * 4 + 3]};
      if (col + h * 64 < to.pitch) store(to.kept + (u64)row * to.pitch + col + h * 64, v);
    }
  }
}

// h is [m, k], w [n, k]; both have rows that follow one another.
template <int S, bool VECTOR, class T, class K> DEV void logits(const T *h, const T *w, u32 m, u32 n, u32 k, const Remains<K> &to) {
  __shared__ Tiles<S> tiles;
  const Problem p{{h, k}, {w, k}, m, n, 0, k};
  Accumulators<S> acc;
  const auto [i0, j0] = TileAt<S>(m, n, BLOCK_X);
  multiply<S, true, true, VECTOR, T>(acc, tiles, p, i0, j0);
  leave(acc, tiles, to, m, n, i0, j0);
}
template <int R, class T> DEV void slogits(const T *h, const T *w, u32 m, u32 n, u32 k, const Remains<T> &to) {
  __shared__ ALIGNED(16) float shared[SHARED<R>];
  float acc[R][R];
  const auto [i0, j0] = TileAt<16 * R>(m, n, BLOCK_X);
  MatrixLoader<R, T> lh{h, k, i0, m, k, true}, lw{w, k, j0, n, k, true};
  smultiply<R>(acc, shared, lh, lw, 0, k);
  leave<R>(acc, to, m, n, i0, j0);
}

#define LOGITS(NAME, S, V, F, T, K)                                                                                              \
  KERNEL __launch_bounds__(128, S == 128 ? 2 : 4) logits_##NAME##_##F(const T *h, const T *w, u32 m, u32 n, u32 k, Remains<K> to) { \
    logits<S, V>(h, w, m, n, k, to);                                                                                             \
  }
#define ON_TENSOR_CORES(F, T, K) LOGITS(128, 128, true, F, T, K) LOGITS(64, 64, true, F, T, K) LOGITS(any, 64, false, F, T, K)
ON_TENSOR_CORES(f16, f16, f16)
#if HAVE_BF16
ON_TENSOR_CORES(bf16, bf16, bf16)
#endif
#if HAVE_TF32
ON_TENSOR_CORES(tf32, tf32, float)
#endif

#define SLOGITS(NAME, R, F, T)                                                                                  \
  KERNEL __launch_bounds__(256, 2) slogits_##NAME##_##F(const T *h, const T *w, u32 m, u32 n, u32 k, Remains<T> to) { \
    slogits<R>(h, w, m, n, k, to);                                                                              \
  }
SLOGITS(128, 8, f32, float)
SLOGITS(64, 4, f32, float)
SLOGITS(128, 8, bf16, bf16)
SLOGITS(64, 4, bf16, bf16)

// The log-sum-exp of each row, and loss[row] = weight * (lse - own); a negative label
// counts as weight 0. A warp a row.
KERNEL __launch_bounds__(256) logits_loss(const Part *parts, const int *labels, const float *weights, const float *own, float *lse, float *loss, u32 rows, u32 columns) {
  const u32 row = BLOCK_X * 8 + (TID >> 5), lane = TID & 31;
  if (row >= rows) return;
  parts += (u64)row * columns;
  float top = -__builtin_inff(), sum = 0.0f;
  for (u32 i = lane; i < columns; i += 32) top = fmax_(top, parts[i].top);
  const float base = base_of(warp_max(top));
  for (u32 i = lane; i < columns; i += 32) sum = fma(parts[i].sum, exp_(parts[i].top - base), sum);
  sum = warp_sum(sum);
  if (lane) return;
  const float l = base + log_(sum);
  const int label = labels[row];
  lse[row] = l;
  loss[row] = label < 0 ? 0.0f : weights[row] * (l - own[row]);
}

// Sixteen bytes at once: an ordinary load of these is taken apart, as an element may be replaced.
DEV void load_words(u32 (&v)[4], const void *p) {
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(p) : "memory");
}

// What is kept becomes the gradient of the logits, dloss * weight * (softmax - onehot). A
// thread has a piece of 16 bytes; side is the base-2 logarithm of that of a tile.
template <class T> DEV void logits_grad(T *kept, const Part *parts, const int *labels, const float *weights, const float *own, const float *lse, const float *dloss, u32 pieces, Divisor row_pieces, u32 columns, u32 side) {
  constexpr int Q = 16 / sizeof(T);
  const u32 piece = BLOCK_X * 256 + TID, row = row_pieces.quotient(piece), col = (piece - row * row_pieces.n) * Q;
  if (piece >= pieces) return;
  const int label = labels[row];
  const float scale = label < 0 ? 0.0f : dloss[0] * weights[row];
  const float share = exp_(parts[(u64)row * columns + (col >> side)].top - lse[row]) * LOWERED<T> * scale;
  u32 words[4];
  load_words(words, kept + (u64)piece * Q);
  float v[Q];
  UNROLL for (int i = 0; i < Q; i++) {
    if constexpr (Q == 4) v[i] = bits_f32(words[i]);
    else v[i] = to_f32(T{(u16)(words[i / 2] >> 16 * (i & 1))});
  }
  UNROLL for (int i = 0; i < Q; i++) v[i] = scale == 0.0f ? 0.0f : v[i] * share;
  if ((u32)label - col < Q) { // its softmax may be so near to 1 that it is needed more exactly
    const float own_grad = (exp_(own[row] - lse[row]) - 1.0f) * scale;
    UNROLL for (int i = 0; i < Q; i++) v[i] = (u32)label - col == (u32)i && scale != 0.0f ? own_grad : v[i];
  }
  store(kept + (u64)piece * Q, v);
}

#define GRAD(F, T)                                                                                                             \
  KERNEL __launch_bounds__(256) logits_grad_##F(T *kept, const Part *parts, const int *labels, const float *weights, const float *own, const float *lse, const float *dloss, u32 pieces, Divisor row_pieces, u32 columns, u32 side) { \
    logits_grad(kept, parts, labels, weights, own, lse, dloss, pieces, row_pieces, columns, side);                                 \
  }
FOR_FLOATS(GRAD)
