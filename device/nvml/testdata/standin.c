// NVIDIA's management library with a card, "GPU-1", on which two processes compute, and a slice of it, "MIG-1", of which
// it knows only the memory. Compiled with -DHEADER='"nvml.h"', it compares its prototypes, structures and numbers with
// NVIDIA's; with -DBEFORE_535 it lacks what came with driver 535.
#include <stddef.h>
#include <string.h>

#define NUMBERS                                                                                                        \
  X(NVML_SUCCESS, 0) X(NVML_ERROR_NOT_SUPPORTED, 3) X(NVML_ERROR_NOT_FOUND, 6) X(NVML_ERROR_INSUFFICIENT_SIZE, 7)      \
  X(NVML_ERROR_FUNCTION_NOT_FOUND, 13) X(NVML_TEMPERATURE_GPU, 0) X(NVML_CLOCK_SM, 1) X(NVML_CLOCK_MEM, 2)

#ifdef HEADER
#include HEADER
#define X(name, number) _Static_assert((int)name == number, #name);
NUMBERS
#else
typedef int nvmlReturn_t, nvmlTemperatureSensors_t, nvmlClockType_t;
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int pid; unsigned long long usedGpuMemory; unsigned int gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
#define X(name, number) name = number,
enum { NUMBERS };
#endif
_Static_assert(sizeof(nvmlProcessInfo_t) == 24 && offsetof(nvmlProcessInfo_t, usedGpuMemory) == 8, "nvmlProcessInfo_t");
_Static_assert(sizeof(nvmlMemory_t) == 24 && offsetof(nvmlMemory_t, free) == 8 && offsetof(nvmlMemory_t, used) == 16, "nvmlMemory_t");
_Static_assert(sizeof(nvmlUtilization_t) == 8 && offsetof(nvmlUtilization_t, memory) == 4, "nvmlUtilization_t");

static const char card_itself, slice_of_it;
#define CARD ((nvmlDevice_t)&card_itself)
#define SLICE ((nvmlDevice_t)&slice_of_it)
static nvmlReturn_t whole(nvmlDevice_t d) { return d == CARD ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED; }

#ifndef INIT
#define INIT NVML_SUCCESS
#endif
nvmlReturn_t nvmlInit_v2(void) { return INIT; }

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *to) {
  *to = !strcmp(uuid, "GPU-1") ? CARD : !strcmp(uuid, "MIG-1") ? SLICE : NULL;
  return *to ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t d, nvmlDevice_t *to) {
  if (d != SLICE) return NVML_ERROR_NOT_SUPPORTED;
  *to = CARD;
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *to) {
  *to = (nvmlUtilization_t){.gpu = 97, .memory = 40};
  return whole(d);
}
nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *to) {
  unsigned long long total = d == CARD ? 40 : 5;
  *to = (nvmlMemory_t){.total = total, .free = 1, .used = total - 1};
  return NVML_SUCCESS;
}
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t where, unsigned int *to) {
  *to = 81;
  return where == NVML_TEMPERATURE_GPU ? whole(d) : NVML_ERROR_NOT_SUPPORTED;
}
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned int *to) { *to = 69500; return whole(d); }
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned int *to) { *to = 70000; return whole(d); }
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *to) { *to = 3000; return whole(d); }
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t kind, unsigned int *to) {
  *to = kind == NVML_CLOCK_SM ? 1005 : kind == NVML_CLOCK_MEM ? 5001 : 0;
  return whole(d);
}
nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t d, nvmlClockType_t kind, unsigned int *to) {
  *to = kind == NVML_CLOCK_SM ? 1590 : 0;
  return whole(d);
}
#ifdef BEFORE_535
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *to) { *to = 4; return whole(d); }
#else
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *to) { *to = 4; return whole(d); }
#endif
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned int *n, nvmlProcessInfo_t *to) {
  if (d != CARD || *n < 2) return NVML_ERROR_NOT_SUPPORTED;
  to[0] = (nvmlProcessInfo_t){.pid = 17, .usedGpuMemory = 1ull << 33, .gpuInstanceId = -1, .computeInstanceId = -1};
  to[1] = (nvmlProcessInfo_t){.pid = 18, .usedGpuMemory = -1, .gpuInstanceId = -1, .computeInstanceId = -1}; // not reported
  *n = 2;
  return NVML_SUCCESS;
}
