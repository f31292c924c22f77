/* The entry points of a libnccl.so.2 whose other ranks are not there.
 *
 * PyTorch's ProcessGroupNCCL calls it as it calls NCCL: declarations are those of nccl.h of NCCL
 * 2.29, entry points those that libtorch_cuda.so of PyTorch 2.13 asks for.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "multiply.c"
#include "shim.h"

enum { NCCL_VERSION = 22907, NO_COLOR = -1, MOST_OWN_OPS = 256 };

typedef struct { char internal[128]; } unique_id;

struct config { /* the beginning of ncclConfig_t, which grows at its end */
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, least_ctas, most_ctas;
    const char *net_name; /* PyTorch's process groups carry their names here */
};

static struct { bool used; double factor; const void *by; } own_ops[MOST_OWN_OPS];

static __thread struct call *pending;
static __thread int depth, asked, room;
static __thread int next_peer = -1;

/* Say to which rank of its group this thread sends next, or from which it receives. */
API void paracosm_next_peer(int rank) { next_peer = rank; }

/* Versions, errors, communicators. */

API int ncclGetVersion(int *version)
{
    *version = NCCL_VERSION;
    return SUCCESS;
}

API const char *ncclGetErrorString(int code)
{
    static const char *const TEXTS[] = {
        "no error", "unhandled cuda error", "unhandled system error", "internal error",
        "invalid argument", "invalid usage", "remote process exited or there was a network error",
        "operation in progress"};
    return code >= 0 && code < 8 ? TEXTS[code] : "unknown result code";
}

API const char *ncclGetLastError(const struct comm *comm)
{
    (void)comm;
    return last_error;
}

API int ncclGetUniqueId(unique_id *id)
{
    static int count;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "paracosm %d %d", (int)getpid(),
             __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED));
    return attach();
}

/* Make a communicator of so many ranks; of as many as its group has for 0. */
static int make(struct comm **made, int ranks, int rank, const struct config *config)
{
    struct comm comm = {.rank = rank, .pair = -1};
    const char *name = config && config->net_name ? config->net_name : "";
    TRY(attach());
    TRY(find_group(name, ranks, &comm.group));
    int all = table->groups[comm.group].ranks;
    comm.ranks = ranks ? ranks : all;
    if (rank < 0 || rank >= comm.ranks)
        return fail(INVALID_ARGUMENT, "rank %d: there are %d", rank, comm.ranks);
    if (comm.ranks == 2 && all > 2) /* PyTorch's for messages that are not batched */
        comm.pair = next_peer;
    else if (comm.ranks != all)
        return fail(INVALID_USAGE, "group %s has %d ranks, not %d", name, all, comm.ranks);
    TRY(device_number(&comm.device));
    *made = malloc(sizeof comm);
    if (!*made)
        return fail(SYSTEM_ERROR, "out of memory");
    **made = comm;
    return SUCCESS;
}

API int ncclCommInitRankConfig(struct comm **comm, int ranks, unique_id id, int rank,
                               const struct config *config)
{
    (void)id;
    return ranks < 1 ? fail(INVALID_ARGUMENT, "%d ranks", ranks) : make(comm, ranks, rank, config);
}

API int ncclCommInitRank(struct comm **comm, int ranks, unique_id id, int rank)
{
    return ncclCommInitRankConfig(comm, ranks, id, rank, NULL);
}

API int ncclCommInitRankScalable(struct comm **comm, int ranks, int rank, int ids,
                                 const unique_id *id, const struct config *config)
{
    return ids < 1 ? fail(INVALID_ARGUMENT, "%d ids", ids)
                   : ncclCommInitRankConfig(comm, ranks, *id, rank, config);
}

API int ncclCommSplit(struct comm *comm, int color, int key, struct comm **made,
                      const struct config *config)
{
    *made = NULL;
    if (!comm)
        return fail(INVALID_ARGUMENT, "no communicator");
    if (color == NO_COLOR)
        return SUCCESS;
    if (!config || !config->net_name)
        return fail(INVALID_USAGE, "who is in a split is known by its name alone");
    return make(made, 0, key, config);
}

static int end(struct comm *comm, bool abort)
{
    if (comm)
        forget(comm, abort);
    free(comm);
    return SUCCESS;
}

/* What is launched may still go on: streams have its words. */
API int ncclCommDestroy(struct comm *comm) { return end(comm, false); }

/* What is launched is over at once, and leaves no record. */
API int ncclCommAbort(struct comm *comm) { return end(comm, true); }

