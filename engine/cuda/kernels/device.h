// What the kernels are written in: plain CUDA C++ without NVIDIA's headers, for
// `clang -x cuda`. build.sh compiles it; nothing is needed but clang.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define ALIGNED(n) __attribute__((aligned(n)))
#define DEV static __device__ __inline__ __attribute__((always_inline))
#define MEMBER __device__ __inline__ __attribute__((always_inline)) // of a struct
#define SPECIAL __device__ __inline__ __attribute__((always_inline)) // of a template
#define KERNEL extern "C" __global__ void
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

#define TID __nvvm_read_ptx_sreg_tid_x()
#define BLOCK_X __nvvm_read_ptx_sreg_ctaid_x()
#define BLOCK_Y __nvvm_read_ptx_sreg_ctaid_y()
#define BLOCK_Z __nvvm_read_ptx_sreg_ctaid_z()
#define THREADS __nvvm_read_ptx_sreg_ntid_x()
#define BLOCKS __nvvm_read_ptx_sreg_nctaid_x()
#define BLOCKS_Y __nvvm_read_ptx_sreg_nctaid_y()
#define BLOCKS_Z __nvvm_read_ptx_sreg_nctaid_z()
#define SYNC() __syncthreads()

// sm_75 has none of these; see build.sh.
#if __CUDA_ARCH__ >= 800
#define HAVE_CP_ASYNC 1
#define HAVE_BF16 1
#define HAVE_TF32 1
#endif

// The formats of storage. Arithmetic is float.
struct f16 { u16 bits; };
struct bf16 { u16 bits; };

DEV float bits_f32(u32 b) { return __builtin_bit_cast(float, b); }
DEV u32 f32_bits(float x) { return __builtin_bit_cast(u32, x); }

DEV float to_f32(float x) { return x; }
DEV float to_f32(f16 h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits)); return f; }
DEV float to_f32(bf16 h) { return bits_f32((u32)h.bits << 16); }

template <class T> DEV T from_f32(float x);
template <> SPECIAL float from_f32<float>(float x) { return x; }
template <> SPECIAL f16 from_f32<f16>(float x) { f16 h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(x)); return h; }
template <> SPECIAL bf16 from_f32<bf16>(float x) {
#if HAVE_BF16
  bf16 h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h.bits) : "f"(x)); return h;
#else // to nearest even; a NaN stays one
  u32 b = f32_bits(x);
  u32 r = b + 0x7fff + (b >> 16 & 1);
  return bf16{(u16)(x != x ? 0x7fff : r >> 16)};
#endif
}

// Two neighbors in one word, the first in the low half.
template <class T> DEV u32 pack2(float lo, float hi) { return (u32)from_f32<T>(lo).bits | (u32)from_f32<T>(hi).bits << 16; }
#if __CUDA_ARCH__ >= 800
template <> SPECIAL u32 pack2<f16>(float lo, float hi) { u32 d; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo)); return d; }
template <> SPECIAL u32 pack2<bf16>(float lo, float hi) { u32 d; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(hi), "f"(lo)); return d; }
#endif

// Q neighbors with one access; Q elements from p on must be aligned to their size.
template <class T, int Q> struct ALIGNED(sizeof(T) * Q) Neighbors { T v[Q]; };
template <int Q, class T> DEV void load(float (&v)[Q], const T *p) {
  Neighbors<T, Q> n = *(const Neighbors<T, Q> *)p;
  UNROLL for (int i = 0; i < Q; i++) v[i] = to_f32(n.v[i]);
}
template <int Q, class T> DEV void store(T *p, const float (&v)[Q]) {
  Neighbors<T, Q> n;
  UNROLL for (int i = 0; i < Q; i++) n.v[i] = from_f32<T>(v[i]);
  *(Neighbors<T, Q> *)p = n;
}

// The rounding that a value gets when it is stored and read again.
template <class T> DEV float rounded(float x) { return to_f32(from_f32<T>(x)); }

