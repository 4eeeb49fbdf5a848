// Products with a quantized matrix (see quantize.cu), whose tiles are decoded on their way to shared memory: B as a
// whole never goes to memory. A thread decodes pieces of eight neighbors, which lie in one block of NF4 and in one row,
// to the same bits as quantize.cu does.
//
// There are none for cards with asynchronous copies, which bring bytes as they are. Compared with their memory, these
// cards multiply so fast that it is better to decode the whole matrix for NVIDIA's library.
#include "gemm.h"

#if !HAVE_CP_ASYNC

// A matrix in a format is decoded by Decoder, which a thread has, to Eight at a time.
struct Nf4 {
  const u8 *codes;
  const float *nested, *mean;
  const u8 *scales;
  const float *books; // the 256 numbers of scales and the 16 of elements

  // What is outside of the matrix is 0, which has code 7.
  struct Eight {
    u32 codes, scale;
    float nested;
    MEMBER void load(const Nf4 &m, u64 at, u32) {
      codes = *(const u32 *)(m.codes + at / 2);
      scale = m.scales[at / 64];
      nested = m.nested[at / (64 * 256)];
    }
    MEMBER void clear() { codes = 0x77777777, scale = 0, nested = 0.0f; }
  };
  // Each half of a warp has the numbers of elements, one a lane: two tiles of 128 leave no shared memory for them.
  struct Decoder {
    const float *scales;
    float mean;
    u32 number;
    MEMBER Decoder(const Nf4 &m) : scales(m.books), mean(*m.mean), number(f32_bits(m.books[256 + (TID & 15)])) {}
    MEMBER float scale(const Eight &x) const {
      const float part = scales[x.scale] * x.nested;
      return part + mean;
    }
    MEMBER float element(const Eight &x, float scale, int e) const {
      // The lowest five bits name the lane, the code and the half.
      return bits_f32(shuffle_from(number, x.codes >> (e / 2 * 8 + (e % 2 ? 0 : 4)))) * scale;
    }
  };
};

struct Int8 {
  const signed char *codes;
  const float *tops; // of the rows

  struct Eight {
    u32 codes[2];
    float top;
    MEMBER void load(const Int8 &m, u64 at, u32 row) {
      UNROLL for (int i = 0; i < 2; i++) codes[i] = ((const u32 *)(m.codes + at))[i];
      top = m.tops[row];
    }
    MEMBER void clear() { codes[0] = codes[1] = 0, top = 0.0f; }
  };
  struct Decoder {
    MEMBER Decoder(const Int8 &) {}
    MEMBER float scale(const Eight &x) const { return x.top; }
    MEMBER float element(const Eight &x, float top, int e) const {
      const float v = (float)(signed char)(x.codes[e / 4] >> e % 4 * 8) * top;
      return v * 7.874015718698502e-3f;
    }
  };
};

// Brings the tile of B that begins at index i0 and K k0, as Loader does.
template <int S, bool INSIDE, class M> struct DecodingLoader {
  static constexpr int pieces = S / 32; // of a thread
  const M &m;
  const typename M::Decoder decoder;
  u32 ld, limit, k1, i0;
  typename M::Eight held[pieces];
  MEMBER DecodingLoader(const M &m, u32 ld, u32 i0, u32 limit, u32 k1) : m(m), decoder(m), ld(ld), limit(limit), k1(k1), i0(i0) {}

  MEMBER void fetch(u32 k0) {
    UNROLL for (int p = 0; p < pieces; p++) {
      Piece<S, INSIDE> q(TID + 128 * p);
      const u32 i = i0 + q.i, k = k0 + q.k, row = INSIDE ? i : k, col = INSIDE ? k : i;
      if (i < limit && k < k1) held[p].load(m, (u64)row * ld + col, row);
      else held[p].clear();
    }
  }
  MEMBER void put(Tile<S> &t) {
    float scales[pieces];
    UNROLL for (int p = 0; p < pieces; p++) scales[p] = decoder.scale(held[p]);
    UNROLL for (int p = 0; p < pieces; p++) {
      Piece<S, INSIDE> q(TID + 128 * p);
      u32 words[4];
      UNROLL for (int j = 0; j < 4; j++) {
        const f16 even = from_f32<f16>(decoder.element(held[p], scales[p], 2 * j)), odd = from_f32<f16>(decoder.element(held[p], scales[p], 2 * j + 1));
        words[j] = even.bits | (u32)odd.bits << 16;
      }
      store_piece(t.v + q.at, words);
    }
  }
};

// As gemm, for one matrix.
template <int S, bool TRANS_B, class M> DEV void gemm_quantized(const f16 *a, const M &b, u32 m, u32 n, u32 k, u32 lda, u32 part_size) {
  __shared__ Tiles<S> tiles;
  const u32 count = tiles_of<S>(m, n), part = BLOCK_X / count;
  const auto [i0, j0] = TileAt<S>(m, n, BLOCK_X % count);
  const u32 k0 = part * part_size, k1 = min_(k0 + part_size, k);
  Loader<S, true, true, f16> la({a, lda}, i0, m, k1);
  DecodingLoader<S, TRANS_B, M> lb(b, TRANS_B ? k : n, j0, n, k1);
  Accumulators<S> acc;
  multiply<S, true, TRANS_B, true, f16>(acc, tiles, la, lb, k0, k1);
  finish(acc, tiles, m, n, i0, j0, part * m);
}

#define GEMM(S, NAME, TB, F, M)                                                                                                    \
  KERNEL __launch_bounds__(128, S == 128 ? 2 : 4) gemm_##S##_##NAME##_f16_##F(const f16 *a, M b, u32 m, u32 n, u32 k, u32 lda, u32, u32 part_size, Operands) { \
    gemm_quantized<S, TB>(a, b, m, n, k, lda, part_size);                                                                           \
  }
#define GEMMS(F, M) GEMM(128, nn, false, F, M) GEMM(128, nt, true, F, M) GEMM(64, nn, false, F, M) GEMM(64, nt, true, F, M)
GEMMS(nf4, Nf4)
GEMMS(int8, Int8)

#endif
