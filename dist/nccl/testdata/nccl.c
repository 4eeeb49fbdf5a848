// A library with the functions of NCCL that snug calls, for ranks that are threads of one process or, where
// STANDIN_DIR names a folder that they share, processes. It moves bytes in main memory, answers
// that a call is in progress as communicators that do not block do, and ends the process where a
// call is wrong or out of order.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INTERNAL = 3, IN_PROGRESS = 7, MOST = 8, OPS = 64, WORLDS = 4096, CHUNK = 1 << 16, OWN = 16 };

typedef struct { char bytes[128]; } Id;
typedef struct { size_t size; unsigned magic, version; int blocking; } Config;
typedef struct { volatile long pending, reached; } Stream; // of the test, which says when what came before is done

static void refuse(const char *why) {
	fprintf(stderr, "stand-in: %s\n", why);
	fflush(stderr);
	_exit(99);
}
#define want(ok) do { if (!(ok)) refuse(#ok); } while (0)

// A box carries what one rank sends to another, a chunk at a time. One side fills it and the other empties
// it, so that nobody holds a lock who may be killed.
typedef struct { volatile int full; size_t total, size; char chunk[CHUNK]; } Box;

typedef struct {
	Id id;
	int world, joined, left; // changed by atomic operations
	Box boxes[MOST][MOST]; // from, to
} World;

typedef struct {
	World *world;
	int rank, finalized, mapped;
	volatile int state, aborted;
	pthread_t owner, worker;
	int started;
} Comm;

typedef struct { int send; char *memory; size_t size, done; int peer; Comm *comm; Stream *stream; } Op;
typedef struct { int n; Op ops[OPS]; Comm *comm; Stream *stream; } Job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static World *worlds[WORLDS]; // of threads
static int made;
static __thread int depth;
static __thread Job *job;

// Counts that the test reads.
int standin_made, standin_aborted, standin_destroyed, standin_polled, standin_by_address;

int ncclGetVersion(int *v) { *v = VERSION; return SUCCESS; }
const char *ncclGetErrorString(int r) { return r == INTERNAL ? "internal error" : "an error"; }
const char *ncclGetLastError(void *c) { (void)c; return "the last one"; }

int ncclGetUniqueId(Id *id) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	pthread_mutex_lock(&lock);
	int own[4] = {getpid(), made, (int)now.tv_sec, (int)now.tv_nsec};
	memcpy(id->bytes, own, OWN);
	for (int i = OWN; i < 128; i++) id->bytes[i] = (char)(made * 7 + i + 1);
	made++;
	pthread_mutex_unlock(&lock);
	return SUCCESS;
}

