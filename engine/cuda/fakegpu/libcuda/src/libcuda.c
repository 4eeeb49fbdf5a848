// libcuda.so.1 without a card: the functions of NVIDIA's driver that snug calls, with the prototypes of cuda.h. Each one
// forwards to the process that simulates the card, over the socket named by SNUG_CARD (serve.go). That process sees only
// Go interfaces, so what only the library can see is checked here: that the thread has a context, that flags, attributes
// and structures are those of the header, and that copied host memory is page-locked. Misuse is reported to the
// simulation as well as returned, because a program may ignore an error code.
//
// Compiled with -DHEADER='"cuda.h"', it compares its prototypes and numbers with NVIDIA's; with -DLEAST it leaves out the
// functions that not every driver has.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "card.h"

// The numbers used here, in calls.go and in the binding.
#define NUMBERS                                                                                                        \
  X(CUDA_SUCCESS, 0) X(CUDA_ERROR_INVALID_VALUE, 1) X(CUDA_ERROR_OUT_OF_MEMORY, 2) X(CUDA_ERROR_NOT_INITIALIZED, 3)    \
  X(CUDA_ERROR_INVALID_CONTEXT, 201) X(CU_CTX_SCHED_BLOCKING_SYNC, 4) X(CU_MEMHOSTALLOC_PORTABLE, 1)                   \
  X(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 13) X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                \
  X(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 36) X(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 37)                      \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)              \
  X(CU_JIT_ERROR_LOG_BUFFER, 5) X(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6)                                               \
  X(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, 1) X(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, 3) X(CU_FUNC_ATTRIBUTE_NUM_REGS, 4)  \
  X(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 9) X(CU_STREAM_NON_BLOCKING, 1) X(CU_EVENT_BLOCKING_SYNC, 1)   \
  X(CU_EVENT_DISABLE_TIMING, 2) X(CU_STREAM_CAPTURE_MODE_RELAXED, 2) X(CU_CTX_SCHED_AUTO, 0)

#ifdef HEADER
#include HEADER
#define X(name, number) _Static_assert((int)name == number, #name);
NUMBERS
// Newer headers redirect these names to newer versions of the functions.
#undef cuDeviceGetUuid
#undef cuEventElapsedTime
#else
typedef int CUresult, CUdevice, CUdevice_attribute, CUfunction_attribute, CUjit_option, CUstreamCaptureMode;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct { char bytes[16]; } CUuuid;
#define X(name, number) name = number,
enum { NUMBERS };
#define CU_LAUNCH_PARAM_END ((void *)0)
#define CU_LAUNCH_PARAM_BUFFER_POINTER ((void *)1)
#define CU_LAUNCH_PARAM_BUFFER_SIZE ((void *)2)
#endif

// --- questions and answers --------------------------------------------------------------------------------------------

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static int to_card = -1;
static int initialized;
static _Thread_local uint64_t current; // context

// lost ends the process: nothing can be tested without the simulation.
static void lost(const char *why) {
  fprintf(stderr, "libcuda: the simulated card at SNUG_CARD=%s: %s\n", getenv("SNUG_CARD"), why);
  _exit(70);
}

static void reach(void) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  const char *path = getenv("SNUG_CARD");
  if (!path || strlen(path) >= sizeof at.sun_path) lost("no path of a socket");
  strcpy(at.sun_path, path);
  to_card = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (to_card < 0 || connect(to_card, (struct sockaddr *)&at, sizeof at)) lost("nobody answers");
}

static void put(const void *from, size_t n) {
  for (const char *at = from; n > 0;) {
    ssize_t k = send(to_card, at, n, MSG_NOSIGNAL);
    if (k <= 0) lost("it hung up");
    at += k, n -= (size_t)k;
  }
}

static void get(void *to, size_t n) {
  for (char *at = to; n > 0;) {
    ssize_t k = recv(to_card, at, n, 0);
    if (k <= 0) lost("it hung up");
    at += k, n -= (size_t)k;
  }
}

