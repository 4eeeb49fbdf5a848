// A library with the functions of NCCL that snug calls, for ranks that are threads of one process. It
// moves bytes in main memory, answers that a call is in progress as communicators that do not
// block do, and ends the process where a call is wrong or out of order.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INTERNAL = 3, IN_PROGRESS = 7, MOST = 8, OPS = 64 };

typedef struct { char bytes[128]; } Id;
typedef struct { size_t size; unsigned magic, version; int blocking; } Config;
typedef struct { volatile long pending, reached; } Stream; // of the test, which says when what came before is done

static void refuse(const char *why) {
	fprintf(stderr, "stand-in: %s\n", why);
	fflush(stderr);
	_exit(99);
}
#define want(ok) do { if (!(ok)) refuse(#ok); } while (0)

typedef struct { const void *from; size_t size; int state; } Box; // 0 empty, 1 full

typedef struct {
	Id id;
	int world, joined, left;
	Box boxes[MOST][MOST]; // from, to
} World;

typedef struct {
	World *world;
	int rank, state, aborted, finalized, busy;
	pthread_t owner, worker;
	int started;
} Comm;

typedef struct { int send; void *memory; size_t size; int peer; Comm *comm; Stream *stream; } Op;
typedef struct { int n; Op ops[OPS]; Comm *comm; Stream *stream; } Job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static World worlds[4096];
static int made;
static __thread int depth;
static __thread Job *job;

// Counts that the test reads.
int standin_made, standin_aborted, standin_destroyed, standin_polled, standin_by_address;

int ncclGetVersion(int *v) { *v = VERSION; return SUCCESS; }
const char *ncclGetErrorString(int r) { return r == INTERNAL ? "internal error" : "an error"; }
const char *ncclGetLastError(void *c) { (void)c; return "the last one"; }

