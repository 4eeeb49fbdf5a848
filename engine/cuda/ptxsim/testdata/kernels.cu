// Kernels of the interpreter's own tests. kernels.sm_75.ptx and kernels.sm_80.ptx are made of it by build.sh.
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define DEVICE static __attribute__((device, always_inline)) inline
#define KERNEL(threads) extern "C" __attribute__((global, launch_bounds(threads))) void
#define SHARED __attribute__((shared, aligned(16)))
#define THREAD __nvvm_read_ptx_sreg_tid_x()
#define BLOCK_X __nvvm_read_ptx_sreg_ctaid_x()
#define BLOCK_Y __nvvm_read_ptx_sreg_ctaid_y()
#define BLOCKS __nvvm_read_ptx_sreg_nctaid_x()

DEVICE u32 shared_address(const void *p) { return (u32)(u64)(const void __attribute__((address_space(3))) *)p; }
DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float lane_xor(float v, int mask) {
  float r;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(r) : "f"(v), "r"(mask));
  return r;
}
DEVICE u16 to_half(float f) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
DEVICE void load_matrices(u32 *r, u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address) : "memory");
}
// c of 16x8 += a of 16x16 times b of 16x8.
DEVICE void multiply(float *c, const u32 *a, u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}
// Sixteen bytes from global to shared memory: asynchronously where the card can.
DEVICE void fetch(u32 to, const u16 *from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#else
  u32 r[4];
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "l"(from));
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
#endif
}
DEVICE void fetched() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  __syncthreads();
}

// C[M,N] of f32 = A[M,K] B[N,K]^T, both of f16. A block of four warps makes 64x64, a warp 32x32; K goes by 32. Rows of 64
// bytes lie in shared memory with their four 16-byte chunks permuted by (row/2)%4, so that neither the stores nor
// ldmatrix have bank conflicts.
#define CHUNK(row, chunk) ((row) * 32 + (((chunk) ^ ((row) >> 1 & 3)) << 3))
KERNEL(128) gemm(const u16 *A, const u16 *B, float *C, u32 N, u32 K) {
  static SHARED u16 tile[2 * 64 * 32];
  u16 *const a = tile, *const b = tile + 64 * 32;
  const u32 thread = THREAD, lane = thread & 31, warp = thread >> 5;
  const u32 row0 = BLOCK_Y * 64, col0 = BLOCK_X * 64, rows = (warp & 1) * 32, cols = (warp >> 1) * 32;
  float sum[2][4][4] = {};
  for (u32 k = 0; k < K; k += 32) {
    for (u32 i = thread; i < 256; i += 128) {
      fetch(shared_address(a + CHUNK(i >> 2, i & 3)), A + (u64)(row0 + (i >> 2)) * K + k + (i & 3) * 8);
      fetch(shared_address(b + CHUNK(i >> 2, i & 3)), B + (u64)(col0 + (i >> 2)) * K + k + (i & 3) * 8);
    }
    fetched();
#pragma unroll
    for (u32 kk = 0; kk < 4; kk += 2) {
      u32 ra[2][4], rb[2][4];
#pragma unroll
      for (u32 i = 0; i < 2; i++) {
        load_matrices(ra[i], shared_address(a + CHUNK(rows + i * 16 + (lane & 15), kk + (lane >> 4))));
        load_matrices(rb[i], shared_address(b + CHUNK(cols + i * 16 + (lane & 7) + (lane >> 4) * 8, kk + (lane >> 3 & 1))));
      }
#pragma unroll
      for (u32 i = 0; i < 2; i++)
#pragma unroll
        for (u32 j = 0; j < 4; j++) multiply(sum[i][j], ra[i], rb[j >> 1][(j & 1) * 2], rb[j >> 1][(j & 1) * 2 + 1]);
    }
    __syncthreads();
  }
#pragma unroll
  for (u32 i = 0; i < 2; i++)
#pragma unroll
    for (u32 j = 0; j < 4; j++)
#pragma unroll
      for (u32 h = 0; h < 4; h++)
        C[(u64)(row0 + rows + i * 16 + (lane >> 2) + h / 2 * 8) * N + col0 + cols + j * 8 + (lane & 3) * 2 + (h & 1)] = sum[i][j][h];
}

// Softmax of rows of f32 to f16, a warp a row. A row may have any length.
KERNEL(128) softmax(const float *x, u16 *y, u32 rows, u32 columns) {
  const u32 lane = THREAD & 31, row = BLOCK_X * 4 + (THREAD >> 5);
  if (row >= rows) return;
  x += (u64)row * columns;
  y += (u64)row * columns;
  float most = -__builtin_inff();
  for (u32 i = lane; i < columns; i += 32) most = __builtin_fmaxf(most, x[i]);
  for (int m = 16; m > 0; m >>= 1) most = __builtin_fmaxf(most, lane_xor(most, m));
  float sum = 0;
  for (u32 i = lane; i < columns; i += 32) sum += exp2_approx((x[i] - most) * 1.44269504f);
  for (int m = 16; m > 0; m >>= 1) sum += lane_xor(sum, m);
  const float scale = 1 / sum;
  for (u32 i = lane; i < columns; i += 32) y[i] = to_half(exp2_approx((x[i] - most) * 1.44269504f) * scale);
}

// The sum of n numbers. Every block leaves one in partial; the last one to come, by the ticket, adds them up in order.
KERNEL(256) reduce(const float *x, float *partial, u32 *ticket, float *out, u32 n) {
  static SHARED float part[8];
  static SHARED u32 last;
  const u32 thread = THREAD;
  float sum = 0;
  for (u32 i = BLOCK_X * 256 + thread; i < n; i += BLOCKS * 256) sum += x[i];
  for (int m = 16; m > 0; m >>= 1) sum += lane_xor(sum, m);
  if ((thread & 31) == 0) part[thread >> 5] = sum;
  __syncthreads();
  if (thread == 0) {
    for (u32 i = 1; i < 8; i++) sum += part[i];
    partial[BLOCK_X] = sum;
    asm volatile("membar.gl;" ::: "memory");
    u32 before;
    asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(ticket) : "memory");
    last = before == BLOCKS - 1;
  }
  __syncthreads();
  if (last && thread == 0) {
    sum = 0;
    for (u32 i = 0; i < BLOCKS; i++) sum += ((volatile float *)partial)[i];
    *out = sum;
  }
}