// put_with sends a question and a file, -1: none.
static void put_with(const struct question *q, int file) {
  if (file < 0) return put(q, sizeof *q);
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
  } control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
  memcpy(CMSG_DATA(&control.header), &file, sizeof file);
  struct iovec part = {(void *)q, sizeof *q};
  struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
  if (sendmsg(to_card, &m, MSG_NOSIGNAL) != sizeof *q) lost("it hung up");
}

// Not one of another instance of this library in the same process.
__attribute__((visibility("protected"))) struct answer ask_with(struct text text, const char *call, int n, ...) {
  struct question q = {.context = current, .bytes = text.out_bytes};
  snprintf(q.call, sizeof q.call, "%s", call);
  va_list args;
  va_start(args, n);
  for (int i = 0; i < n; i++) q.arg[i] = va_arg(args, uint64_t);
  va_end(args);
  struct answer a;
  pthread_mutex_lock(&one_at_a_time);
  if (to_card < 0) reach();
  put_with(&q, text.file);
  put(text.out, text.out_bytes);
  get(&a, sizeof a);
  size_t taken = a.bytes < text.room ? a.bytes : text.room;
  get(text.in, taken);
  for (char dropped; taken < a.bytes; taken++) get(&dropped, 1);
  pthread_mutex_unlock(&one_at_a_time);
  return a;
}

// wrong reports misuse.
static CUresult wrong(const char *call, const char *what) {
  char line[200];
  int n = snprintf(line, sizeof line, "%s: want %s", call, what);
  ask_with((struct text){.out = line, .out_bytes = (size_t)n, .file = -1}, "wrong", 0);
  return CUDA_ERROR_INVALID_VALUE;
}

#define INITIALIZED \
  if (!initialized) return CUDA_ERROR_NOT_INITIALIZED
// NVIDIA's driver returns an error here, and only if the program happens to run on a new thread.
#define CONTEXT \
  INITIALIZED; \
  if (!current) return wrong(__func__, "a context on the thread"), CUDA_ERROR_INVALID_CONTEXT
