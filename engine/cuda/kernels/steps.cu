// The steps of fused bodies: one function for each graph.Fn, in its order of
// arguments, with the attribute last. They are no kernels: engine/cuda takes
// their instructions out of the PTX and strings them together (fuse.go).
#include "math.h"

#define STEP extern "C" __device__ float

STEP step_copy(float x) { return x; }
STEP step_neg(float x) { return -x; }
STEP step_abs(float x) { return abs_(x); }
STEP step_square(float x) { return x * x; }
STEP step_sqrt(float x) { return __builtin_sqrtf(x); }
STEP step_rsqrt(float x) { return rsqrt(x); }
STEP step_recip(float x) { return 1.0f / x; }
STEP step_exp(float x) { return exp_(x); }
STEP step_log(float x) { return log_(x); }
STEP step_sin(float x) { return sin_cos(x, 0); }
STEP step_cos(float x) { return sin_cos(x, 1); }
STEP step_tanh(float x) { return tanh_(x); }
STEP step_sigmoid(float x) { return sigmoid_(x); }
STEP step_softplus(float x) { return softplus_(x); }
STEP step_relu(float x) { return at_least(x, 0.0f); }
STEP step_leaky_relu(float x, float a) { return x > 0.0f ? x : x * a; }
STEP step_elu(float x, float a) { return x > 0.0f ? x : expm1_(at_least(x, -26.0f)) * a; }
STEP step_silu(float x) { return silu_(x); }
STEP step_gelu(float x) { return gelu_(x); }
STEP step_gelu_tanh(float x) { return gelu_tanh(x); }
STEP step_addc(float x, float a) { return x + a; }
STEP step_mulc(float x, float a) { return x * a; }
STEP step_minc(float x, float a) { return at_most(x, a); }
STEP step_maxc(float x, float a) { return at_least(x, a); }
STEP step_is_finite(float x) { return x - x == 0.0f ? 1.0f : 0.0f; }
STEP step_positive(float x) { return x > 0.0f ? 1.0f : 0.0f; }
STEP step_floor(float x) { return __builtin_floorf(x); }

STEP step_add(float x, float y) { return x + y; }
STEP step_sub(float x, float y) { return x - y; }
STEP step_mul(float x, float y) { return x * y; }
STEP step_div(float x, float y) { return x / y; }
STEP step_max(float x, float y) { return x > y || x != x ? x : y; }
STEP step_min(float x, float y) { return x < y || x != x ? x : y; }
STEP step_greater(float x, float y) { return x > y ? 1.0f : 0.0f; }
STEP step_equal(float x, float y) { return x == y ? 1.0f : 0.0f; }

STEP step_tanh_grad(float x, float y) { return (1.0f - x * x) * y; }
STEP step_sigmoid_grad(float x, float y) { return x * (1.0f - x) * y; }
STEP step_relu_grad(float x, float y) { return x <= 0.0f ? 0.0f : y; }
STEP step_leaky_relu_grad(float x, float y, float a) { return x > 0.0f ? y : y * a; }
STEP step_elu_grad(float x, float y, float a) { return x > 0.0f ? y : exp_(x) * a * y; }
STEP step_silu_grad(float x, float y) { return silu_grad(x, y); }
STEP step_gelu_grad(float x, float y) { return gelu_grad(x, y); }
STEP step_gelu_tanh_grad(float x, float y) { return gelu_tanh_grad(x, y); }
STEP step_abs_grad(float x, float y) { return x > 0.0f ? y : x < 0.0f ? -y : y * 0.0f; }

STEP step_select(float x, float y, float z) { return x != 0.0f ? y : z; }

// Random words of dropout: of four neighbors, the first of which is a multiple of
// four, and of one element.
struct Words { u32 w[4]; };
extern "C" __device__ Words step_words(u64 i, u32 seed0, u32 seed1, u32 stream, u32 run) {
  Words r = {{(u32)(i >> 2), (u32)(i >> 34), stream, run}};
  philox(r.w, seed0, seed1);
  return r;
}
extern "C" __device__ u32 step_word(u64 i, u32 seed0, u32 seed1, u32 stream, u32 run) { return random_word(i, seed0, seed1, stream, run); }
STEP step_dropout(float x, u32 word, float keep, float scale) {
  float s = dropout_scale(word, keep, scale);
  return s == 0.0f ? 0.0f : x * s;
}

// Formats: rounding a register, and words of two neighbors.
STEP step_round_f16(float x) { return rounded<f16>(x); }
STEP step_round_bf16(float x) { return rounded<bf16>(x); }
extern "C" __device__ u32 step_pack_f16(float lo, float hi) { return pack2<f16>(lo, hi); }
extern "C" __device__ u32 step_pack_bf16(float lo, float hi) { return pack2<bf16>(lo, hi); }
// A parameter is read as a whole, since what takes the step over moves registers.
DEV u32 whole(u32 w) { asm("mov.b32 %0, %0;" : "+r"(w)); return w; }
STEP step_low_f16(u32 w) { return to_f32(f16{(u16)whole(w)}); }
STEP step_high_f16(u32 w) { return to_f32(f16{(u16)(whole(w) >> 16)}); }
STEP step_low_bf16(u32 w) { return bits_f32(whole(w) << 16); }
STEP step_high_bf16(u32 w) { return bits_f32(whole(w) & 0xffff0000u); }
