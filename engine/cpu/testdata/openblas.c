// An OpenBLAS of one function, in the obvious way.
#include <stdint.h>

const char *openblas_get_config(void) { return "OpenBLAS 0.3.99 STANDIN"; }
const char *openblas_get_corename(void) { return "None"; }
void openblas_set_num_threads(int n) { (void)n; }

// By columns, as Fortran stores them.
void sgemm_(const char *ta, const char *tb, const int32_t *m, const int32_t *n, const int32_t *k, const float *alpha,
            const float *a, const int32_t *lda, const float *b, const int32_t *ldb, const float *beta, float *c, const int32_t *ldc) {
  const int a_row = *ta == 'N' ? 1 : *lda, a_col = *ta == 'N' ? *lda : 1;
  for (int j = 0; j < *n; j++) {
    float *to = &c[j * *ldc];
    for (int i = 0; i < *m; i++) to[i] = *beta == 0 ? 0 : *beta * to[i];
    for (int x = 0; x < *k; x++) {
      const float by = *alpha * b[*tb == 'N' ? x + j * *ldb : j + x * *ldb];
      for (int i = 0; i < *m; i++) to[i] += by * a[i * a_row + x * a_col];
    }
  }
}
