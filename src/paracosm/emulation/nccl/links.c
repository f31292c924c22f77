/* Who shares a link and how, as in paracosm.network: rates are max-min fair, or of all that could
   start what became ready first does. */
#include "links.h"

#include <math.h>
#include <stddef.h>

static const double FORGIVEN = 1e-12; /* seconds of a link: less is none */

static struct transfer *first;
static double now = -INFINITY;

void links_begin(struct transfer *transfer)
{
    struct transfer **end = &first;
    while (*end)
        end = &(*end)->next;
    transfer->next = NULL;
    transfer->progress = WAITS_FIXED;
    *end = transfer;
}

void links_forget(struct transfer *transfer)
{
    for (struct transfer **at = &first; *at; at = &(*at)->next)
        if (*at == transfer) {
            *at = transfer->next;
            return;
        }
}

static void leave(struct transfer *transfer)
{
    transfer->progress = LEFT;
    transfer->over = now + transfer->after;
}

/* Fill the tightest station first: what passes it can have no more elsewhere. */
static void share_fairly(void)
{
    double room[64];
    int users[64] = {0};
    for (struct transfer *each = first; each; each = each->next) {
        if (each->progress != MOVES)
            continue;
        each->rate = each->stations ? -1 : 1;
        for (int bit = 0; bit < 64; bit++)
            if (each->stations >> bit & 1) {
                room[bit] = bit == each->own ? each->share : 1;
                users[bit]++;
            }
    }
    for (;;) {
        int tightest = -1;
        for (int bit = 0; bit < 64; bit++)
            if (users[bit] &&
                (tightest < 0 || room[bit] / users[bit] < room[tightest] / users[tightest]))
                tightest = bit;
        if (tightest < 0)
            return;
        double rate = room[tightest] / users[tightest];
        for (struct transfer *each = first; each; each = each->next) {
            if (each->progress != MOVES || each->rate >= 0 || !(each->stations >> tightest & 1))
                continue;
            each->rate = rate;
            for (int bit = 0; bit < 64; bit++)
                if (each->stations >> bit & 1) {
                    room[bit] -= rate;
                    users[bit]--;
                }
        }
    }
}

static void set_rates(bool serial)
{
    int moving = 0;
    for (struct transfer *each = first; each; each = each->next)
        moving += each->progress == MOVES;
    if (!serial && moving > 1) {
        share_fairly();
        return;
    }
    for (struct transfer *each = first; each; each = each->next)
        each->rate = each->share;
}

static void pass(double seconds)
{
    if (seconds > 0)
        for (struct transfer *each = first; each; each = each->next)
            if (each->progress == MOVES)
                each->left -= seconds * each->rate;
}

/* Return what became ready first of all that has not been tried yet, NULL where all has. */
static struct transfer *next_waiting(void)
{
    struct transfer *found = NULL;
    for (struct transfer *each = first; each; each = each->next)
        if (each->progress == WAITS_LINK && !each->tried && (!found || each->ready < found->ready))
            found = each;
    return found;
}

static void start(bool serial)
{
    uint64_t held = 0;
    for (struct transfer *each = first; each; each = each->next) {
        each->tried = false;
        if (each->progress == MOVES)
            held |= each->stations;
    }
    for (struct transfer *each; (each = next_waiting());) {
        each->tried = true;
        if (each->left <= 0) {
            leave(each);
        } else if (!serial || !(held & each->stations)) {
            held |= each->stations;
            each->progress = MOVES;
        }
    }
}

/* Take what is through off its links, one after the other, each for what waits there; the least is,
   whatever rounding leaves of it. */
static void end_least(bool serial)
{
    double least = INFINITY;
    for (struct transfer *each = first; each; each = each->next)
        if (each->progress == MOVES)
            least = fmin(least, each->left);
    least = fmax(least, FORGIVEN);
    for (;;) {
        struct transfer *ended = NULL;
        for (struct transfer *each = first; each; each = each->next)
            if (each->progress == MOVES && each->left <= least &&
                (!ended || each->ready < ended->ready))
                ended = each;
        if (!ended)
            return;
        leave(ended);
        start(serial);
    }
}

double links_run(double until, bool serial)
{
    for (;;) {
        double end = INFINITY, ready = INFINITY, over = INFINITY;
        set_rates(serial);
        for (struct transfer *each = first; each; each = each->next) {
            if (each->progress == MOVES)
                end = fmin(end, now + each->left / each->rate);
            else if (each->progress == WAITS_FIXED)
                ready = fmin(ready, each->ready);
            else if (each->progress == LEFT && each->over > until)
                over = fmin(over, each->over);
        }
        double at = fmin(end, ready);
        if (at > until || at == INFINITY) {
            double reached = fmax(until, now);
            pass(reached - now);
            now = reached;
            return fmin(at, over);
        }
        pass(at - now);
        now = fmax(at, now);
        if (at == end)
            end_least(serial);
        for (struct transfer *each = first; each; each = each->next)
            if (each->progress == WAITS_FIXED && each->ready <= now)
                each->progress = WAITS_LINK;
        start(serial);
    }
}
