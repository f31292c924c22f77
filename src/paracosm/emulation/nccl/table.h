/* What the shim and the emulator share: a file in memory that both map, and a FIFO of questions.
 *
 * The shim looks up the cost of a collective here. What it does not find it asks for: it fills in
 * an entry, writes the entry's number to the FIFO, and waits until the emulator has answered.
 * `table.py` describes the same bytes to Python; instants and durations are seconds.
 */
#ifndef PARACOSM_TABLE_H
#define PARACOSM_TABLE_H

#include <stdint.h>

enum { GROUPS = 1024, ENTRIES = 8192, NAME = 128, PATH = 512 };
enum { FREE, ASKED, ANSWERED, REFUSED }; /* states of an entry and of a group */
enum { TABLE_MAGIC = 0x50435431 };
enum { GROUP_QUESTION = 1 << 20 }; /* added to the number of a group that is asked about */

/* A process group by the name that PyTorch gives it. */
struct group {
    uint32_t state;
    int32_t ranks; /* asked with the ranks of the communicator, answered with those of the group */
    char name[NAME];
};

/* Collectives of one kind, size and peer in one group, and what each of them costs. */
struct entry {
    uint32_t state;
    int32_t group;
    int32_t kind;
    int32_t peer; /* its rank in the group; -1 for none */
    uint64_t size;
    double late;  /* by how much the last of the others comes later than the real rank */
    double fixed; /* seconds before any link is needed */
    double busy;  /* seconds of `stations`, all of them, with nobody beside */
    double after; /* seconds in which nothing is held any more */
    double share; /* of the other stations that it has with nobody beside */
    uint64_t stations;   /* a bit for each direction of a link */
    int32_t own;         /* the bit of the station that is slower than the others; -1 for none */
    int32_t peer_global; /* global rank of the peer */
    int32_t again;       /* whether the next of them has to be asked about anew */
    int32_t unused;
};

struct table {
    uint32_t magic;
    uint32_t bytes; /* of this struct: both sides compare it */
    int32_t rank;   /* global rank of this process */
    int32_t serial; /* whether what is on a link takes turns; else it shares fairly */
    char questions[PATH]; /* the FIFO */
    char records[PATH];   /* file for records */
    char refusal[PATH];   /* why the last question was refused */
    struct group groups[GROUPS];
    struct entry entries[ENTRIES];
};

#endif
