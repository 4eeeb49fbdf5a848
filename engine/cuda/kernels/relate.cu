// The mean relation of positions to those before them, and its gradients. A thread
// has one channel of `tile` neighboring positions in registers, so that an element
// on the other side is loaded once for all of them; 128 channels a block.
#include "math.h"

constexpr u32 tile = 8;
constexpr int nowhere = (int)0x80000000; // the segment of no position

// The positions of a block, and what a thread holds of them.
struct Tile {
  u32 b, first, channel;
  int segment[tile];
  MEMBER Tile(const int *segments, u32 t, int from, int to) {
    const u32 tiles = (t + tile - 1) / tile;
    b = BLOCK_X / tiles;
    first = BLOCK_X % tiles * tile;
    channel = BLOCK_Y * 128 + TID;
    UNROLL for (u32 k = 0; k < tile; k++) {
      segment[k] = first + k < t ? segments[(u64)b * t + first + k] : nowhere;
      if (segment[k] < from || segment[k] >= to) segment[k] = nowhere;
    }
  }
};

// share[b, i] is one over the number of positions that i is related to. A warp each.
KERNEL __launch_bounds__(256) relate_shares(const int *segments, float *shares, u32 positions, u32 t) {
  const u32 at = BLOCK_X * 8 + (TID >> 5), lane = TID & 31;
  if (at >= positions) return;
  const int own = segments[at];
  u32 n = 0;
  for (u32 j = at - at % t + lane; j <= at; j += 32) n += segments[j] == own;
  n = warp_sum(n);
  if (lane == 0) shares[at] = 1.0f / (float)n;
}

// y[i] = share[i] * the sum over related j <= i of relu(p[i] + q[j]); with dy its
// gradient in p, in which the sum is that of the terms above 0.
DEV void relate(const float *dy, const float *p, const float *q, const int *segments, const float *shares, float *y, u32 t, u32 d, int from, int to) {
  const Tile s(segments, t, from, to);
  if (s.channel >= d) return;
  const u64 row = (u64)s.b * t;
  p += row * d + s.channel;
  q += row * d + s.channel;
  float own[tile], sum[tile] = {};
  UNROLL for (u32 k = 0; k < tile; k++) own[k] = s.first + k < t ? p[(u64)(s.first + k) * d] : 0.0f;
  const u32 end = min_(s.first + tile, t);
  for (u32 j = 0; j < end; j++) {
    const int other = segments[row + j];
    if (other < from || other >= to) continue;
    const float v = q[(u64)j * d];
    UNROLL for (u32 k = 0; k < tile; k++)
      if (s.segment[k] == other && j <= s.first + k) {
        const float pair = own[k] + v;
        if (dy) sum[k] += pair > 0.0f ? 1.0f : 0.0f;
        else sum[k] += at_least(pair, 0.0f);
      }
  }
  UNROLL for (u32 k = 0; k < tile; k++)
    if (s.first + k < t) {
      const u64 i = row + s.first + k, at = i * d + s.channel;
      const float share = s.segment[k] == nowhere ? 0.0f : shares[i];
      y[at] = share == 0.0f ? 0.0f : dy ? dy[at] * share * sum[k] : sum[k] * share;
    }
}
KERNEL __launch_bounds__(128) relate(const float *p, const float *q, const int *segments, const float *shares, float *y, u32 t, u32 d, int from, int to) {
  relate(nullptr, p, q, segments, shares, y, t, d, from, to);
}
KERNEL __launch_bounds__(128) relate_grad_p(const float *dy, const float *p, const float *q, const int *segments, const float *shares, float *dp, u32 t, u32 d, int from, int to) {
  relate(dy, p, q, segments, shares, dp, t, d, from, to);
}

// dq[j] is the sum over the i >= j that are related to j of share[i] dy[i] where p[i] + q[j] > 0.
KERNEL __launch_bounds__(128) relate_grad_q(const float *dy, const float *p, const float *q, const int *segments, const float *shares, float *dq, u32 t, u32 d, int from, int to) {
  const Tile s(segments, t, from, to);
  if (s.channel >= d) return;
  const u64 row = (u64)s.b * t;
  float own[tile], sum[tile] = {};
  UNROLL for (u32 k = 0; k < tile; k++) own[k] = s.first + k < t ? q[(row + s.first + k) * d + s.channel] : 0.0f;
  for (u32 i = s.first; i < t; i++) {
    const int other = segments[row + i];
    if (other < from || other >= to) continue;
    const u64 at = (row + i) * d + s.channel;
    const float v = p[at], g = dy[at] * shares[row + i];
    UNROLL for (u32 k = 0; k < tile; k++)
      if (s.segment[k] == other && s.first + k <= i && v + own[k] > 0.0f) sum[k] += g;
  }
  UNROLL for (u32 k = 0; k < tile; k++)
    if (s.first + k < t) dq[(row + s.first + k) * d + s.channel] = sum[k];
}
