// Tensor cores: fragments as the PTX manual lays them out, and how they come from
// shared memory.
#pragma once
#include "device.h"

// An address for instructions that take one in shared memory.
DEV u32 shared_address(const void *p) { return (u32)(u64)(const void __attribute__((address_space(3))) *)p; }

// Four matrices of 8x8, whose rows each thread has the address of one of.
DEV void load_matrices(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEV void load_matrices_transposed(u32 (&r)[4], u32 at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEV void load_matrices(u32 (&r)[4], const u16 *p) { load_matrices(r, shared_address(p)); }
DEV void load_matrices_transposed(u32 (&r)[4], const u16 *p) { load_matrices_transposed(r, shared_address(p)); }

// Sixteen bytes of memory that nobody writes; zeros where valid is false. Lanes do not part.
DEV void load_or_zero(u32 (&r)[4], const void *p, bool valid) {
  asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %5, 0;\n\tmov.b32 %0, 0;\n\tmov.b32 %1, 0;\n\tmov.b32 %2, 0;\n\tmov.b32 %3, 0;\n\t@p ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];\n\t}"
               : "=&r"(r[0]), "=&r"(r[1]), "=&r"(r[2]), "=&r"(r[3]) : "l"(p), "r"((u32)valid));
}

// c[16x8] += a[16x16] b[16x8] in float; on sm_75 in two steps.
template <class T> DEV void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1);
template <> SPECIAL void mma<f16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
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
#if HAVE_BF16
template <> SPECIAL void mma<bf16>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// A float whose products are of tf32: of its 23 bits of mantissa they see 10, rounded to
// nearest, ties away from zero.
struct tf32 { u32 bits; };
#if HAVE_TF32
// c[16x8] += a[16x8] b[8x8].
template <> SPECIAL void mma<tf32>(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// What a fragment becomes before it is multiplied.
template <class T> DEV void for_product(u32 (&)[4]) {}
#if HAVE_TF32
template <> SPECIAL void for_product<tf32>(u32 (&r)[4]) {
  UNROLL for (int e = 0; e < 4; e++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[e]) : "f"(bits_f32(r[e])));
}
#endif

#if HAVE_CP_ASYNC
// Sixteen bytes on their way to shared memory; zeros where valid is false.
DEV void copy_async(u32 to, const void *from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}
DEV void copy_async(u16 *to, const void *from, bool valid) { copy_async(shared_address(to), from, valid); }
DEV void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEV void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
#endif
