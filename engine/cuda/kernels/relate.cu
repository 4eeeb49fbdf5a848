// The mean relation of positions to those before them, and its gradients. A thread
// has one channel of `tile` neighboring positions in registers, so that an element
// on the other side is loaded once for all of them; 128 channels a block.
#include "math.h"

constexpr u32 tile = 8;
constexpr int nowhere = (int)0x80000000; // the segment of no position

// The positions of a block, and what a thread holds of them.
struct Tile {
  static constexpr u32 all = (1u << tile) - 1;
  u32 b, first, channel;
  int segment[tile], from, to;
  bool same; // one segment
  MEMBER Tile(const int *segments, u32 t, int from, int to) : from(from), to(to), same(true) {
    const u32 tiles = (t + tile - 1) / tile;
    b = BLOCK_X / tiles;
    first = BLOCK_X % tiles * tile;
    channel = BLOCK_Y * 128 + TID;
    UNROLL for (u32 k = 0; k < tile; k++) {
      segment[k] = first + k < t ? segments[(u64)b * t + first + k] : nowhere;
      if (segment[k] < from || segment[k] >= to) segment[k] = nowhere;
      same = same && segment[k] == segment[0];
    }
  }
  // Which of the positions are in a segment, by bits; the same for the whole block.
  MEMBER u32 in(int other) const {
    if (same) return other == segment[0] && other != nowhere ? all : 0;
    u32 bits = 0;
    if (other >= from && other < to) UNROLL for (u32 k = 0; k < tile; k++) bits |= (u32)(segment[k] == other) << k;
    return bits;
  }
};

// Runs a statement for each k of a tile whose bit is set, without looking at the bits where all are.
#define FOR_RELATED(related, ...)                                                \
  if (related == Tile::all) {                                                    \
    UNROLL for (u32 k = 0; k < tile; k++) { __VA_ARGS__; }                       \
  } else if (related) {                                                          \
    UNROLL for (u32 k = 0; k < tile; k++) if (related >> k & 1) { __VA_ARGS__; } \
  }

// How many positions on the other side are loaded at once.
constexpr u32 batch = 4;

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
  const auto add = [&](u32 related, float v) {
    FOR_RELATED(related, const float pair = own[k] + v; if (!dy) sum[k] += at_least(pair, 0.0f); else if (pair > 0.0f) sum[k] += 1.0f)
  };
  segments += row;
  for (u32 j = 0; j < s.first; j += batch) {
    u32 related[batch];
    float v[batch];
    UNROLL for (u32 u = 0; u < batch; u++, q += d) {
      related[u] = s.in(segments[j + u]);
      v[u] = *q;
    }
    UNROLL for (u32 u = 0; u < batch; u++) add(related[u], v[u]);
  }
  for (u32 j = s.first; j < end; j++, q += d) add(s.in(segments[j]) & Tile::all << (j - s.first), *q);
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
  const auto add = [&](u32 related, float v, float g) {
    FOR_RELATED(related, if (v + own[k] > 0.0f) sum[k] += g)
  };
  const u64 from_first = (row + s.first) * d + s.channel;
  p += from_first;
  dy += from_first;
  segments += row;
  shares += row;
  const u32 last = s.first + tile - 1;
  u32 i = s.first;
  for (; i < t && (i < last || (t - i) % batch != 0); i++, p += d, dy += d)
    add(s.in(segments[i]) & Tile::all >> (i < last ? last - i : 0), *p, *dy * shares[i]);
  for (; i < t; i += batch) {
    u32 related[batch];
    float v[batch], g[batch];
    UNROLL for (u32 u = 0; u < batch; u++, p += d, dy += d) {
      related[u] = s.in(segments[i + u]);
      v[u] = *p;
      g[u] = *dy * shares[i + u];
    }
    UNROLL for (u32 u = 0; u < batch; u++) add(related[u], v[u], g[u]);
  }
  UNROLL for (u32 k = 0; k < tile; k++)
    if (s.first + k < t) dq[(row + s.first + k) * d + s.channel] = sum[k];
}
