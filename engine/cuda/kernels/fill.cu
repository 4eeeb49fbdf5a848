#include "device.h"

// Words set to one value, four a thread.
KERNEL __launch_bounds__(256) fill(float *x, u64 n, float v) {
  const u64 at = ((u64)BLOCK_X * 256 + TID) * 4;
  UNROLL for (int i = 0; i < 4; i++) if (at + i < n) x[at + i] = v;
}
