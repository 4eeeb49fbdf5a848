// The selective scan of a state-space model and its gradients. Four lanes have the
// states of a channel, four each in registers, through all its time: a warp has 8
// channels, a block of 128 threads 32. Lane l of a warp has channel l%8 and states
// l/8*4 and up, so that the loads of a step are whole sectors.
#include "math.h"

constexpr u32 held = 4;  // states of a thread
constexpr u32 steps = 8; // that the gradient goes through at a time

// Shapes: batch x t x d channels, `states` of them, of which the launch does 16 from
// `from` on; states are kept in front of each chunk of steps.
struct Scan { u32 t, d, states, from, chunk; };

// What a thread works on.
struct Lane {
  u32 n, channel, state; // the first of its states
  bool active;
  float a[held];
  MEMBER Lane(const float *A, const Scan &s) {
    const u32 groups = (s.d + 31) / 32;
    n = BLOCK_X / groups;
    channel = BLOCK_X % groups * 32 + (TID >> 5) * 8 + (TID & 7);
    state = s.from + (TID >> 3 & 3) * held;
    active = channel < s.d;
    UNROLL for (u32 k = 0; k < held; k++) a[k] = active && state + k < s.states ? A[(u64)channel * s.states + state + k] : 0.0f;
  }
  // The lane that speaks for its channel.
  MEMBER bool leads() { return active && (TID >> 3 & 3) == 0; }
  // Where step t of a tensor [N,T,D] is; of B or C [N,T,S]; of the states of chunk c.
  MEMBER u64 at(const Scan &s, u32 t) { return ((u64)n * s.t + t) * s.d + channel; }
  MEMBER u64 mix(const Scan &s, u32 t) { return ((u64)n * s.t + t) * s.states + state; }
  MEMBER u64 kept(const Scan &s, u32 c) { return (((u64)n * ((s.t + s.chunk - 1) / s.chunk) + c) * s.states + state) * s.d + channel; }
  // What B or C has for the thread's states.
  MEMBER void load_mix(float (&v)[held], const float *m, const Scan &s, u32 t) {
    UNROLL for (u32 k = 0; k < held; k++) v[k] = state + k < s.states ? m[mix(s, t) + k] : 0.0f;
  }
  MEMBER float load_step(const float *x, const Scan &s, u32 t) { return active ? x[at(s, t)] : 0.0f; }
  // The sum over the four lanes of a channel.
  MEMBER float sum(float v) {
    v += shuffle_xor(v, 8);
    return v + shuffle_xor(v, 16);
  }
  MEMBER void advance(float (&h)[held], float u, float dt, const float (&b)[held]) {
    UNROLL for (u32 k = 0; k < held; k++) h[k] = fma(exp_(dt * a[k]), h[k], dt * u * b[k]);
  }
};

// h = exp(dt A) h + dt B u, y = sum of C h + D u. Beyond the first 16 states the
// sums are added to y.
KERNEL __launch_bounds__(128) selective_scan(const float *u, const float *dt, const float *A, const float *B, const float *C, const float *D, float *y, float *kept, Scan s) {
  Lane l(A, s);
  float h[held] = {}, b[held], c[held];
  const float skip = l.active ? D[l.channel] : 0.0f;
  // The operands of a step are loaded while the one before is computed.
  float un = l.load_step(u, s, 0), dn = l.load_step(dt, s, 0), bn[held], cn[held];
  l.load_mix(bn, B, s, 0);
  l.load_mix(cn, C, s, 0);
  for (u32 t = 0; t < s.t; t++) {
    const float ut = un, dtt = dn;
    UNROLL for (u32 k = 0; k < held; k++) b[k] = bn[k], c[k] = cn[k];
    const u32 next = min_(t + 1, s.t - 1);
    un = l.load_step(u, s, next);
    dn = l.load_step(dt, s, next);
    l.load_mix(bn, B, s, next);
    l.load_mix(cn, C, s, next);
    if (t % s.chunk == 0 && l.active) {
      UNROLL for (u32 k = 0; k < held; k++) if (l.state + k < s.states) kept[l.kept(s, t / s.chunk) + (u64)k * s.d] = h[k];
    }
    l.advance(h, ut, dtt, b);
    float v = 0.0f;
    UNROLL for (u32 k = 0; k < held; k++) v = fma(c[k], h[k], v);
    v = l.sum(v);
    if (l.leads()) y[l.at(s, t)] = s.from == 0 ? fma(skip, ut, v) : y[l.at(s, t)] + v;
  }
}

// One of two values, by a bit of the lane: each lane gets the sum of its own and of
// its partner's for the value that it keeps.
DEV float exchange(float low, float high, u32 bit) {
  const bool up = TID & bit;
  return (up ? high : low) + shuffle_xor(up ? low : high, (int)bit);
}

