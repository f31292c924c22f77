/* What the emulator is asked: who is in a group, and what a collective costs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "shim.h"

static const double PATIENCE = 10; /* seconds for an answer */

struct table *table;
char last_error[1024];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the table; one question at a time */
static int questions = -1, groups, entries;

int fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return code;
}

double monotonic(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int open_table(void)
{
    const char *path = getenv("PARACOSM_NCCL_TABLE");
    if (!path)
        return fail(SYSTEM_ERROR, "this libnccl.so.2 is for paracosm emulate --nccl");
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return fail(SYSTEM_ERROR, "%s: %s", path, strerror(errno));
    struct table *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (found == MAP_FAILED)
        return fail(SYSTEM_ERROR, "%s: %s", path, strerror(errno));
    if (found->magic != TABLE_MAGIC || found->bytes != sizeof *found)
        return fail(SYSTEM_ERROR, "%s: not the table of this version", path);
    questions = open(found->questions, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (questions < 0)
        return fail(SYSTEM_ERROR, "%s: %s", found->questions, strerror(errno));
    table = found;
    return SUCCESS;
}

static int ask(int32_t number, volatile uint32_t *state)
{
    __atomic_store_n(state, ASKED, __ATOMIC_RELEASE);
    if (write(questions, &number, sizeof number) != sizeof number)
        return fail(SYSTEM_ERROR, "the emulator has gone: %s", strerror(errno));
    double until = monotonic() + PATIENCE;
    while (__atomic_load_n(state, __ATOMIC_ACQUIRE) == ASKED) {
        if (monotonic() > until)
            return fail(SYSTEM_ERROR, "the emulator does not answer");
        sched_yield();
    }
    return *state == REFUSED ? fail(INVALID_USAGE, "%s", table->refusal) : SUCCESS;
}

/* Return the number of a group, which may be a new one that the emulator is asked about. */
int find_group(const char *name, int ranks, int *found)
{
    char clean[NAME] = {0};
    snprintf(clean, sizeof clean, "%s", name);
    for (char *at = clean; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
            *at = '_';
    pthread_mutex_lock(&lock);
    int number = 0, result = SUCCESS;
    while (number < groups && strcmp(table->groups[number].name, clean))
        number++;
    if (number == GROUPS) {
        result = fail(INVALID_USAGE, "more than %d process groups", GROUPS);
    } else if (number == groups) {
        struct group *group = &table->groups[number];
        memcpy(group->name, clean, NAME);
        group->ranks = ranks;
        result = ask(GROUP_QUESTION + number, &group->state);
        groups += result == SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    *found = number;
    return result;
}

static struct entry *place_of(int group, int kind, uint64_t size, int peer)
{
    uint64_t hash = (size ^ (uint64_t)group << 48 ^ (uint64_t)kind << 40 ^
                     (uint64_t)(uint32_t)peer << 20) * 0x9e3779b97f4a7c15u;
    for (uint64_t at = hash >> 32;; at++) {
        struct entry *each = &table->entries[at % ENTRIES];
        if (each->state == FREE || (each->group == group && each->kind == kind &&
                                    each->size == size && each->peer == peer))
            return each;
    }
}

int cost_of(int group, int kind, uint64_t size, int peer, struct entry *found)
{
    int result = SUCCESS;
    pthread_mutex_lock(&lock);
    if (entries > ENTRIES / 2) { /* some scripts have another size in every step */
        memset(table->entries, 0, sizeof table->entries);
        entries = 0;
    }
    struct entry *entry = place_of(group, kind, size, peer);
    bool is_new = entry->state == FREE;
    if (is_new) {
        entries++;
        *entry = (struct entry){.group = group, .kind = kind, .size = size, .peer = peer};
    }
    if (entry->state != ANSWERED || entry->again)
        result = ask((int32_t)(entry - table->entries), &entry->state);
    *found = *entry;
    pthread_mutex_unlock(&lock);
    return result;
}
