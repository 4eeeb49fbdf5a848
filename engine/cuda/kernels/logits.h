// Cross-entropy of linear logits, h w^T, of which none is stored. A block has a tile of
// them, and of each row of its tile it keeps a part: the greatest logit and the sum of
// exponentials relative to it (Milakov and Gimelshein 2018, arXiv:1805.02867). For the
// gradient it also keeps these exponentials, e^(x - top), in the format of the factors,
// which is precise enough, as only their relative error counts: once all parts of a row
// are known, its softmax is a multiple of them.
#pragma once
#include "math.h"

struct ALIGNED(8) Part { float top, sum; };

// Exponentials are kept as multiples of 2^RAISED: in fp16, the least of them is 2^-39 of
// the greatest then, not 2^-24.
template <class T> constexpr int RAISED = 0;
template <> constexpr int RAISED<f16> = 15;
template <class T> constexpr float LOWERED = 1.0f / (1 << RAISED<T>);

// What a tile of logits leaves behind.
template <class T> struct Remains {
  const int *labels;
  float *own; // the logit of each row's label
  Part *parts; // [rows, columns of tiles]
  T *kept;     // the exponentials; rows are pitch apart, zeros after their n elements. May be null
  u32 pitch;

  // The label of a row of [m, n]; out of any tile's reach if there is no such row or class.
  MEMBER u32 label(u32 row, u32 m, u32 n) const {
    const u32 l = row < m ? (u32)labels[row] : n;
    return l < n ? l : ~0u;
  }
  // Stores the part of a row of n logits in the tile of a side that begins at column j0.
  MEMBER void part(u32 row, u32 n, u32 j0, u32 side, float top, float sum) const {
    parts[(u64)row * ((n + side - 1) / side) + j0 / side] = {top, sum * LOWERED<T>};
    if (j0 == 0 && (u32)labels[row] >= n) own[row] = __builtin_nanf(""); // the loss becomes this, unless the label is negative
  }
};

// e^x 2^RAISED for x <= 0. The hardware's ex2 is exact enough for what is rounded to 16
// bits, and for sums of which the logarithm is taken.
template <class T> DEV float raised_exp(float x) {
  if constexpr (sizeof(T) == 4) return exp_(x);
  return ex2(fma(x, LOG2E, (float)RAISED<T>));
}

// What x - top is computed with, where all x may be -inf.
DEV float base_of(float top) { return top == -__builtin_inff() ? 0.0f : top; }
