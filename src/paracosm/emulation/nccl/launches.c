/* What is on streams and links: launched, seen, passed over links, released, recorded.
 *
 * A launch is, on its stream,
 *
 *     write `begun`; copies and products that fill the outputs; wait for `done`; write `ended`
 *
 * where the three are words of page-locked memory. A thread of the host sees `begun`, passes what
 * the cost model says over the links of this rank, writes `done`, and records what it was when it
 * sees `ended`. Memory operations of streams hold no multiprocessor and run no function of the
 * host, so that launches on several streams hold each other up over links alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "links.h"
#include "shim.h"

enum { SLOTS = 4096, DEVICES = 64 };

static const double FLUSH = 0.5; /* seconds between two writes of records to disk */
static const char *const KINDS[] = {"all_reduce", "all_gather", "reduce_scatter", "reduce",
                                    "broadcast", "gather", "scatter", "all_to_all", "barrier",
                                    "send", "recv"};
static const uint64_t SIZES[TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

struct words { volatile uint32_t begun, done, ended, unused; };

struct passage { /* one collective or message under way */
    struct transfer transfer;
    int kind, number, peer;
    uint64_t size;
    double late, fixed;
};

struct launch {
    struct launch *next;
    const struct comm *comm; /* NULL once that is destroyed */
    int group, slot, count;  /* without passages it is a wait of the script's */
    uint32_t turn;           /* which use of its slot */
    bool begun, released, aborted;
    double begun_at;
    struct passage passages[];
};

/* CUDA's driver: of functions that have several versions, those of CUDA 12 and later. */
static struct {
    int (*cuCtxGetDevice)(int *);
    int (*cuMemHostAlloc)(void **, size_t, unsigned);
    int (*cuMemHostGetDevicePointer_v2)(device_ptr *, void *, unsigned);
    int (*cuMemAlloc_v2)(device_ptr *, size_t);
    int (*cuMemFree_v2)(device_ptr);
    int (*cuMemcpyDtoDAsync_v2)(device_ptr, device_ptr, size_t, stream_t);
    int (*cuMemsetD8Async)(device_ptr, unsigned char, size_t, stream_t);
    int (*cuStreamIsCapturing)(stream_t, int *);
    int (*cuStreamWriteValue32_v2)(stream_t, device_ptr, uint32_t, unsigned);
    int (*cuStreamWaitValue32_v2)(stream_t, device_ptr, uint32_t, unsigned);
    int (*cuModuleLoad)(void **, const char *);
    int (*cuModuleGetFunction)(void **, void *, const char *);
    int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, stream_t, void **, void **);
} cuda;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t launched = PTHREAD_COND_INITIALIZER;
static FILE *records;
static double flushed;
static struct words *words;
static device_ptr words_on_device;
static struct { uint32_t turn; bool taken; } slots[SLOTS];
static struct launch *in_flight;
static int numbers[GROUPS]; /* of the next collective of each group */

#define CUDA(name, ...)                                                           \
    do {                                                                          \
        int result_ = cuda.name(__VA_ARGS__);                                     \
        if (result_)                                                              \
            return fail(CUDA_ERROR, #name " failed with CUDA error %d", result_); \
    } while (0)

static void record(const struct launch *launch, double now)
{
    double at = launch->begun_at;
    if (!launch->count)
        fprintf(records, "[\"w\", %d, %.9f, %.9f]\n", table->rank, at, now);
    for (int i = 0; i < launch->count; i++) {
        const struct passage *each = &launch->passages[i];
        fprintf(records, "[\"c\", %d, \"%s\", %d, \"%s\", %llu, %d, ", table->rank,
                table->groups[launch->group].name, each->number, KINDS[each->kind],
                (unsigned long long)each->size, each->peer);
        fprintf(records, "%.9f, %.9f, %.9f, %.9f, 0, \"\"]\n", at, at + each->late, at, now);
    }
    if (now - flushed > FLUSH) {
        fflush(records);
        flushed = now;
    }
}

static void begin(struct launch *launch, double now)
{
    launch->begun = true;
    launch->begun_at = now;
    for (int i = 0; i < launch->count; i++) {
        struct passage *each = &launch->passages[i];
        each->transfer.ready = now + each->late + each->fixed;
        links_begin(&each->transfer);
    }
}

static bool is_over(const struct launch *launch, double now)
{
    for (int i = 0; i < launch->count; i++) {
        const struct transfer *each = &launch->passages[i].transfer;
        if (each->progress != LEFT || each->over > now)
            return false;
    }
    return true;
}

static void release(struct launch *launch)
{
    for (int i = 0; launch->begun && i < launch->count; i++)
        links_forget(&launch->passages[i].transfer);
    launch->released = true;
    __atomic_store_n(&words[launch->slot].done, launch->turn, __ATOMIC_RELEASE);
}

/* Look at what streams have done by an instant, and return when links want the next look. */
static double step(double now)
{
    pthread_mutex_lock(&lock);
    double next = INFINITY;
    for (bool changed = true; changed;) {
        changed = false;
        next = links_run(now, table->serial);
        for (struct launch **at = &in_flight; *at;) {
            struct launch *each = *at;
            const struct words *word = &words[each->slot];
            if (!each->begun && !each->released && word->begun == each->turn) {
                begin(each, now);
                changed = true;
            } else if (each->begun && !each->released && is_over(each, now)) {
                release(each);
                changed = true;
            }
            if (each->released && word->ended == each->turn) {
                if (!each->aborted)
                    record(each, now);
                *at = each->next;
                slots[each->slot].taken = false;
                free(each);
            } else {
                at = &each->next;
            }
        }
    }
    pthread_mutex_unlock(&lock);
    return next;
}

static void *watch(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        while (!in_flight)
            pthread_cond_wait(&launched, &lock);
        pthread_mutex_unlock(&lock);
        step(monotonic());
        sched_yield();
    }
    return unused;
}