#define WANT(holds) \
  if (!(holds)) return wrong(__func__, #holds)

// --- the driver and its cards -----------------------------------------------------------------------------------------

CUresult cuDriverGetVersion(int *version) {
  struct answer a = ASK("cuDriverGetVersion");
  *version = (int)a.value[0];
  return (CUresult)a.code;
}

// cuInit passes on the C library's environment, which can differ from Go's.
CUresult cuInit(unsigned int flags) {
  WANT(flags == 0);
  static const char *names[] = {"CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_DISABLE"};
  char *environment = NULL;
  size_t bytes = 0;
  FILE *to = open_memstream(&environment, &bytes);
  for (int i = 0; i < 3; i++)
    if (getenv(names[i])) fprintf(to, "%s=%s\n", names[i], getenv(names[i]));
  fclose(to);
  struct answer a = ask_with((struct text){.out = environment, .out_bytes = bytes, .file = -1}, "cuInit", 0);
  free(environment);
  initialized = a.code == CUDA_SUCCESS;
  return (CUresult)a.code;
}

CUresult cuDeviceGetCount(int *count) {
  INITIALIZED;
  struct answer a = ASK("cuDeviceGetCount");
  *count = (int)a.value[0];
  return (CUresult)a.code;
}

// A device's handle differs from its number: nothing promises that they are equal.
CUresult cuDeviceGet(CUdevice *device, int number) {
  INITIALIZED;
  struct answer a = ASK("cuDeviceGet", W(number));
  *device = (CUdevice)a.value[0];
  return (CUresult)a.code;
}

CUresult cuDeviceGetName(char *name, int room, CUdevice device) {
  INITIALIZED;
  WANT(room > 0);
  memset(name, 0, (size_t)room);
  return (CUresult)ask_with((struct text){.in = name, .room = (size_t)room - 1, .file = -1}, "cuDeviceGetName", 1, W(device)).code;
}

CUresult cuDeviceGetUuid_v2(CUuuid *id, CUdevice device) {
  INITIALIZED;
  return (CUresult)ask_with((struct text){.in = id, .room = sizeof *id, .file = -1}, "cuDeviceGetUuid_v2", 1, W(device)).code;
}

#ifndef LEAST
CUresult cuDeviceGetUuid(CUuuid *id, CUdevice device) {
  INITIALIZED;
  return (CUresult)ask_with((struct text){.in = id, .room = sizeof *id, .file = -1}, "cuDeviceGetUuid", 1, W(device)).code;
}
#endif

CUresult cuDeviceGetAttribute(int *to, CUdevice_attribute what, CUdevice device) {
  INITIALIZED;
  struct answer a = ASK("cuDeviceGetAttribute", W(device), W(what));
  *to = (int)a.value[0];
  return (CUresult)a.code;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  INITIALIZED;
  struct answer a = ASK("cuDeviceTotalMem", W(device));
  *bytes = (size_t)a.value[0];
  return (CUresult)a.code;
}

// --- contexts ---------------------------------------------------------------------------------------------------------

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  INITIALIZED;
  WANT(flags == CU_CTX_SCHED_BLOCKING_SYNC || flags == CU_CTX_SCHED_AUTO);
  return (CUresult)ASK("cuDevicePrimaryCtxSetFlags", W(device)).code;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  INITIALIZED;
  struct answer a = ASK("cuDevicePrimaryCtxRetain", W(device));
  *context = (CUcontext)a.value[0];
  return (CUresult)a.code;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  INITIALIZED;
  return (CUresult)ASK("cuDevicePrimaryCtxRelease", W(device)).code;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  INITIALIZED;
  struct answer a = {.code = CUDA_SUCCESS};
  if (context) a = ASK("cuCtxSetCurrent", W(context));
  if (a.code == CUDA_SUCCESS) current = W(context);
  return (CUresult)a.code;
}

// --- memory -----------------------------------------------------------------------------------------------------------

CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
  CONTEXT;
  struct answer a = ASK("cuMemGetInfo");
  *available = (size_t)a.value[0], *total = (size_t)a.value[1];
  return (CUresult)a.code;
}

CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t bytes) {
  CONTEXT;
  WANT(bytes > 0);
  struct answer a = ASK("cuMemAlloc", W(bytes));
  *to = (CUdeviceptr)a.value[0];
  return (CUresult)a.code;
}

CUresult cuMemFree_v2(CUdeviceptr p) {
  CONTEXT;
  return (CUresult)ASK("cuMemFree", W(p)).code;
}

// Page-locked host memory is shared with the simulation, which reads and writes it when a card would, not when the copy
// is queued.
struct locked {
  char *at;
  size_t bytes;
  uint64_t handle;
  struct locked *next;
};
static struct locked *hosts;
static pthread_mutex_t of_hosts = PTHREAD_MUTEX_INITIALIZER;

// host finds the page-locked memory that contains n bytes at p.
static struct locked host(const void *p, size_t n) {
  struct locked found = {0};
  pthread_mutex_lock(&of_hosts);
  for (struct locked *l = hosts; l && !found.at; l = l->next)
    if ((const char *)p >= l->at && (const char *)p + n <= l->at + l->bytes) found = *l;
  pthread_mutex_unlock(&of_hosts);
  return found;
}

