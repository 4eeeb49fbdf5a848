// Positions sorted by their keys, those with the same key in order: a radix sort, of 8 bits of the keys at a time,
// from the lowest (Satish, Harris and Garland 2009). For each 8 bits, sort_count counts in each tile how many keys
// have which digit, sort_scan makes of the counts where these go, and sort_place brings them there. Keys above
// `most` count as it.
#include "device.h"

constexpr u32 DIGITS = 256, TILE = 2048; // keys of a block

// The lanes whose digits are the same as this one's, of those with a key.
DEV u32 alike(u32 digit, bool key) {
  u32 same = ballot(key);
  UNROLL for (u32 bit = 0; bit < 8; bit++) {
    const u32 set = ballot(digit >> bit & 1);
    same &= digit >> bit & 1 ? set : ~set;
  }
  return same;
}
DEV u32 below(u32 lanes) { return (u32)__builtin_popcount(lanes & ((1u << (TID & 31)) - 1)); }

// counts[d][BLOCK_X] is how many keys of the tile have digit d.
KERNEL __launch_bounds__(256) sort_count(const u32 *keys, u32 *counts, u32 n, u32 shift, u32 most) {
  __shared__ u32 found[8][DIGITS];
  const u32 warp = TID >> 5;
  UNROLL for (u32 w = 0; w < 8; w++) found[w][TID] = 0;
  SYNC();
  const u32 end = min_(n, (BLOCK_X + 1) * TILE);
  for (u32 from = BLOCK_X * TILE; from < end; from += 256) {
    const u32 i = from + TID;
    const u32 digit = i < end ? min_(keys[i], most) >> shift & 255 : 0, same = alike(digit, i < end);
    if (i < end && below(same) == 0) found[warp][digit] += (u32)__builtin_popcount(same);
    warp_sync(); // another lane may be the first with this digit next time
  }
  SYNC();
  u32 count = 0;
  UNROLL for (u32 w = 0; w < 8; w++) count += found[w][TID];
  counts[TID * BLOCKS + BLOCK_X] = count;
}

// Makes of m counts, a multiple of four, the sums of those before each. One block.
KERNEL __launch_bounds__(1024) sort_scan(u32 *counts, u32 m) {
  __shared__ u32 sums[32];
  const u32 lane = TID & 31, warp = TID >> 5;
  u32 before = 0;
  for (u32 from = 0; from < m; from += 4096) {
    const u32 i = from + 4 * TID;
    auto *const at = (Neighbors<u32, 4> *)(counts + i);
    Neighbors<u32, 4> c{};
    if (i < m) c = *at;
    const u32 own = c.v[0] + c.v[1] + c.v[2] + c.v[3];
    u32 sum = own; // of the lanes up to this one
    UNROLL for (u32 k = 1; k < 32; k <<= 1) {
      const u32 left = shuffle_from(sum, lane - k & 31);
      if (lane >= k) sum += left;
    }
    if (lane == 31) sums[warp] = sum;
    SYNC();
    u32 next = before + sum - own;
    UNROLL for (u32 w = 0; w < 32; w++) {
      if (w < warp) next += sums[w];
      before += sums[w];
    }
    UNROLL for (u32 q = 0; q < 4; q++) {
      const u32 count = c.v[q];
      c.v[q] = next;
      next += count;
    }
    if (i < m) *at = c;
    SYNC(); // sums have been read
  }
}

// Brings the keys of a tile and their positions, at first 0, 1, 2, ..., to where keys with their digit go.
KERNEL __launch_bounds__(256) sort_place(const u32 *keys, const u32 *positions, const u32 *places, u32 *to_keys, u32 *to_positions, u32 n, u32 shift, u32 most) {
  __shared__ u32 next[8][DIGITS]; // by warps: first how many keys have a digit, then where the first of them goes
  const u32 warp = TID >> 5;
  u32 place = places[TID * BLOCKS + BLOCK_X]; // of the next key with digit TID
  const u32 end = min_(n, (BLOCK_X + 1) * TILE);
  for (u32 from = BLOCK_X * TILE; from < end; from += 256) {
    UNROLL for (u32 w = 0; w < 8; w++) next[w][TID] = 0;
    SYNC();
    const u32 i = from + TID;
    const bool own = i < end;
    const u32 key = own ? min_(keys[i], most) : 0, digit = key >> shift & 255, same = alike(digit, own), rank = below(same);
    if (own && rank == 0) next[warp][digit] = (u32)__builtin_popcount(same);
    SYNC();
    UNROLL for (u32 w = 0; w < 8; w++) {
      const u32 count = next[w][TID];
      next[w][TID] = place;
      place += count;
    }
    SYNC();
    if (own) {
      const u32 to = next[warp][digit] + rank;
      to_keys[to] = key;
      to_positions[to] = positions ? positions[i] : i;
    }
    SYNC(); // next has been read
  }
}