// The gradient, from the last chunk to the first. `steps` steps of states are kept
// in shared memory, from the chunk's first on computed again; going back over them,
// dh is the gradient of the states. What is summed over channels leaves as one
// partial sum a block, [N, blocks, T, S]; what is summed over time as one of each row
// of the batch, dA [N, D, S] and dD [N, D].
//
// Shared: history [steps][held][128], a thread its own column: no bank conflict. Of a step that
// was gone back over, the sums over a warp's channels take the place of the first states, so that
// four blocks fit a T4. (Told of none, ptxas would spill for sm_90.)
KERNEL __launch_bounds__(128, 5) selective_scan_grad(const float *dy, const float *kept, const float *u, const float *dt, const float *A, const float *B, const float *C, const float *D,
                                                  float *du, float *ddt, float *dA, float *dB, float *dC, float *dD, Scan s) {
  __shared__ float history[steps][held][128];
  Lane l(A, s);
  const u32 groups = (s.d + 31) / 32, block = BLOCK_X % groups;
  const float skip = l.active ? D[l.channel] : 0.0f;
  float dh[held] = {}, da[held] = {}, dskip = 0.0f;
  for (u32 chunk = (s.t + s.chunk - 1) / s.chunk; chunk-- > 0;) {
    const u32 first = chunk * s.chunk, end = min_(s.t, first + s.chunk);
    for (u32 part = (end - first + steps - 1) / steps; part-- > 0;) {
      const u32 from = first + part * steps, to = min_(end, from + steps);
      float h[held], b[held], c[held];
      UNROLL for (u32 k = 0; k < held; k++) h[k] = l.active && l.state + k < s.states ? kept[l.kept(s, chunk) + (u64)k * s.d] : 0.0f;
      for (u32 t = first; t < to; t++) {
        if (t >= from) {
          UNROLL for (u32 k = 0; k < held; k++) history[t - from][k][TID] = h[k];
        }
        l.load_mix(b, B, s, t);
        l.advance(h, l.load_step(u, s, t), l.load_step(dt, s, t), b);
      }
      for (u32 t = to; t-- > from;) {
        const float ut = l.load_step(u, s, t), dtt = l.load_step(dt, s, t), g = l.load_step(dy, s, t);
        l.load_mix(b, B, s, t);
        l.load_mix(c, C, s, t);
        float mixed[2 * held], slope = 0.0f, flow = 0.0f; // dB and dC; of dt; dh B
        UNROLL for (u32 k = 0; k < held; k++) {
          const float before = history[t - from][k][TID], decay = exp_(dtt * l.a[k]);
          mixed[held + k] = g * h[k];
          dh[k] = fma(g, c[k], dh[k]);
          mixed[k] = dh[k] * (dtt * ut);
          const float past = dh[k] * before * decay;
          da[k] = fma(past, dtt, da[k]);
          slope = fma(past, l.a[k], slope);
          flow = fma(dh[k], b[k], flow);
          dh[k] *= decay;
          h[k] = before;
        }
        slope = l.sum(slope);
        flow = l.sum(flow);
        if (l.leads()) {
          const u64 at = l.at(s, t);
          const float dut = flow * dtt, ddtt = fma(flow, ut, slope);
          du[at] = s.from == 0 ? fma(g, skip, dut) : du[at] + dut;
          ddt[at] = s.from == 0 ? ddtt : ddt[at] + ddtt;
          dskip = fma(g, ut, dskip);
        }
        // Eight values over eight channels: lane c of them ends with value c.
        UNROLL for (u32 k = 0; k < 4; k++) mixed[k] = exchange(mixed[k], mixed[k + 4], 4);
        UNROLL for (u32 k = 0; k < 2; k++) mixed[k] = exchange(mixed[k], mixed[k + 2], 2);
        history[t - from][0][TID] = exchange(mixed[0], mixed[1], 1);
      }
      SYNC();
      for (u32 i = TID; i < (to - from) * 32; i += 128) {
        const u32 lane = i & 31, t = from + (i >> 5), state = s.from + (lane >> 3) * held + (lane & 3);
        const float *sums = history[i >> 5][0] + lane;
        float v = sums[0];
        UNROLL for (int w = 1; w < 4; w++) v += sums[32 * w];
        if (state < s.states) (lane & 4 ? dC : dB)[(((u64)l.n * groups + block) * s.t + t) * s.states + state] = v;
      }
      SYNC();
    }
  }
  if (!l.active) return;
  UNROLL for (u32 k = 0; k < held; k++) if (l.state + k < s.states) dA[((u64)l.n * s.d + l.channel) * s.states + l.state + k] = da[k];
  if (l.leads() && s.from == 0) dD[(u64)l.n * s.d + l.channel] = dskip;
}