static int open_device(void)
{
    const char *name = getenv("PARACOSM_CUDA_DRIVER");
    void *library = dlopen(name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return fail(SYSTEM_ERROR, "no CUDA driver: %s", dlerror());
#define LOAD(function)                                    \
    *(void **)&cuda.function = dlsym(library, #function); \
    if (!cuda.function)                                   \
        return fail(SYSTEM_ERROR, "the CUDA driver has no %s: 12 or later is needed", #function)
    LOAD(cuCtxGetDevice);
    LOAD(cuMemHostAlloc);
    LOAD(cuMemHostGetDevicePointer_v2);
    LOAD(cuMemAlloc_v2);
    LOAD(cuMemFree_v2);
    LOAD(cuMemcpyDtoDAsync_v2);
    LOAD(cuMemsetD8Async);
    LOAD(cuStreamIsCapturing);
    LOAD(cuStreamWriteValue32_v2);
    LOAD(cuStreamWaitValue32_v2);
    LOAD(cuModuleLoad);
    LOAD(cuModuleGetFunction);
    LOAD(cuLaunchKernel);
    enum { PORTABLE = 1, MAPPED = 2 };
    void *memory;
    CUDA(cuMemHostAlloc, &memory, SLOTS * sizeof *words, PORTABLE | MAPPED);
    memset(memory, 0, SLOTS * sizeof *words);
    CUDA(cuMemHostGetDevicePointer_v2, &words_on_device, memory, 0);
    words = memory;
    void (*drive)(double (*)(double)); /* of a device whose time is not that of the host */
    *(void **)&drive = dlsym(library, "paracosm_drive");
    if (drive) {
        drive(step);
        return SUCCESS;
    }
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch, NULL))
        return fail(SYSTEM_ERROR, "cannot start a thread: %s", strerror(errno));
    pthread_detach(thread);
    return SUCCESS;
}

int attach(void)
{
    static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;
    static int result = -1;
    pthread_mutex_lock(&attaching);
    if (result < 0) {
        result = open_table();
        if (result == SUCCESS && !(records = fopen(table->records, "we")))
            result = fail(SYSTEM_ERROR, "%s: %s", table->records, strerror(errno));
        if (result == SUCCESS)
            result = open_device();
    }
    pthread_mutex_unlock(&attaching);
    return result;
}

uint64_t bytes_of(int type) { return type >= 0 && type < TYPES ? SIZES[type] : 0; }

int device_number(int *device)
{
    CUDA(cuCtxGetDevice, device);
    return *device < DEVICES ? SUCCESS : fail(INVALID_USAGE, "device %d: too many", *device);
}

int allocate(void **memory, size_t size)
{
    device_ptr allocated;
    CUDA(cuMemAlloc_v2, &allocated, size);
    *memory = (void *)allocated;
    return SUCCESS;
}

int release_memory(void *memory)
{
    CUDA(cuMemFree_v2, (device_ptr)memory);
    return SUCCESS;
}

/* Outputs: as if every rank held what this rank holds. */

static int copy(void *to, const void *from, uint64_t bytes, stream_t stream)
{
    if (bytes && to != from)
        CUDA(cuMemcpyDtoDAsync_v2, (device_ptr)to, (device_ptr)from, bytes, stream);
    return SUCCESS;
}

static int reduce(const struct call *call, const void *from)
{
    static void *kernels[DEVICES];
    int ranks = call->comm->ranks, power = call->op == PROD ? ranks : 0, type = call->type;
    double factor = call->op == SUM || call->op >= OWN_OPS ? ranks * call->factor : 1;
    if (!call->count || (factor == 1 && !call->by && power < 2))
        return copy(call->out, from, call->count * SIZES[type], call->stream);
    if (type >= FIRST_FLOAT8)
        return fail(INVALID_USAGE, "sums of 8-bit floating point are not emulated");
    void **kernel = &kernels[call->comm->device];
    if (!*kernel) {
        const char *path = getenv("PARACOSM_NCCL_KERNELS");
        void *module;
        if (!path)
            return fail(INVALID_USAGE, "sums need NVRTC, which was not found");
        CUDA(cuModuleLoad, &module, path);
        CUDA(cuModuleGetFunction, kernel, module, "multiply");
    }
    enum { THREADS = 256, MOST_BLOCKS = 256 };
    uint64_t count = call->count, blocks = (count + THREADS - 1) / THREADS;
    device_ptr out = (device_ptr)call->out, in = (device_ptr)from, by = (device_ptr)call->by;
    void *arguments[] = {&out, &in, &count, &type, &factor, &by, &power};
    CUDA(cuLaunchKernel, *kernel, blocks < MOST_BLOCKS ? (unsigned)blocks : MOST_BLOCKS, 1, 1,
         THREADS, 1, 1, 0, call->stream, arguments, NULL);
    return SUCCESS;
}

/* Copy a part to all places of the whole, twice as much each time. */
static int repeat(char *to, const void *from, uint64_t bytes, uint64_t ranks, stream_t stream)
{
    TRY(copy(to, from, bytes, stream));
    for (uint64_t done = 1; done < ranks; done *= 2) {
        uint64_t more = done < ranks - done ? done : ranks - done;
        TRY(copy(to + done * bytes, to, more * bytes, stream));
    }
    return SUCCESS;
}

static int fill(const struct call *call)
{
    uint64_t bytes = call->count * SIZES[call->type], ranks = (uint64_t)call->comm->ranks;
    uint64_t rank = (uint64_t)call->comm->rank;
    bool is_root = call->peer == call->comm->rank;
    switch (call->kind) {
    case ALL_REDUCE: return reduce(call, call->in);
    case REDUCE: return is_root ? reduce(call, call->in) : SUCCESS;
    case REDUCE_SCATTER: return reduce(call, (const char *)call->in + rank * bytes);
    case ALL_GATHER: return repeat(call->out, call->in, bytes, ranks, call->stream);
    case ALL_TO_ALL: return copy(call->out, call->in, bytes * ranks, call->stream);
    case BROADCAST: return is_root ? copy(call->out, call->in, bytes, call->stream) : SUCCESS;
    case RECV:
        if (bytes)
            CUDA(cuMemsetD8Async, (device_ptr)call->out, 0, bytes, call->stream);
    }
    return SUCCESS;
}

/* A rank that sends to itself, too, exchanges parts with all: from each comes what goes to it. */
static int fill_exchange(const struct call *calls, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; calls[i].kind == RECV && j < count; j++)
            if (calls[j].kind == SEND && calls[j].peer == calls[i].peer) {
                uint64_t sent = calls[j].size, got = calls[i].size;
                TRY(copy(calls[i].out, calls[j].in, sent < got ? sent : got, calls[i].stream));
            }
    return SUCCESS;
}

