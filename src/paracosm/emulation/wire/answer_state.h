// What answer.c knows of connections, groups and operations.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { ALL_GATHER = 2, ALL_REDUCE = 4 };           // prefixes of slots (gloo/types.h)
enum { DATA = 1, SEND_READY = 2, RECV_READY = 3 };  // opcodes
enum { HEADER = 48, SCRATCH = 1 << 20, PATTERN = 1 << 18, PIECES = 8, PASSED = 64 };
// For Python
enum { FOREIGN, CLOSED, WRITABLE, BEGIN, HOPS, UNEXPECTED, WRONG_LENGTH, ENDED, PACE };
static const uint64_t LONGEST = 1ull << 40, SEGMENT = 1 << 20, SPARE = 64 << 20, LOW = 1 << 16;
// Seconds: woken late by that; what epoll can sleep; without sleep after something has come
static const double EARLY = 60e-6, COARSE = 2e-3, AWAKE = 300e-6;

typedef struct Op Op;
typedef void (*Callback)(int what, int number, int64_t value, uint64_t length, const void *data);

typedef struct Buffer {
    uint64_t length, got;  // room, and bytes that have come
    struct Buffer *next;   // of those that wait to be used again
    char data[];
} Buffer;

typedef struct Frame {
    struct Frame *next;
    Op *op;  // of data; NULL for a notice
    Buffer *source;  // of data; NULL for the op's pattern
    uint64_t length, moved, head_size;
    char head[2 * HEADER];
} Frame;

typedef struct {
    int fd, group;
    char head[HEADER];
    uint64_t headed, left, foreign;  // of a header, of a message's data, of what Python reads
    Op *op;  // whose data is coming
    Buffer *into;
    uint64_t length;
    int low, wants_room, python_writes, python_wants_room, next_changed;  // 0, or the next one's + 2
    Frame *first, *last;
    uint64_t sent, received, messages;
} Link;

typedef struct {  // as announcements.py writes it
    uint64_t key, size;
    uint32_t member, tag, element;
    uint16_t neutral_size, kind;
    unsigned char neutral[16];
} Vector;

typedef struct Hops {
    struct Hops *next;
    int kind;
    uint64_t size;
    double *latency, *busy;  // by hop, in the ring's direction
} Hops;

typedef struct Pace {  // what a message takes of the real member's links, in and out
    struct Pace *next;
    int kind;
    uint64_t size, pool[2];
    int port[2];
    double fixed[2], busy[2], after[2];
} Pace;

typedef struct {
    uint64_t key;  // of its name
    char *name;
    int rank, real, world, is_late;
    double added[2];  // seconds by which every all-gather and all-reduce is late
    int *links;       // by member
    int64_t number;   // collectives so far
    Hops *hops;
    int connected, vectors, announced_count, announced_room;  // file of what the real member reduces
    Vector *announced;
    Buffer *part;  // of an all-gather, while it begins
    int64_t at;  // bytes of `vectors` that have been read
    int is_paced;  // whether messages of the real member take what its modelled links do
    Pace *paces;
} Group;

struct Op {
    Op *next;
    int group, kind, in, out, inner, knows_lengths, is_met;  // inner: emulated members
    uint64_t slot, segment, halves[2], sent_bytes, received_bytes;
    int64_t number, lag, half, sends, receives, begun, added;
    int64_t announced, accepted, arrived, asked, sent, gone;
    int32_t *send_index, *receive_index;  // NULL where all messages are there
    uint64_t *send_length, *receive_length;
    double asked_at, entered, last, due, ready_at, in_due;
    int64_t ready_index;
    double *entry, *free_at, *arrived_at;  // by emulated member; by message
    Buffer **kept, *part;  // what was announced of an all-gather
    struct Flow *flows[2];  // the next message in and out, once it is decided when that is there
    Vector vector;
    char *pattern;
    uint64_t pattern_size;
};

// What Python sees of an operation; `answers.py` has the same fields
typedef struct {
    uint64_t slot, size, element, sent_bytes, received_bytes;
    int64_t number, announced, accepted, arrived, asked, sent, gone;
    double asked_at, last;
    int32_t is_due, group;
} Snapshot;

static struct {
    double awake;
    int epoll, running, called, changed;  // the first link with more to send, + 1
    Callback call;
    Link *links;
    int link_count;
    Group *groups;
    int group_count;
    Op *ops;
    Buffer *spare;
    uint64_t spared;
    char *text;
    size_t text_size, text_room;
} S;

static char scratch[SCRATCH], zeros[PATTERN];

static double now_(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void *fresh(size_t count, size_t size) {
    void *found = calloc(count ? count : 1, size);
    if (!found) abort();
    return found;
}

static void tell(int what, int number, int64_t value, uint64_t length, const void *data) {
    S.called |= what != BEGIN && what != HOPS && what != ENDED && what != PACE;
    S.call(what, number, value, length, data);
}

// --- buffers ---

static Buffer *take(uint64_t length) {
    for (Buffer **at = &S.spare; *at; at = &(*at)->next)
        if ((*at)->length == length) {
            Buffer *found = *at;
            *at = found->next;
            S.spared -= length;
            found->got = 0;
            return found;
        }
    Buffer *buffer = malloc(sizeof *buffer + length);
    if (!buffer) abort();
    buffer->length = length;
    buffer->got = 0;
    return buffer;
}

static void give(Buffer **place) {
    Buffer *buffer = *place;
    *place = NULL;
    if (!buffer) return;
    if (S.spared + buffer->length > SPARE) {
        free(buffer);
        return;
    }
    buffer->next = S.spare;
    S.spare = buffer;
    S.spared += buffer->length;
}