API int ncclCommFinalize(struct comm *comm) { return comm->async_error; }
API int ncclCommSuspend(struct comm *comm, int flags) { return (void)flags, comm->async_error; }
API int ncclCommResume(struct comm *comm) { return comm->async_error; }

#define GIVE(name, type, value)                             \
    API int name(const struct comm *comm, type *given)      \
    {                                                       \
        if (!comm)                                          \
            return fail(INVALID_ARGUMENT, "no communicator"); \
        *given = (value);                                   \
        return SUCCESS;                                     \
    }

GIVE(ncclCommGetAsyncError, int, comm->async_error)
GIVE(ncclCommCount, int, comm->ranks)
GIVE(ncclCommUserRank, int, comm->rank)
GIVE(ncclCommCuDevice, int, comm->device)

API int ncclCommMemStats(struct comm *comm, int which, uint64_t *value)
{
    (void)comm, (void)which;
    *value = 0; /* it has no memory of the device's */
    return SUCCESS;
}

/* Groups: what is asked for in one is launched when the outermost ends. */

static int launch_pending(void)
{
    int left = asked, result = SUCCESS;
    asked = 0;
    struct call *calls = pending, *others = malloc((size_t)left * sizeof *others + 1);
    if (!others)
        return fail(SYSTEM_ERROR, "out of memory");
    while (left && result == SUCCESS) { /* first those of the first one's stream, in their order */
        struct call first = calls[0];
        int same = 0, more = 0;
        for (int i = 0; i < left; i++)
            if (calls[i].comm == first.comm && calls[i].stream == first.stream)
                calls[same++] = calls[i];
            else
                others[more++] = calls[i];
        result = launch(calls, same);
        if (result == CUDA_ERROR || result == SYSTEM_ERROR)
            first.comm->async_error = result; /* its stream may wait for ever */
        memcpy(calls, others, (size_t)more * sizeof *others);
        left = more;
    }
    free(others);
    return result;
}

API int ncclGroupStart(void)
{
    depth++;
    return SUCCESS;
}

API int ncclGroupEnd(void)
{
    if (!depth)
        return fail(INVALID_USAGE, "a group ends that has not begun");
    return --depth ? SUCCESS : launch_pending();
}

struct simulation { size_t size; unsigned magic, version; float time; };

/* Say how many microseconds a group would take where nothing else is under way, and drop it. */
API int ncclGroupSimulateEnd(struct simulation *simulation)
{
    double longest = 0, busy = 0;
    int count = asked;
    if (depth != 1)
        return fail(INVALID_USAGE, "a group ends that has not begun, or within another");
    depth = asked = 0;
    for (int i = 0; i < count; i++) {
        struct entry cost;
        const struct call *call = &pending[i];
        TRY(cost_of(call->comm->group, call->kind, call->size, call->peer, &cost));
        longest = fmax(longest, cost.late + cost.fixed + cost.after);
        busy += cost.busy;
    }
    simulation->time = (float)(1e6 * (longest + busy));
    return SUCCESS;
}

/* Collectives and messages. */

static int post(struct call call)
{
    struct comm *comm = call.comm;
    if (!comm)
        return fail(INVALID_ARGUMENT, "no communicator");
    if (comm->async_error)
        return fail(comm->async_error, "the communicator has failed before");
    if (!bytes_of(call.type))
        return fail(INVALID_ARGUMENT, "no data type %d", call.type);
    if (call.peer < -1 || call.peer >= comm->ranks)
        return fail(INVALID_ARGUMENT, "rank %d: there are %d", call.peer, comm->ranks);
    int own = call.op - OWN_OPS;
    if (call.op < 0 || own >= MOST_OWN_OPS || (own >= 0 && !own_ops[own].used))
        return fail(INVALID_ARGUMENT, "no reduction %d", call.op);
    call.factor = own < 0 ? 1 : own_ops[own].factor;
    call.by = own < 0 ? NULL : own_ops[own].by;
    if (asked == room) {
        int more = room ? 2 * room : 16;
        struct call *grown = realloc(pending, (size_t)more * sizeof *grown);
        if (!grown)
            return fail(SYSTEM_ERROR, "out of memory");
        pending = grown;
        room = more;
    }
    pending[asked++] = call;
    return depth ? SUCCESS : launch_pending();
}

#define BYTES (count * bytes_of(type))
#define OF_ALL (comm ? BYTES * (uint64_t)comm->ranks : 0)
#define POST(...) return post((struct call){comm, stream, __VA_ARGS__, 1, NULL})