/* Launching. */

static int take_slot(void)
{
    static int last;
    while (slots[last = (last + 1) % SLOTS].taken) {
        pthread_mutex_unlock(&lock);
        sched_yield(); /* as a launch waits where a stream has more than it can hold */
        pthread_mutex_lock(&lock);
    }
    slots[last].taken = true;
    return last;
}

/* Note what begins on a stream now. */
static int put_in_flight(struct launch *launch, stream_t stream)
{
    pthread_mutex_lock(&lock);
    launch->slot = take_slot();
    launch->turn = ++slots[launch->slot].turn;
    for (int i = 0; i < launch->count; i++)
        launch->passages[i].number = numbers[launch->group]++;
    struct launch **end = &in_flight;
    while (*end)
        end = &(*end)->next;
    *end = launch;
    int slot = launch->slot;
    uint32_t turn = launch->turn;
    pthread_cond_signal(&launched);
    pthread_mutex_unlock(&lock);
    CUDA(cuStreamWriteValue32_v2, stream, words_on_device + (size_t)slot * sizeof *words, turn, 0);
    return SUCCESS;
}

static int add(struct launch *launch, const struct comm *comm, int kind, uint64_t size, int peer)
{
    struct entry cost;
    if (kind >= SEND && comm->ranks != table->groups[comm->group].ranks)
        peer = comm->pair;
    TRY(cost_of(comm->group, kind, size, peer, &cost));
    struct transfer transfer = {.left = cost.busy * cost.share, .after = cost.after,
                                .share = cost.share, .stations = cost.stations, .own = cost.own};
    launch->passages[launch->count++] = (struct passage){
        transfer, .kind = kind, .peer = cost.peer_global, .size = size, .late = cost.late,
        .fixed = cost.fixed};
    return SUCCESS;
}

