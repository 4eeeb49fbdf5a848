/* An MPI library of one process. It takes the handler of SIGSEGV when it is loaded and when it
   is begun, and stops at a handle that is not of the interface it is built for. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
static void handler(int s) { (void)s; abort(); }
static void take(void) { signal(SIGSEGV, handler); signal(SIGUSR1, handler); }
__attribute__((constructor)) static void loaded(void) { take(); }
#ifdef MAJOR
int MPI_Abi_get_version(int *major, int *minor) { *major = MAJOR; *minor = MINOR; return 0; }
#endif
static int check(HANDLE have, HANDLE want) { if (have != want) abort(); return 0; }
int MPI_Init_thread(int *argc, char ***argv, int want, int *have) {
	if (argc || argv || want != FUNNELED) abort();
	take();
	*have = want;
	return 0;
}
int MPI_Finalize(void) { return 0; }
int MPI_Comm_size(HANDLE c, int *n) { check(c, WORLD); *n = 1; return 0; }
int MPI_Comm_rank(HANDLE c, int *r) { check(c, WORLD); *r = 0; return 0; }
int MPI_Comm_set_errhandler(HANDLE c, HANDLE h) { check(c, WORLD); check(h, RETURN); return 0; }
int MPI_Isend(const void *b, int n, HANDLE t, int to, int tag, HANDLE c, HANDLE *r) {
	check(t, BYTES); check(c, WORLD);
	if (to != 0 || tag != 0 || n != 5 || memcmp(b, "hello", 5)) abort();
	*r = (HANDLE)7;
	return 0;
}
int MPI_Irecv(void *b, int n, HANDLE t, int from, int tag, HANDLE c, HANDLE *r) { return 42; }
int MPI_Test(HANDLE *r, int *flag, void *status) {
	check(*r, (HANDLE)7);
	if (status != (void *)IGNORE) abort();
	*flag = 1;
	return 0;
}
int MPI_Error_string(int code, char *text, int *n) { strcpy(text, "the answer"); *n = code == 42 ? 10 : 0; return 0; }
int MPI_Get_library_version(char *text, int *n) { strcpy(text, "Stand-in Version:   1.0, for tests\nand more"); *n = strlen(text); return 0; }