// meet is where the ranks of an id meet; the caller has the lock.
static World *meet(const Id *id, int *mapped) {
	const char *dir = getenv("STANDIN_DIR");
	*mapped = dir != NULL;
	if (dir) {
		char path[4096];
		int at = snprintf(path, sizeof path, "%s/", dir);
		for (int i = 0; i < OWN; i++) at += snprintf(path + at, sizeof path - at, "%02x", (unsigned char)id->bytes[i]);
		int file = open(path, O_RDWR | O_CREAT, 0600);
		want(file >= 0 && ftruncate(file, sizeof(World)) == 0);
		World *w = mmap(NULL, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
		want(w != MAP_FAILED);
		close(file);
		return w;
	}
	World **empty = NULL;
	for (World **w = worlds; w < worlds + WORLDS; w++) {
		if (!*w && !empty) empty = w;
		if (*w && !memcmp(&(*w)->id, id, sizeof *id)) return *w;
	}
	want(empty);
	*empty = calloc(1, sizeof(World));
	(*empty)->id = *id;
	return *empty;
}

static void *join(void *p) { // waits for the others, as a thread of the library does
	Comm *c = p;
	while (__sync_add_and_fetch(&c->world->joined, 0) < c->world->world && !c->aborted) usleep(50);
	pthread_mutex_lock(&lock);
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
	c->world = meet(id, &c->mapped);
	__sync_bool_compare_and_swap(&c->world->world, 0, world);
	want(c->world->world == world);
	for (int i = OWN + 1; i < 128; i++) want((char)(id->bytes[i] - id->bytes[i - 1]) == 1);
	want(__sync_add_and_fetch(&c->world->joined, 1) <= world);
	c->rank = rank; c->owner = pthread_self(); c->state = IN_PROGRESS; c->started = 1;
	*out = c;
	standin_made++;
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
	for (int i = 0; i < job->n; i++) want(job->ops[i].send != op.send || job->ops[i].peer != op.peer);
	job->comm = op.comm; job->stream = op.stream;
	job->ops[job->n++] = op;
	return SUCCESS;
}

int ncclSend(const void *b, size_t n, int type, int peer, Comm *c, Stream *s) {
	want(type == 1 && b && n && peer >= 0 && peer < c->world->world);
	return add((Op){1, (char *)b, n, 0, peer, c, s});
}

int ncclRecv(void *b, size_t n, int type, int peer, Comm *c, Stream *s) {
	want(type == 1 && b && n && peer >= 0 && peer < c->world->world);
	return add((Op){0, b, n, 0, peer, c, s});
}

int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, Comm *c, Stream *s) {
	want(type == 1 && from == to && n && root >= 0 && root < c->world->world);
	if (c->rank != root) return add((Op){0, to, n, 0, root, c, s});
	for (int r = 0; r < c->world->world; r++)
		if (r != root) add((Op){1, to, n, 0, r, c, s});
	return SUCCESS;
}

// step moves a chunk, if the other side is as far: 1. -1: it sends another size, at which the real one may
// hang.
static int step(World *w, int rank, Op *o) {
	Box *b = o->send ? &w->boxes[rank][o->peer] : &w->boxes[o->peer][rank];
	if (b->full == o->send) return 0;
	__sync_synchronize();
	if (o->send && o->done == o->size) { // everything was taken
		o->memory = NULL;
		return 1;
	}
	if (o->send) {
		b->total = o->size;
		b->size = o->size - o->done < CHUNK ? o->size - o->done : CHUNK;
		memcpy(b->chunk, o->memory + o->done, b->size);
	} else {
		if (b->total != o->size) return -1;
		memcpy(o->memory + o->done, b->chunk, b->size);
	}
	o->done += b->size;
	__sync_synchronize();
	b->full = o->send;
	if (!o->send && o->done == o->size) o->memory = NULL;
	return 1;
}

static void *run(void *p) {
	Job *j = p;
	Comm *c = j->comm;
	usleep(200); // until now nothing is on the stream
	pthread_mutex_lock(&lock);
	__sync_add_and_fetch(&j->stream->pending, 1);
	c->state = SUCCESS;
	pthread_mutex_unlock(&lock);
	while (!j->stream->reached && !c->aborted) usleep(20);
	usleep(50); // what is on the stream takes a while
	for (int left = 1; left && !c->aborted && c->state == SUCCESS;) {
		int moved = left = 0;
		for (Op *o = j->ops; o < j->ops + j->n; o++) {
			if (!o->memory) continue;
			left++;
			int ok = step(c->world, c->rank, o);
			moved |= ok;
			if (ok < 0) {
				pthread_mutex_lock(&lock);
				c->state = INTERNAL;
				pthread_mutex_unlock(&lock);
				break;
			}
		}
		if (!moved) usleep(20);
	}
	while (c->state != SUCCESS && !c->aborted) usleep(50);
	__sync_sub_and_fetch(&j->stream->pending, 1);
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
	pthread_mutex_lock(&lock);
	World *w = c->world;
	if (c->mapped) {
		munmap(w, sizeof *w);
	} else if (++w->left == w->world) {
		for (int i = 0; i < WORLDS; i++) if (worlds[i] == w) worlds[i] = NULL;
		free(w);
	}
	pthread_mutex_unlock(&lock);
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
	c->aborted = 1;
	__sync_add_and_fetch(&standin_aborted, 1);
	end(c);
	return SUCCESS;
}
