/* What the files of the shim have in common. */
#ifndef PARACOSM_SHIM_H
#define PARACOSM_SHIM_H

#include <stdint.h>

#include "table.h"

#define API __attribute__((visibility("default")))

enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE };
enum { SUM, PROD, MAX, MIN, AVG, OWN_OPS };
enum { FLOAT16 = 6, FLOAT32, FLOAT64, BFLOAT16, FIRST_FLOAT8, TYPES = 12 };
enum { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, REDUCE, BROADCAST, GATHER, SCATTER, ALL_TO_ALL,
       BARRIER, SEND, RECV }; /* `records.COLLECTIVES` */

typedef void *stream_t;
typedef uintptr_t device_ptr;

struct comm {
    int group, rank, ranks, device;
    int pair; /* of two ranks within a larger group: the other one's rank there; else -1 */
    int async_error;
};

struct call { /* one collective or message, asked for and not launched yet */
    struct comm *comm;
    stream_t stream;
    int kind, peer, type, op;
    uint64_t size;  /* bytes, as `records.Collective.size` counts them */
    uint64_t count; /* elements of the output, or of the message */
    const void *in;
    void *out;
    double factor;  /* of a reduction of the caller's own */
    const void *by; /* and a factor in the device's memory, or NULL */
};

#define TRY(call)                  \
    do {                           \
        int result_ = (call);      \
        if (result_ != SUCCESS)    \
            return result_;        \
    } while (0)

/* emulator.c: functions return SUCCESS, or an error after `fail` has said why. */
extern struct table *table;
extern char last_error[1024];
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
double monotonic(void);
int open_table(void);
int find_group(const char *name, int ranks, int *found);
int cost_of(int group, int kind, uint64_t size, int peer, struct entry *found);

/* launches.c */
int attach(void); /* to emulator and device; does nothing where that is done */
uint64_t bytes_of(int type);
int device_number(int *device);
int allocate(void **memory, size_t size);
int release_memory(void *memory);
int launch(const struct call *calls, int count); /* as one; all of one communicator and stream */
void forget(struct comm *comm, int abort);

#endif
