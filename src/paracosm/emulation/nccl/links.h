/* Transfers over the links of one rank, as `paracosm.emulation.ports` has them. */
#ifndef PARACOSM_LINKS_H
#define PARACOSM_LINKS_H

#include <stdbool.h>
#include <stdint.h>

enum progress { WAITS_FIXED, WAITS_LINK, MOVES, LEFT };

struct transfer {
    struct transfer *next; /* in the order of beginning */
    enum progress progress;
    double ready;      /* when it needs its stations */
    double left;       /* seconds of a whole station that it still needs */
    double after;      /* seconds from leaving them until it is over */
    double over;       /* when it is over, once it has LEFT */
    double share;      /* of its stations that it has with nobody beside */
    uint64_t stations; /* a bit for each direction of a link */
    int own;           /* the bit of a station that is `share` as wide as others; -1 for none */
    double rate;       /* that it has now */
    bool tried;        /* in the search for what may start */
};

void links_begin(struct transfer *transfer);
void links_forget(struct transfer *transfer);

/* Go on to an instant, and return the next one at which anything happens; INFINITY for never. */
double links_run(double until, bool serial);

#endif