// max.f32 is one instruction; a comparison and a selection are two.
DEV float fmax_(float a, float b) { float y; asm("max.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
DEV float fmin_(float a, float b) { float y; asm("min.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; }
DEV u32 min_(u32 a, u32 b) { return a < b ? a : b; }
DEV u32 max_(u32 a, u32 b) { return a > b ? a : b; }

// Division by n of numbers below 2^31 (Granlund and Montgomery 1994).
struct Divisor {
  u32 n, magic, shift;
  MEMBER u32 quotient(u32 x) const {
    u32 high;
    asm("mul.hi.u32 %0, %1, %2;" : "=r"(high) : "r"(x), "r"(magic));
    return (high + x) >> shift;
  }
};

// The entry of a table, in order of first, that a block belongs to.
template <class T> DEV T entry(const T *table, u32 count, u32 block) {
  u32 lo = 0;
  for (u32 hi = count; hi - lo > 1;) {
    u32 mid = (lo + hi) / 2;
    if (table[mid].first <= block) lo = mid;
    else hi = mid;
  }
  return table[lo];
}

// A value, but the compilers do not see that it is the same each time: addresses made of
// it are computed where they are used, where all together need too many registers.
DEV u32 anew(u32 v) {
  asm volatile("" : "+r"(v));
  return v;
}

DEV float shuffle_xor(float v, int lanes) { float r; asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(r) : "f"(v), "r"(lanes)); return r; }
DEV u32 shuffle_xor(u32 v, int lanes) { u32 r; asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(r) : "r"(v), "r"(lanes)); return r; }
DEV double shuffle_xor(double v, int lanes) {
  u64 b = __builtin_bit_cast(u64, v);
  u64 r = (u64)shuffle_xor((u32)b, lanes) | (u64)shuffle_xor((u32)(b >> 32), lanes) << 32;
  return __builtin_bit_cast(double, r);
}
// The lanes of a warp for which b holds.
DEV u32 ballot(bool b) {
  u32 r;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }" : "=r"(r) : "r"((u32)b));
  return r;
}
DEV u32 shuffle_from(u32 v, u32 from) { u32 r; asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=r"(r) : "r"(v), "r"(from)); return r; }
DEV void warp_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

// Sums and maxima over a warp: every lane has the result, in an order that only
// the lanes decide.
template <class T> DEV T warp_sum(T v) {
  UNROLL for (int i = 16; i > 0; i >>= 1) v += shuffle_xor(v, i);
  return v;
}
DEV float warp_max(float v) {
  UNROLL for (int i = 16; i > 0; i >>= 1) { float o = shuffle_xor(v, i); v = o > v || o != o ? o : v; }
  return v;
}

// The same over a block of up to 1024 threads, of which the last warp is whole.
// scratch has 33 elements; all threads get the result.
template <class T> DEV T block_sum(T v, T *scratch) {
  v = warp_sum(v);
  if (THREADS == 32) return v;
  SYNC(); // what is read of scratch has been
  if ((TID & 31) == 0) scratch[TID >> 5] = v;
  SYNC();
  if (TID < 32) {
    T w = TID < THREADS >> 5 ? scratch[TID] : T(0);
    w = warp_sum(w);
    if (TID == 0) scratch[32] = w;
  }
  SYNC();
  return scratch[32];
}
DEV float block_max(float v, float *scratch) {
  v = warp_max(v);
  if (THREADS == 32) return v;
  SYNC();
  if ((TID & 31) == 0) scratch[TID >> 5] = v;
  SYNC();
  if (TID < 32) {
    float w = warp_max(TID < THREADS >> 5 ? scratch[TID] : -__builtin_inff());
    if (TID == 0) scratch[32] = w;
  }
  SYNC();
  return scratch[32];
}

// Kernels for each format of storage: FOR_FLOATS(F) expands F(suffix, type).
#define FOR_FLOATS(F) F(f32, float) F(f16, f16) F(bf16, bf16)
