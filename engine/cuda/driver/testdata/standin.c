// The functions of the driver that make code, without a card: they check that arguments
// arrive as NVIDIA's header says. PTX that contains "bad" is refused, with a log.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, INVALID_PTX = 218 };
enum { ERROR_LOG = 5, ERROR_LOG_SIZE = 6 };

static int live; // modules that are not unloaded

int standin_live(void) { return live; }
int cuCtxSetCurrent(void *context) { return context == (void *)0x77 ? OK : INVALID_VALUE; }

static int refuse(unsigned int n, const int *options, void **values) {
  if (n != 2 || options[0] != ERROR_LOG || options[1] != ERROR_LOG_SIZE) return INVALID_VALUE;
  int written = snprintf(values[0], (size_t)values[1], "line 1: bad is no instruction\n");
  values[1] = (void *)(size_t)written; // the header: "OUT: amount of log buffer filled"
  return INVALID_PTX;
}

int cuModuleLoadDataEx(void **to, const char *code, unsigned int n, int *options, void **values) {
  if (n != 2 || (size_t)values[1] != 16 << 10) return INVALID_VALUE;
  if (strstr(code, "bad")) return refuse(n, options, values);
  *to = strdup(code);
  live++;
  return OK;
}

int cuModuleUnload(void *module) {
  free(module);
  live--;
  return OK;
}

int cuFuncGetAttribute(int *to, int what, void *function) {
  *to = what * 10 + (function == (void *)0x99);
  return OK;
}

// Device 0 is a card, 1 a slice of a card, 2 a slice of a driver that gives both its own identity.
enum { DEVICES = 3 };

int cuDeviceGetCount(int *n) { *n = DEVICES; return OK; }
int cuDeviceGet(int *to, int n) { *to = n + 10; return n < DEVICES ? OK : INVALID_VALUE; }
int cuDeviceTotalMem_v2(size_t *to, int device) { *to = (size_t)device << 30; return OK; }
int cuDeviceGetAttribute(int *to, int what, int device) { *to = what + device; return OK; }

int cuDeviceGetName(char *to, int n, int device) {
  snprintf(to, (size_t)n, "NVIDIA A100-SXM4-40GB%s", device == 12 ? " MIG 1g.5gb" : "");
  return OK;
}

int cuDeviceGetUuid_v2(unsigned char *to, int device) {
  for (int i = 0; i < 16; i++) to[i] = (unsigned char)(16 * i + device);
  return OK;
}

int cuDeviceGetUuid(unsigned char *to, int device) { return cuDeviceGetUuid_v2(to, device == 11 ? 9 : device); }