API int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, struct comm *comm,
                      stream_t stream)
{
    POST(ALL_REDUCE, -1, type, op, BYTES, count, in, out);
}

API int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root,
                   struct comm *comm, stream_t stream)
{
    POST(REDUCE, root, type, op, BYTES, count, in, out);
}

API int ncclBroadcast(const void *in, void *out, size_t count, int type, int root,
                      struct comm *comm, stream_t stream)
{
    POST(BROADCAST, root, type, SUM, BYTES, count, in, out);
}

API int ncclBcast(void *data, size_t count, int type, int root, struct comm *comm, stream_t stream)
{
    return ncclBroadcast(data, data, count, type, root, comm, stream);
}

API int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op,
                          struct comm *comm, stream_t stream)
{
    POST(REDUCE_SCATTER, -1, type, op, OF_ALL, count, in, out);
}

API int ncclAllGather(const void *in, void *out, size_t count, int type, struct comm *comm,
                      stream_t stream)
{
    POST(ALL_GATHER, -1, type, SUM, OF_ALL, count, in, out);
}

API int ncclAlltoAll(const void *in, void *out, size_t count, int type, struct comm *comm,
                     stream_t stream)
{
    POST(ALL_TO_ALL, -1, type, SUM, OF_ALL, count, in, out);
}

API int ncclSend(const void *in, size_t count, int type, int peer, struct comm *comm,
                 stream_t stream)
{
    POST(SEND, peer, type, SUM, BYTES, count, in, NULL);
}

API int ncclRecv(void *out, size_t count, int type, int peer, struct comm *comm, stream_t stream)
{
    POST(RECV, peer, type, SUM, BYTES, count, NULL, out);
}

API int ncclRedOpCreatePreMulSum(int *op, const void *value, int type, int is_on_host,
                                 struct comm *comm)
{
    (void)comm;
    if (type < FLOAT16 || type > BFLOAT16)
        return fail(INVALID_ARGUMENT, "no scalar of data type %d to multiply by", type);
    for (int i = 0; i < MOST_OWN_OPS; i++)
        if (!__atomic_test_and_set(&own_ops[i].used, __ATOMIC_ACQ_REL)) {
            own_ops[i].factor = is_on_host ? scalar(value, type) : 1;
            own_ops[i].by = is_on_host ? NULL : value;
            *op = OWN_OPS + i;
            return SUCCESS;
        }
    return fail(INVALID_USAGE, "more than %d reductions of one's own", MOST_OWN_OPS);
}

API int ncclRedOpDestroy(int op, struct comm *comm)
{
    (void)comm;
    if (op < OWN_OPS || op >= OWN_OPS + MOST_OWN_OPS)
        return fail(INVALID_ARGUMENT, "reduction %d is not one's own", op);
    __atomic_clear(&own_ops[op - OWN_OPS].used, __ATOMIC_RELEASE);
    return SUCCESS;
}

/* Memory: nobody reads it from outside, so that there is nothing to register. */

API int ncclMemAlloc(void **memory, size_t size)
{
    TRY(attach());
    return allocate(memory, size);
}

API int ncclMemFree(void *memory)
{
    TRY(attach());
    return release_memory(memory);
}

API int ncclCommRegister(struct comm *comm, void *memory, size_t size, void **handle)
{
    (void)size;
    *handle = memory;
    return comm ? SUCCESS : fail(INVALID_ARGUMENT, "no communicator");
}

API int ncclCommWindowRegister(struct comm *comm, void *memory, size_t size, void **window,
                               int flags)
{
    (void)flags;
    return ncclCommRegister(comm, memory, size, window);
}

API int ncclCommDeregister(struct comm *comm, void *handle)
{
    (void)handle;
    return comm ? SUCCESS : fail(INVALID_ARGUMENT, "no communicator");
}

API int ncclCommWindowDeregister(struct comm *comm, void *window)
{
    return ncclCommDeregister(comm, window);
}

/* What makes ranks of its own, or reads and writes the memory of others, which are not there. */

#define REFUSE(name)                                          \
    API int name(void)                                        \
    {                                                         \
        return fail(INVALID_USAGE, #name " is not emulated"); \
    }

REFUSE(ncclCommInitAll)
REFUSE(ncclCommShrink)
REFUSE(ncclDevCommCreate)
REFUSE(ncclDevCommDestroy)
REFUSE(ncclGetLsaMultimemDevicePointer)
REFUSE(ncclGetPeerDevicePointer)
REFUSE(ncclPutSignal)
REFUSE(ncclSignal)
REFUSE(ncclWaitSignal)