CUresult cuMemHostAlloc(void **to, size_t bytes, unsigned int flags) {
  CONTEXT;
  WANT(bytes > 0);
  WANT(flags == CU_MEMHOSTALLOC_PORTABLE);
  int file = memfd_create("page-locked", MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  void *at = ftruncate(file, (off_t)bytes) ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  struct answer a = {.code = CUDA_ERROR_OUT_OF_MEMORY};
  if (at != MAP_FAILED) a = ask_with((struct text){.file = file}, "cuMemHostAlloc", 1, W(bytes));
  close(file);
  if (a.code != CUDA_SUCCESS) {
    if (at != MAP_FAILED) munmap(at, bytes);
    return (CUresult)a.code;
  }
  struct locked *l = malloc(sizeof *l);
  pthread_mutex_lock(&of_hosts);
  *l = (struct locked){at, bytes, a.value[0], hosts};
  hosts = l;
  pthread_mutex_unlock(&of_hosts);
  *to = at;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *p) {
  CONTEXT;
  struct locked *found = NULL;
  pthread_mutex_lock(&of_hosts);
  for (struct locked **l = &hosts; *l; l = &(*l)->next)
    if ((*l)->at == p) {
      found = *l;
      *l = found->next;
      break;
    }
  pthread_mutex_unlock(&of_hosts);
  if (!found) return wrong(__func__, "page-locked memory");
  struct answer a = ASK("cuMemFreeHost", W(found->handle));
  munmap(found->at, found->bytes);
  free(found);
  return (CUresult)a.code;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  CONTEXT;
  struct locked l = host(from, bytes);
  if (!l.at) return wrong(__func__, "page-locked memory");
  return (CUresult)ASK("cuMemcpyHtoDAsync", W(to), W(l.handle), W((const char *)from - l.at), W(bytes), W(stream)).code;
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  CONTEXT;
  struct locked l = host(to, bytes);
  if (!l.at) return wrong(__func__, "page-locked memory");
  return (CUresult)ASK("cuMemcpyDtoHAsync", W(from), W(l.handle), W((char *)to - l.at), W(bytes), W(stream)).code;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  CONTEXT;
  WANT(value == 0);
  return (CUresult)ASK("cuMemsetD8Async", W(to), W(bytes), W(stream)).code;
}

// --- kernels ----------------------------------------------------------------------------------------------------------

CUresult cuModuleLoadDataEx(CUmodule *to, const void *ptx, unsigned int n, CUjit_option *options, void **values) {
  CONTEXT;
  struct text text = {.out = ptx, .out_bytes = strlen(ptx), .file = -1};
  void **written = NULL;
  for (unsigned int i = 0; i < n; i++) switch ((int)options[i]) {
    case CU_JIT_ERROR_LOG_BUFFER: text.in = values[i]; break;
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: text.room = (unsigned int)(uintptr_t)values[i], written = &values[i]; break;
    default: return wrong(__func__, "options of the log of errors alone");
    }
  WANT(!text.room == !text.in);
  if (text.room) memset(text.in, 0, text.room--); // the last byte ends the text
  struct answer a = ask_with(text, "cuModuleLoadDataEx", 0);
  if (written) *written = (void *)(a.bytes < text.room ? a.bytes : text.room);
  *to = (CUmodule)a.value[0];
  return (CUresult)a.code;
}

CUresult cuModuleUnload(CUmodule module) {
  CONTEXT;
  return (CUresult)ASK("cuModuleUnload", W(module)).code;
}

CUresult cuModuleGetFunction(CUfunction *to, CUmodule module, const char *name) {
  CONTEXT;
  struct answer a = ask_with((struct text){.out = name, .out_bytes = strlen(name), .file = -1}, "cuModuleGetFunction", 1, W(module));
  *to = (CUfunction)a.value[0];
  return (CUresult)a.code;
}

CUresult cuFuncGetAttribute(int *to, CUfunction_attribute what, CUfunction f) {
  CONTEXT;
  struct answer a = ASK("cuFuncGetAttribute", W(what), W(f));
  *to = (int)a.value[0];
  return (CUresult)a.code;
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value) {
  CONTEXT;
  WANT((int)what == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
  WANT(value >= 0 && value <= 100);
  return (CUresult)ASK("cuFuncSetAttribute", W(f)).code;
}

#ifndef LEAST
CUresult cuFuncLoad(CUfunction f) {
  CONTEXT;
  return (CUresult)ASK("cuFuncLoad", W(f)).code;
}
#endif

CUresult cuLaunchKernel(CUfunction f, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared,
                        CUstream stream, void **params, void **extra) {
  CONTEXT;
  WANT(shared == 0);
  WANT(params == NULL);
  WANT(extra && extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER && extra[2] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[4] == CU_LAUNCH_PARAM_END);
  struct text text = {.out = extra[1], .out_bytes = *(size_t *)extra[3], .file = -1};
  return (CUresult)ask_with(text, "cuLaunchKernel", 8, W(f), W(grid_x), W(grid_y), W(grid_z), W(block_x), W(block_y), W(block_z), W(stream)).code;
}

// --- streams and events -----------------------------------------------------------------------------------------------

CUresult cuStreamCreate(CUstream *to, unsigned int flags) {
  CONTEXT;
  WANT(flags == CU_STREAM_NON_BLOCKING);
  struct answer a = ASK("cuStreamCreate");
  *to = (CUstream)a.value[0];
  return (CUresult)a.code;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  CONTEXT;
  return (CUresult)ASK("cuStreamDestroy", W(stream)).code;
}

CUresult cuStreamSynchronize(CUstream stream) {
  CONTEXT;
  return (CUresult)ASK("cuStreamSynchronize", W(stream)).code;
}

CUresult cuStreamQuery(CUstream stream) {
  CONTEXT;
  return (CUresult)ASK("cuStreamQuery", W(stream)).code;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  CONTEXT;
  WANT(flags == 0);
  return (CUresult)ASK("cuStreamWaitEvent", W(stream), W(event)).code;
}

CUresult cuEventCreate(CUevent *to, unsigned int flags) {
  CONTEXT;
  WANT((flags & ~CU_EVENT_DISABLE_TIMING) == CU_EVENT_BLOCKING_SYNC);
  struct answer a = ASK("cuEventCreate", W(!(flags & CU_EVENT_DISABLE_TIMING)));
  *to = (CUevent)a.value[0];
  return (CUresult)a.code;
}

CUresult cuEventDestroy_v2(CUevent event) {
  CONTEXT;
  return (CUresult)ASK("cuEventDestroy", W(event)).code;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  CONTEXT;
  return (CUresult)ASK("cuEventRecord", W(event), W(stream)).code;
}

CUresult cuEventSynchronize(CUevent event) {
  CONTEXT;
  return (CUresult)ASK("cuEventSynchronize", W(event)).code;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  CONTEXT;
  struct answer a = ASK("cuEventElapsedTime", W(from), W(to));
  *ms = (float)a.value[0] / 1e6f;
  return (CUresult)a.code;
}

// --- graphs -----------------------------------------------------------------------------------------------------------

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  CONTEXT;
  WANT(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
  return (CUresult)ASK("cuStreamBeginCapture", W(stream)).code;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *to) {
  CONTEXT;
  struct answer a = ASK("cuStreamEndCapture", W(stream));
  *to = (CUgraph)a.value[0];
  return (CUresult)a.code;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *to, CUgraph graph, unsigned long long flags) {
  CONTEXT;
  WANT(flags == 0);
  struct answer a = ASK("cuGraphInstantiate", W(graph));
  *to = (CUgraphExec)a.value[0];
  return (CUresult)a.code;
}

CUresult cuGraphDestroy(CUgraph graph) {
  CONTEXT;
  return (CUresult)ASK("cuGraphDestroy", W(graph)).code;
}

CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) {
  CONTEXT;
  return (CUresult)ASK("cuGraphUpload", W(graph), W(stream)).code;
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  CONTEXT;
  return (CUresult)ASK("cuGraphLaunch", W(graph), W(stream)).code;
}

CUresult cuGraphExecDestroy(CUgraphExec graph) {
  CONTEXT;
  return (CUresult)ASK("cuGraphExecDestroy", W(graph)).code;
}
