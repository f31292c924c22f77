/* A CUDA driver without a device: streams are queues, memory is the host's, time is virtual.
 *
 * Work costs the host nothing and begins when somebody synchronizes. Time then goes from one event
 * to the next: kernels end, and whoever asked to be driven says when it wants to be called again.
 * With REAL_TIME it is the host's time, and nobody is driven.
 */
#include <dlfcn.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK, INVALID = 1, NOT_FOUND = 500, NEVER_ENDS = 719 };
enum { KERNEL, WRITE, WAIT, COPY, SET, MULTIPLY, MARK, WAIT_MARK };
enum { STREAMS = 256 };

typedef void multiply_t(void *, const void *, uint64_t, int, double, const void *, int);

struct event { bool passed; double at; };

struct work {
    struct work *next;
    int kind;
    void *to;
    const void *from;
    uint64_t count;
    uint32_t value;
    double seconds;
    struct event *event;
    multiply_t *function;
    int type, power;
    double factor;
    const void *by;
};

struct stream {
    struct work *first, **end;
    double until; /* when the kernel that runs here ends; NaN while none does */
    bool capturing;
};

static struct stream *streams[STREAMS];
static int stream_count, copies;
static double now = 1000;
static double (*step)(double);

static void pass_time(double next)
{
#ifdef REAL_TIME
    struct timespec time;
    (void)next;
    sched_yield();
    clock_gettime(CLOCK_MONOTONIC, &time);
    now = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
#else
    now = fmax(now, next);
#endif
}

static int put(struct stream *stream, struct work work)
{
    struct work *queued = malloc(sizeof work);
    *queued = work;
    *stream->end = queued;
    stream->end = &queued->next;
    return OK;
}

/* Do the first of a stream, and return whether it is done with it. */
static bool did(struct stream *stream)
{
    const struct work *work = stream->first;
    switch (work->kind) {
    case KERNEL:
        if (isnan(stream->until))
            stream->until = now + work->seconds;
        if (stream->until > now)
            return false;
        stream->until = NAN;
        break;
    case WRITE: *(volatile uint32_t *)work->to = work->value; break;
    case WAIT:
        if ((int32_t)(*(volatile uint32_t *)work->to - work->value) < 0)
            return false;
        break;
    case COPY: memmove(work->to, work->from, work->count); break;
    case SET: memset(work->to, (int)work->value, work->count); break;
    case MULTIPLY:
        work->function(work->to, work->from, work->count, work->type, work->factor, work->by,
                       work->power);
        break;
    case MARK: *work->event = (struct event){true, now}; break;
    case WAIT_MARK: return work->event->passed;
    }
    return true;
}

static void pop(struct stream *stream)
{
    struct work *done = stream->first;
    stream->first = done->next;
    if (!stream->first)
        stream->end = &stream->first;
    free(done);
}

int cuCtxSynchronize(void)
{
    for (;;) {
        bool waiting = false;
        double next = INFINITY;
        for (bool changed = true; changed;) {
            changed = false;
            for (int i = 0; i < stream_count; i++)
                while (streams[i]->first && did(streams[i])) {
                    pop(streams[i]);
                    changed = true;
                }
            if (step)
                next = step(now);
            for (int i = 0; i < stream_count; i++) /* what it has written may let some go on */
                if (streams[i]->first && streams[i]->first->kind == WAIT && did(streams[i]))
                    changed = true;
        }
        for (int i = 0; i < stream_count; i++) {
            waiting |= streams[i]->first != NULL;
            if (streams[i]->first && streams[i]->first->kind == KERNEL)
                next = fmin(next, streams[i]->until);
        }
        if (!waiting)
            return OK;
        if (step && next == INFINITY)
            return NEVER_ENDS;
        pass_time(next);
    }
}

#ifndef REAL_TIME
void paracosm_drive(double (*asked)(double)) { step = asked; }
#endif

/* What tests do with it. */

void *fake_stream(void)
{
    struct stream *stream = calloc(1, sizeof *stream);
    stream->end = &stream->first;
    stream->until = NAN;
    return streams[stream_count++] = stream;
}

double fake_now(void) { return now; }
int fake_copies(void) { return copies; } /* so far */
void fake_kernel(struct stream *stream, double seconds)
{
    put(stream, (struct work){.kind = KERNEL, .seconds = seconds});
}
void *fake_mark(struct stream *stream)
{
    struct event *event = calloc(1, sizeof *event);
    put(stream, (struct work){.kind = MARK, .event = event});
    return event;
}
void fake_wait(struct stream *stream, struct event *event)
{
    put(stream, (struct work){.kind = WAIT_MARK, .event = event});
}
double fake_when(const struct event *event) { return event->passed ? event->at : NAN; }
void fake_capture(struct stream *stream, int capturing) { stream->capturing = capturing; }

/* The driver. */

int cuInit(unsigned flags) { return flags ? INVALID : OK; }
int cuDeviceGetCount(int *count) { return *count = 1, OK; }
int cuCtxGetDevice(int *device) { return *device = 0, OK; }
int cuMemHostAlloc(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    return (*memory = malloc(size)) ? OK : INVALID;
}
int cuMemHostGetDevicePointer_v2(uintptr_t *device, void *memory, unsigned flags)
{
    (void)flags;
    return *device = (uintptr_t)memory, OK;
}
int cuMemAlloc_v2(uintptr_t *device, size_t size)
{
    return (*device = (uintptr_t)malloc(size)) ? OK : INVALID;
}
int cuMemFree_v2(uintptr_t device) { return free((void *)device), OK; }
int cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, struct stream *stream)
{
    copies++;
    return put(stream, (struct work){.kind = COPY, .to = (void *)to, .from = (void *)from,
                                     .count = bytes});
}
int cuMemsetD8Async(uintptr_t to, unsigned char value, size_t bytes, struct stream *stream)
{
    return put(stream, (struct work){.kind = SET, .to = (void *)to, .value = value, .count = bytes});
}
int cuStreamIsCapturing(const struct stream *stream, int *capturing)
{
    return *capturing = stream->capturing, OK;
}
int cuStreamWriteValue32_v2(struct stream *stream, uintptr_t to, uint32_t value, unsigned flags)
{
    return flags ? INVALID
                 : put(stream, (struct work){.kind = WRITE, .to = (void *)to, .value = value});
}
int cuStreamWaitValue32_v2(struct stream *stream, uintptr_t to, uint32_t value, unsigned flags)
{
    return flags ? INVALID
                 : put(stream, (struct work){.kind = WAIT, .to = (void *)to, .value = value});
}
int cuModuleLoad(void **module, const char *path)
{
    return (*module = dlopen(path, RTLD_NOW)) ? OK : NOT_FOUND;
}
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    return (*function = dlsym(module, name)) ? OK : NOT_FOUND;
}
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads_x,
                   unsigned threads_y, unsigned threads_z, unsigned shared, struct stream *stream,
                   void **arguments, void **extra)
{
    if (!x || y != 1 || z != 1 || !threads_x || threads_y != 1 || threads_z != 1 || shared || extra)
        return INVALID;
    struct work work = {.kind = MULTIPLY,
                        .to = *(void **)arguments[0],
                        .from = *(void **)arguments[1],
                        .count = *(uint64_t *)arguments[2],
                        .type = *(int *)arguments[3],
                        .factor = *(double *)arguments[4],
                        .by = *(void **)arguments[5],
                        .power = *(int *)arguments[6]};
    *(void **)&work.function = function;
    return put(stream, work);
}