static int add_all(struct launch *launch, const struct call *calls, int count, bool is_exchange)
{
    uint64_t sent = 0;
    for (int i = 0; i < count; i++) {
        const struct call *each = &calls[i];
        if (!is_exchange || each->kind < SEND)
            TRY(add(launch, each->comm, each->kind, each->size, each->peer));
        else if (each->kind == SEND)
            sent += each->size;
    }
    return is_exchange ? add(launch, calls->comm, ALL_TO_ALL, sent, -1) : SUCCESS;
}

int launch(const struct call *calls, int count)
{
    stream_t stream = calls->stream;
    bool is_exchange = false;
    int capturing = 0;
    CUDA(cuStreamIsCapturing, stream, &capturing);
    if (capturing)
        return fail(INVALID_USAGE, "collectives within a CUDA graph are not emulated");
    for (int i = 0; i < count; i++)
        is_exchange |= calls[i].kind >= SEND && calls[i].peer == calls->comm->rank;
    struct launch *made = calloc(1, sizeof *made + (size_t)(count + 1) * sizeof *made->passages);
    if (!made)
        return fail(SYSTEM_ERROR, "out of memory");
    made->comm = calls->comm;
    made->group = calls->comm->group;
    int result = add_all(made, calls, count, is_exchange);
    if (result != SUCCESS) {
        free(made);
        return result;
    }
    TRY(put_in_flight(made, stream));
    uint32_t turn = made->turn; /* it is in flight until `ended` */
    device_ptr word = words_on_device + (size_t)made->slot * sizeof *words;
    for (int i = 0; i < count; i++)
        if (!is_exchange || calls[i].kind < SEND)
            TRY(fill(&calls[i]));
    if (is_exchange)
        TRY(fill_exchange(calls, count));
    CUDA(cuStreamWaitValue32_v2, stream, word + offsetof(struct words, done), turn, 0);
    CUDA(cuStreamWriteValue32_v2, stream, word + offsetof(struct words, ended), turn, 0);
    return SUCCESS;
}

void forget(struct comm *comm, int abort)
{
    pthread_mutex_lock(&lock);
    for (struct launch *each = in_flight; each; each = each->next)
        if (each->comm == comm) {
            each->comm = NULL;
            if (abort && !each->released) {
                each->aborted = true;
                release(each);
            }
        }
    pthread_mutex_unlock(&lock);
}

/* What Python tells. */

/* Note that a stream waits from now on, and return what ends it; NULL where that cannot be. */
API void *paracosm_wait_begins(stream_t stream)
{
    int capturing = 0;
    if (attach() != SUCCESS || cuda.cuStreamIsCapturing(stream, &capturing) || capturing)
        return NULL;
    struct launch *wait = calloc(1, sizeof *wait);
    return wait && put_in_flight(wait, stream) == SUCCESS ? wait : NULL;
}

API void paracosm_wait_ends(struct launch *wait, stream_t stream)
{
    if (wait)
        cuda.cuStreamWriteValue32_v2(stream, words_on_device + (size_t)wait->slot * sizeof *words +
                                                 offsetof(struct words, ended), wait->turn, 0);
}

/* Bring all records to the file, also those of what the device has done in the last instants. */
API void paracosm_flush(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; in_flight && i < 100; i++)
        nanosleep(&moment, NULL);
    pthread_mutex_lock(&lock);
    if (records)
        fflush(records);
    pthread_mutex_unlock(&lock);
}
