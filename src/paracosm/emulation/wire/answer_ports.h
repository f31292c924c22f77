// Links of real ranks at their modelled speed, as emulation.ports.Ports has them where each message
// needs one direction of a link, as wide as that: fair, serial, or shared with nobody. Part of
// answer.c. Times are in seconds, and so is what a message needs: those of a link that it has alone.

enum { ALONE, FAIR, SERIAL };
enum { QUEUED, FIXED, MOVING, DONE };

typedef struct Flow {  // a message; `answers.py` has the same fields
    double done;  // when it is there, as far as is known: others may come in between
    double ready, fixed, left, after;  // seconds of its link and without it
    uint64_t pool;  // of which one moves at a time, in the order of asking
    int32_t phase, is_mine;  // whether it is freed here
    double start, ahead_left, ahead_start;  // when FIXED ends; while the future is played
    int32_t ahead_phase, number;
} Flow;

typedef struct {
    int sharing, count, room, asked;
    double now;
    Flow **flows;  // that are not done, in the order of asking
} Port;

static struct {
    Port *all;
    int count;
} ports;

static int is_earlier(const Flow *one, const Flow *other) {
    return one->ahead_start < other->ahead_start ||
           (one->ahead_start == other->ahead_start && one->number < other->number);
}

// Play what is under way on from `now`, in the fields for that, to `until`; set when things are done.
static void play(Port *port, double until) {
    double now = port->now;
    for (;;) {
        int moving = 0;
        Flow *next = NULL, *first = NULL;  // that moves next; the first that is served in turn
        for (int i = 0; i < port->count; i++) {  // an earlier one of a pool is done: the next goes
            Flow *flow = port->flows[i];
            if (flow->ahead_phase != QUEUED) continue;
            int is_free = 1;
            for (int j = 0; j < i && is_free; j++)
                is_free = port->flows[j]->pool != flow->pool || port->flows[j]->ahead_phase == DONE;
            if (!is_free) continue;
            flow->ahead_phase = FIXED;
            flow->ahead_start = fmax(now, flow->ready) + flow->fixed;
        }
        for (int i = 0; i < port->count; i++) {
            Flow *flow = port->flows[i];
            if (flow->ahead_phase == FIXED && (!next || is_earlier(flow, next))) next = flow;
            if (flow->ahead_phase != MOVING) continue;
            moving++;
            if (!first || is_earlier(flow, first)) first = flow;
        }
        double at = next ? next->ahead_start : INFINITY;
        double share = port->sharing == FAIR ? moving : 1;  // seconds for each second of a link
        for (int i = 0; i < port->count; i++) {
            Flow *flow = port->flows[i];
            if (flow->ahead_phase == MOVING && (port->sharing != SERIAL || flow == first))
                at = fmin(at, now + flow->ahead_left * share);
        }
        double end = fmin(at, until);
        if (end == INFINITY) return;
        for (int i = 0; i < port->count; i++) {
            Flow *flow = port->flows[i];
            if (flow->ahead_phase != MOVING || (port->sharing == SERIAL && flow != first)) continue;
            if (now + flow->ahead_left * share <= end) {
                flow->ahead_phase = DONE;
                flow->done = end + flow->after;
            } else
                flow->ahead_left -= (end - now) / share;
        }
        now = end;
        if (at > until) return;
        if (next && next->ahead_start <= now) {
            next->ahead_phase = next->left > 0 ? MOVING : DONE;
            if (next->left <= 0) next->done = now + next->after;
        }
    }
}

static void look_ahead(Port *port, double until) {
    for (int i = 0; i < port->count; i++) {
        Flow *flow = port->flows[i];
        flow->ahead_left = flow->left;
        flow->ahead_start = flow->start;
        flow->ahead_phase = flow->phase;
    }
    play(port, until);
}

static void pass(Port *port, double now) {  // what has happened until now
    if (now <= port->now) return;
    look_ahead(port, now);
    port->now = now;
    int kept = 0;
    for (int i = 0; i < port->count; i++) {
        Flow *flow = port->flows[i];
        flow->left = flow->ahead_left;
        flow->start = flow->ahead_start;
        flow->phase = flow->ahead_phase;
        if (flow->phase != DONE)
            port->flows[kept++] = flow;
        else if (flow->is_mine > 1)  // nobody asks any more
            free(flow);
    }
    port->count = kept;
}

EXPORT int answer_port(int sharing) {
    ports.all = realloc(ports.all, (ports.count + 1) * sizeof(Port));
    if (!ports.all) abort();
    ports.all[ports.count] = (Port){.sharing = sharing, .now = -INFINITY};
    return ports.count++;
}

// Ask a port, at an instant, for what a message needs of it; `done` may move until it has passed.
EXPORT void answer_ask(int number, Flow *flow, double now) {
    Port *port = &ports.all[number];
    pass(port, now);
    if (port->count == port->room) {
        port->room = 2 * port->room + 16;
        port->flows = realloc(port->flows, port->room * sizeof(Flow *));
        if (!port->flows) abort();
    }
    flow->ready = fmax(flow->ready, now);
    flow->phase = QUEUED;
    flow->number = port->asked++;
    flow->done = INFINITY;
    port->flows[port->count++] = flow;
    port->now = fmax(port->now, now);
    look_ahead(port, INFINITY);
}

static void let_go(Flow **place) {  // it goes on, but nobody asks for it
    Flow *flow = *place;
    *place = NULL;
    if (flow && flow->phase == DONE)
        free(flow);
    else if (flow)
        flow->is_mine = 2;
}
