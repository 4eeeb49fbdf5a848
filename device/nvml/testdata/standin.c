// NVIDIA's management library with a card, "GPU-1", and a slice of it, "MIG-1", of which it
// knows the memory alone.
#include <stdint.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
static int card, slice;
static int whole(void *d) { return d == &card ? SUCCESS : NOT_SUPPORTED; }

#ifndef INIT
#define INIT SUCCESS
#endif
int nvmlInit_v2(void) { return INIT; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **to) {
  *to = !strcmp(uuid, "GPU-1") ? &card : !strcmp(uuid, "MIG-1") ? &slice : 0;
  return *to ? SUCCESS : NOT_FOUND;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *d, void **to) {
  if (d != &slice) return NOT_SUPPORTED;
  *to = &card;
  return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *d, unsigned *to) { to[0] = 97, to[1] = 40; return whole(d); }
int nvmlDeviceGetMemoryInfo(void *d, uint64_t *to) {
  to[0] = d == &card ? 40 : 5, to[1] = 1, to[2] = to[0] - 1;
  return SUCCESS;
}
int nvmlDeviceGetTemperature(void *d, int where, unsigned *to) { *to = 81; return where ? NOT_SUPPORTED : whole(d); }
int nvmlDeviceGetPowerUsage(void *d, unsigned *to) { *to = 69500; return whole(d); }
int nvmlDeviceGetEnforcedPowerLimit(void *d, unsigned *to) { *to = 70000; return whole(d); }
int nvmlDeviceGetTotalEnergyConsumption(void *d, uint64_t *to) { *to = 3000; return whole(d); }
int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *to) { *to = kind == 1 ? 1005 : 5001; return whole(d); }
int nvmlDeviceGetMaxClockInfo(void *d, int kind, unsigned *to) { *to = 1590; return whole(d); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *d, uint64_t *to) { *to = 4; return whole(d); }
