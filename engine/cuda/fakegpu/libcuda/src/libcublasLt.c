// libcublasLt.so.12 for a simulated card: the functions of NVIDIA's library of matmuls that snug calls, with the prototypes
// of cublasLt.h. Each one forwards to the process that simulates the card (cublaslt.go), through the driver's library, as
// NVIDIA's own library finds its context there.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card.h"

enum { SUCCESS = 0, INVALID_VALUE = 7 };

struct algo { uint64_t data[8]; };
struct result { struct algo algo; size_t workspace; int state; float waves; int reserved[4]; };

static asking *ask_with;

// find_driver finds the driver's library of the same simulation, which must be loaded.
__attribute__((constructor)) static void find_driver(void) {
  char path[200] = "";
  const char *card = getenv("SNUG_CARD"), *end = card ? strrchr(card, '/') : NULL;
  if (end) snprintf(path, sizeof path, "%.*s/libcuda.so.1", (int)(end - card), card);
  void *driver = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (driver) ask_with = (asking *)dlsym(driver, "ask_with");
  if (!ask_with) {
    fprintf(stderr, "libcublasLt: the driver's library is not loaded (SNUG_CARD=%s)\n", card);
    _exit(70);
  }
}

// What is made, and whether that worked, are the values of an answer.
static int made(void **to, struct answer a) {
  *to = (void *)a.value[0];
  return (int)a.value[1];
}
static int done(struct answer a) { return (int)a.value[1]; }

static struct text bytes_out(const void *from, size_t n) { return (struct text){.out = from, .out_bytes = n, .file = -1}; }

size_t cublasLtGetVersion(void) { return (size_t)ASK("cublasLtGetVersion").value[0]; }

int cublasLtCreate(void **to) { return made(to, ASK("cublasLtCreate")); }
int cublasLtDestroy(void *handle) { return done(ASK("cublasLtDestroy", W(handle))); }

int cublasLtMatmulDescCreate(void **to, int compute, int scale) { return made(to, ASK("cublasLtMatmulDescCreate", W(compute), W(scale))); }
int cublasLtMatmulDescSetAttribute(void *desc, int what, const void *value, size_t n) {
  return done(ask_with(bytes_out(value, n), "cublasLtMatmulDescSetAttribute", 2, W(desc), W(what)));
}
int cublasLtMatmulDescDestroy(void *desc) { return done(ASK("cublasLtMatmulDescDestroy", W(desc))); }

int cublasLtMatrixLayoutCreate(void **to, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  return made(to, ASK("cublasLtMatrixLayoutCreate", W(type), rows, cols, W(ld)));
}
int cublasLtMatrixLayoutSetAttribute(void *layout, int what, const void *value, size_t n) {
  return done(ask_with(bytes_out(value, n), "cublasLtMatrixLayoutSetAttribute", 2, W(layout), W(what)));
}
int cublasLtMatrixLayoutDestroy(void *layout) { return done(ASK("cublasLtMatrixLayoutDestroy", W(layout))); }

int cublasLtMatmulPreferenceCreate(void **to) { return made(to, ASK("cublasLtMatmulPreferenceCreate")); }
int cublasLtMatmulPreferenceSetAttribute(void *preference, int what, const void *value, size_t n) {
  return done(ask_with(bytes_out(value, n), "cublasLtMatmulPreferenceSetAttribute", 2, W(preference), W(what)));
}
int cublasLtMatmulPreferenceDestroy(void *preference) { return done(ASK("cublasLtMatmulPreferenceDestroy", W(preference))); }

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,
                                   struct result *results, int *found) {
  if (wanted < 1) return INVALID_VALUE;
  struct text text = {.in = results, .room = (size_t)wanted * sizeof *results, .file = -1};
  struct answer got = ask_with(text, "cublasLtMatmulAlgoGetHeuristic", 8, W(handle), W(desc), W(a), W(b), W(c), W(d), W(preference), W(wanted));
  *found = (int)got.value[0];
  return done(got);
}
int cublasLtMatmulAlgoCheck(void *handle, void *desc, void *a, void *b, void *c, void *d, const struct algo *algo, struct result *result) {
  struct text text = {.out = algo, .out_bytes = sizeof *algo, .in = result, .room = sizeof *result, .file = -1};
  return done(ask_with(text, "cublasLtMatmulAlgoCheck", 6, W(handle), W(desc), W(a), W(b), W(c), W(d)));
}
int cublasLtMatmulAlgoConfigGetAttribute(const struct algo *algo, int what, void *value, size_t n, size_t *written) {
  struct text text = {.out = algo, .out_bytes = sizeof *algo, .in = value, .room = n, .file = -1};
  struct answer got = ask_with(text, "cublasLtMatmulAlgoConfigGetAttribute", 2, W(what), W(n));
  *written = got.bytes;
  return done(got);
}

int cublasLtMatmul(void *handle, void *desc, const float *alpha, const void *a, void *of_a, const void *b, void *of_b, const float *beta,
                   const void *c, void *of_c, void *d, void *of_d, const struct algo *algo, void *workspace, size_t n, void *stream) {
  struct { // matmul in cublaslt.go
    float alpha, beta;
    uint64_t at[4], layout[4], workspace, workspace_bytes;
    struct algo algo;
  } m = {*alpha, *beta, {W(a), W(b), W(c), W(d)}, {W(of_a), W(of_b), W(of_c), W(of_d)}, W(workspace), n, *algo};
  return done(ask_with(bytes_out(&m, sizeof m), "cublasLtMatmul", 3, W(handle), W(desc), W(stream)));
}
