// A library with the functions of cuBLASLt that snug calls, for the host's memory and
// float alone: it checks that arguments arrive as the header of NVIDIA's says, and
// computes. Objects carry a mark, so that one in the place of another is refused.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 7 };
enum { HANDLE = 1, DESC, LAYOUT, PREFERENCE };

struct handle { int mark; };
struct desc { int mark; int32_t trans_a, trans_b; uint32_t epilogue; const float *bias; };
struct layout { int mark; uint64_t rows, cols; int64_t ld, stride; int32_t batch; };
struct preference { int mark; uint64_t workspace; uint32_t reductions, alignment[4]; };
struct algo { uint64_t data[8]; };
struct result { struct algo algo; size_t workspace; int state; float waves; int reserved[4]; };

static int live; // objects that are not destroyed

int standin_live(void) { return live; }
size_t cublasLtGetVersion(void) { return 120903; }

static int destroy(void *p, int mark) {
  if (!p || *(int *)p != mark) return INVALID;
  *(int *)p = 0;
  free(p);
  live--;
  return OK;
}

#define CREATE(type, m) struct type *x = calloc(1, sizeof *x); x->mark = m; live++; *to = x

int cublasLtCreate(struct handle **to) { CREATE(handle, HANDLE); return OK; }
int cublasLtDestroy(void *p) { return destroy(p, HANDLE); }

int cublasLtMatmulDescCreate(struct desc **to, int compute, int scale) {
  if (compute != 68 || scale != 0) return INVALID;
  CREATE(desc, DESC);
  x->epilogue = 1;
  return OK;
}
int cublasLtMatmulDescDestroy(void *p) { return destroy(p, DESC); }
int cublasLtMatmulDescSetAttribute(struct desc *d, int a, const void *v, size_t n) {
  if (!d || d->mark != DESC) return INVALID;
  switch (a) {
  case 3: if (n != 4) return INVALID; memcpy(&d->trans_a, v, n); return OK;
  case 4: if (n != 4) return INVALID; memcpy(&d->trans_b, v, n); return OK;
  case 7: if (n != 4) return INVALID; memcpy(&d->epilogue, v, n); return OK;
  case 8: if (n != 8) return INVALID; memcpy(&d->bias, v, n); return OK;
  }
  return INVALID;
}

int cublasLtMatrixLayoutCreate(struct layout **to, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  if (type != 0 || ld < (int64_t)rows) return INVALID;
  CREATE(layout, LAYOUT);
  x->rows = rows, x->cols = cols, x->ld = ld, x->batch = 1;
  return OK;
}
int cublasLtMatrixLayoutDestroy(void *p) { return destroy(p, LAYOUT); }
int cublasLtMatrixLayoutSetAttribute(struct layout *l, int a, const void *v, size_t n) {
  if (!l || l->mark != LAYOUT) return INVALID;
  if (a == 5 && n == 4) { memcpy(&l->batch, v, n); return OK; }
  if (a == 6 && n == 8) { memcpy(&l->stride, v, n); return OK; }
  return INVALID;
}

int cublasLtMatmulPreferenceCreate(struct preference **to) { CREATE(preference, PREFERENCE); return OK; }
int cublasLtMatmulPreferenceDestroy(void *p) { return destroy(p, PREFERENCE); }
int cublasLtMatmulPreferenceSetAttribute(struct preference *p, int a, const void *v, size_t n) {
  if (!p || p->mark != PREFERENCE) return INVALID;
  if (a == 1 && n == 8) { memcpy(&p->workspace, v, n); return OK; }
  if (a == 3 && n == 4) { memcpy(&p->reductions, v, n); return OK; }
  if (a >= 5 && a <= 8 && n == 4) { memcpy(&p->alignment[a - 5], v, n); return OK; }
  return INVALID;
}

static int right(const struct handle *h, const struct desc *d, const struct layout *a, const struct layout *b, const struct layout *c, const struct layout *y) {
  return h && h->mark == HANDLE && d && d->mark == DESC && a && a->mark == LAYOUT && b && b->mark == LAYOUT && c && c->mark == LAYOUT && y && y->mark == LAYOUT;
}

// Two algorithms: the first adds with atomics, the second does not.
int cublasLtMatmulAlgoGetHeuristic(struct handle *h, struct desc *d, struct layout *a, struct layout *b, struct layout *c, struct layout *y,
                                   struct preference *p, int wanted, struct result *r, int *n) {
  if (!right(h, d, a, b, c, y) || !p || p->mark != PREFERENCE || wanted < 2 || p->reductions != 2 || !p->alignment[0] || !p->alignment[3]) return INVALID;
  memset(r, 0, 2 * sizeof *r);
  for (int i = 0; i < 2; i++) r[i].algo.data[7] = 0xabcd00 + i, r[i].workspace = 16 * i;
  *n = 2;
  return OK;
}
int cublasLtMatmulAlgoConfigGetAttribute(const struct algo *a, int what, void *v, size_t n, size_t *written) {
  uint32_t scheme = a->data[7] == 0xabcd00 ? 1 : 0;
  if (what != 3 || n != 4) return INVALID;
  memcpy(v, &scheme, 4);
  *written = 4;
  return OK;
}
int cublasLtMatmulAlgoCheck(struct handle *h, struct desc *d, struct layout *a, struct layout *b, struct layout *c, struct layout *y,
                            const struct algo *algo, struct result *r) {
  if (!right(h, d, a, b, c, y) || algo->data[7] != 0xabcd01) return INVALID;
  memset(r, 0, sizeof *r);
  r->algo = *algo, r->workspace = 16;
  return OK;
}

int cublasLtMatmul(struct handle *h, struct desc *d, const float *alpha, const float *a, struct layout *la, const float *b, struct layout *lb,
                   const float *beta, const float *c, struct layout *lc, float *y, struct layout *ly, const struct algo *algo, void *workspace,
                   size_t bytes, void *stream) {
  if (!right(h, d, la, lb, lc, ly) || algo->data[7] != 0xabcd01 || !workspace || bytes < 16 || stream != (void *)0x5eed || !c) return INVALID;
  uint64_t inner = d->trans_a ? la->rows : la->cols;
  for (int z = 0; z < ly->batch; z++)
    for (uint64_t j = 0; j < ly->cols; j++)
      for (uint64_t i = 0; i < ly->rows; i++) {
        float sum = 0;
        for (uint64_t k = 0; k < inner; k++)
          sum += a[z * la->stride + (d->trans_a ? k + i * la->ld : i + k * la->ld)] * b[z * lb->stride + (d->trans_b ? j + k * lb->ld : k + j * lb->ld)];
        uint64_t at = z * ly->stride + i + j * ly->ld;
        y[at] = *alpha * sum + (*beta ? *beta * c[at] : 0) + (d->epilogue == 4 ? d->bias[i] : 0);
      }
  memset(workspace, 0xff, 16);
  return OK;
}
