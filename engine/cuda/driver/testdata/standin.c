// The functions of the driver that make code, without a card: they check that arguments
// arrive as NVIDIA's header says. PTX that contains "bad" is refused, with a log.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, INVALID_PTX = 218 };
enum { ERROR_LOG = 5, ERROR_LOG_SIZE = 6, FROM_PTX = 1 };

struct link { unsigned int n; int *options; void **values; char *cubin; };

static int live; // links and modules that are not destroyed

int standin_live(void) { return live; }
int cuCtxSetCurrent(void *context) { return context == (void *)0x77 ? OK : INVALID_VALUE; }

static int refuse(unsigned int n, const int *options, void **values) {
  if (n != 2 || options[0] != ERROR_LOG || options[1] != ERROR_LOG_SIZE) return INVALID_VALUE;
  int written = snprintf(values[0], (size_t)values[1], "line 1: bad is no instruction\n");
  values[1] = (void *)(size_t)written; // the header: "OUT: amount of log buffer filled"
  return INVALID_PTX;
}

int cuLinkCreate_v2(unsigned int n, int *options, void **values, struct link **to) {
  if (n != 2 || (size_t)values[1] != 16 << 10) return INVALID_VALUE;
  struct link *l = calloc(1, sizeof *l);
  l->n = n, l->options = options, l->values = values;
  *to = l;
  live++;
  return OK;
}

int cuLinkAddData_v2(struct link *l, int type, void *data, size_t size, const char *name, unsigned int n, int *options, void **values) {
  if (type != FROM_PTX || size != strlen(data) + 1 || strcmp(name, "snug") || n || options || values || l->cubin) return INVALID_VALUE;
  if (strstr(data, "bad")) return refuse(l->n, l->options, l->values);
  l->cubin = calloc(1, size + 9);
  snprintf(l->cubin, size + 9, "\177ELF of %s", (char *)data);
  return OK;
}

int cuLinkComplete(struct link *l, void **to, size_t *size) {
  if (!l->cubin) return INVALID_VALUE;
  *to = l->cubin;
  *size = strlen(l->cubin);
  return OK;
}

int cuLinkDestroy(struct link *l) {
  if (l->cubin) memset(l->cubin, 0, strlen(l->cubin)); // it is gone with the link
  free(l->cubin);
  free(l);
  live--;
  return OK;
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