int ncclGetUniqueId(Id *id) {
	pthread_mutex_lock(&lock);
	for (int i = 0; i < 128; i++) id->bytes[i] = (char)(made * 7 + i + 1);
	made++;
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

static void *join(void *p) { // waits for the others, as a thread of the library does
	Comm *c = p;
	pthread_mutex_lock(&lock);
	while (c->world->joined < c->world->world && !c->aborted) pthread_cond_wait(&change, &lock);
	c->state = SUCCESS;
	pthread_mutex_unlock(&lock);
	return NULL;
}

static int init(Comm **out, int world, int rank, const Id *id, const Config *config) {
	want(config->size == 24 && sizeof(Config) == 24);
	want(config->magic == 0xcafebeef && config->version == 21400 && config->blocking == 0);
	want(world >= 1 && world <= MOST && rank >= 0 && rank < world);
	Comm *c = calloc(1, sizeof *c);
	pthread_mutex_lock(&lock);
	for (World *w = worlds; w < worlds + 4096 && !c->world; w++) {
		if (w->world == 0) { w->id = *id; w->world = world; }
		if (!memcmp(&w->id, id, sizeof *id)) c->world = w;
	}
	want(c->world && c->world->world == world);
	for (int i = 1; i < 128; i++) want((char)(id->bytes[i] - id->bytes[i - 1]) == 1);
	c->world->joined++;
	c->rank = rank; c->owner = pthread_self(); c->state = IN_PROGRESS; c->started = 1;
	*out = c;
	standin_made++;
	pthread_cond_broadcast(&change);
	pthread_mutex_unlock(&lock);
	want(pthread_create(&c->worker, NULL, join, c) == 0);
	return IN_PROGRESS;
}

int ncclCommInitRankConfig(Comm **out, int world, Id id, int rank, Config *config) { return init(out, world, rank, &id, config); }
#ifdef SCALABLE
int ncclCommInitRankScalable(Comm **out, int world, int rank, int ids, Id *id, Config *config) {
	want(ids == 1);
	standin_by_address++;
	return init(out, world, rank, id, config);
}
#endif

// mine checks who calls, and that nothing else is in progress.
static void mine(Comm *c) {
	want(pthread_equal(c->owner, pthread_self()));
	pthread_mutex_lock(&lock);
	want(c->state == SUCCESS && !c->finalized);
	pthread_mutex_unlock(&lock);
}

int ncclCommGetAsyncError(Comm *c, int *state) {
	want(pthread_equal(c->owner, pthread_self()));
	pthread_mutex_lock(&lock);
	*state = c->state;
	standin_polled++;
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

int ncclGroupStart(void) {
	want(depth == 0);
	depth++;
	job = calloc(1, sizeof *job);
	return SUCCESS;
}

static int add(Op op) {
	want(depth == 1 && job->n < OPS);
	mine(op.comm);
	want(op.stream && (!job->stream || job->stream == op.stream));
	job->comm = op.comm; job->stream = op.stream;
	job->ops[job->n++] = op;
	return SUCCESS;
}

int ncclSend(const void *b, size_t n, int type, int peer, Comm *c, Stream *s) {
	want(type == 1 && b && n && peer >= 0 && peer < c->world->world);
	return add((Op){1, (void *)b, n, peer, c, s});
}

int ncclRecv(void *b, size_t n, int type, int peer, Comm *c, Stream *s) {
	want(type == 1 && b && n && peer >= 0 && peer < c->world->world);
	return add((Op){0, b, n, peer, c, s});
}

int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, Comm *c, Stream *s) {
	want(type == 1 && from == to && n && root >= 0 && root < c->world->world);
	if (c->rank != root) return add((Op){0, to, n, root, c, s});
	for (int r = 0; r < c->world->world; r++)
		if (r != root) add((Op){1, to, n, r, c, s});
	return SUCCESS;
}

static void *run(void *p) {
	Job *j = p;
	Comm *c = j->comm;
	World *w = c->world;
	usleep(200); // until now nothing is on the stream
	pthread_mutex_lock(&lock);
	__sync_add_and_fetch(&j->stream->pending, 1);
	c->state = SUCCESS;
	pthread_mutex_unlock(&lock);
	while (!j->stream->reached && !c->aborted) usleep(20);
	usleep(50); // what is on the stream takes a while
	pthread_mutex_lock(&lock);
	for (int left = j->n; left > 0 && !c->aborted;) {
		int moved = 0;
		for (Op *o = j->ops; o < j->ops + j->n; o++) {
			if (!o->memory) continue;
			Box *b = o->send ? &w->boxes[c->rank][o->peer] : &w->boxes[o->peer][c->rank];
			if (o->send && o->send == 1 && b->state == 0) {
				*b = (Box){o->memory, o->size, 1};
				o->send = 2; moved = 1;
			} else if (o->send == 2 && b->state == 2) {
				b->state = 0;
				o->memory = NULL; left--; moved = 1;
			} else if (!o->send && b->state == 1) {
				if (b->size != o->size) { // the real one may hang
					c->state = INTERNAL;
					left = 0;
					break;
				}
				memcpy(o->memory, b->from, o->size);
				b->state = 2;
				o->memory = NULL; left--; moved = 1;
			}
		}
		if (moved) pthread_cond_broadcast(&change);
		else if (left) pthread_cond_wait(&change, &lock);
	}
	while (c->state != SUCCESS && !c->aborted) pthread_cond_wait(&change, &lock);
	__sync_sub_and_fetch(&j->stream->pending, 1);
	pthread_mutex_unlock(&lock);
	free(j);
	return NULL;
}

int ncclGroupEnd(void) {
	want(depth == 1);
	depth--;
	Comm *c = job->comm;
	if (!c) { free(job); return SUCCESS; }
	if (c->started) pthread_join(c->worker, NULL);
	pthread_mutex_lock(&lock);
	c->state = IN_PROGRESS; c->started = 1;
	pthread_mutex_unlock(&lock);
	want(pthread_create(&c->worker, NULL, run, job) == 0);
	return IN_PROGRESS;
}

int ncclCommFinalize(Comm *c) {
	mine(c);
	c->finalized = 1;
	return IN_PROGRESS;
}

static void end(Comm *c) {
	if (c->started) pthread_join(c->worker, NULL);
	free(c);
}

int ncclCommDestroy(Comm *c) {
	want(c->finalized && pthread_equal(c->owner, pthread_self()));
	__sync_add_and_fetch(&standin_destroyed, 1);
	end(c);
	return SUCCESS;
}

int ncclCommAbort(Comm *c) {
	want(pthread_equal(c->owner, pthread_self()));
	pthread_mutex_lock(&lock);
	c->aborted = 1;
	pthread_cond_broadcast(&change);
	pthread_mutex_unlock(&lock);
	__sync_add_and_fetch(&standin_aborted, 1);
	end(c);
	return SUCCESS;
}
