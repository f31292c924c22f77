// Answers gloo's ring all-reduces and all-gathers as the emulated members of groups that have one
// real member, without Python: what a peer sends follows from what the real rank announced.
//
// The rules are those of schedules.Ring, sources.Sources and operations.Operation, which is what
// answers where this cannot be compiled, and everything else that comes on a connection: its
// bytes are handed over, and only one of the two writes while a frame is incomplete.
//
// A member acts as gloo's does (gloo/allreduce.cc, allgather.cc): two messages in flight each way,
// a notice or a header with its data for each write.

#include "answer_state.h"

#include "answer_ports.h"

#include "answer_ring.h"

// --- in ---

static Op *op_of(int group, uint64_t slot) {
    Op *op = S.ops;
    while (op && (op->slot != slot || op->group != group)) op = op->next;
    return op;
}

static void keep(Group *group, const Vector *vector) {
    if (group->announced_count == group->announced_room) {
        group->announced_room = 2 * group->announced_room + 64;
        size_t room = group->announced_room * sizeof *vector;
        if (!(group->announced = realloc(group->announced, room))) abort();
    }
    group->announced[group->announced_count++] = *vector;
}

static int take_vector(Group *group, int kind, uint32_t tag, Vector *found) {
    int kept = 0, is_found = 0;
    for (int i = 0; i < group->announced_count; i++) {
        Vector *one = &group->announced[i];
        if (one->tag == tag && one->kind == kind)
            *found = *one, is_found = 1;
        else if (one->tag + PASSED > tag)
            group->announced[kept++] = *one;
    }
    group->announced_count = kept;
    return is_found;
}

static int32_t *present(int64_t first, int64_t total, int64_t there, int64_t count, int64_t half,
                        int64_t *many, int64_t *begun) {
    int32_t *found = fresh(count, sizeof *found);
    *many = *begun = 0;
    for (int64_t i = 0; i < count; i++)
        if ((first + i) % total < there) {
            found[(*many)++] = i;
            *begun += i < half;
        }
    return found;
}

// As segments.layout_of and segments.messages_of
static void lay_out(Op *op, Group *group) {
    int64_t world = group->world, element = op->vector.element, size = op->vector.size;
    int64_t longest = element * (SEGMENT > (uint64_t)element ? SEGMENT / element : 1);
    int64_t lag = (size + longest * world - 1) / (longest * world);
    op->lag = lag = lag < 2 ? 2 : lag;
    int64_t length = (size + world * lag - 1) / (world * lag);
    op->segment = length = (length + element - 1) / element * element;
    int64_t there = (size + length - 1) / length, total = lag * world;
    int64_t count = 2 * (world - 1) * lag;
    op->half = (world - 1) * lag;
    op->sends = op->receives = count;
    op->begun = op->added = op->half;
    if (there < total) {
        int64_t real = group->real;
        op->send_index = present((real + 1) * lag, total, there, count, op->half, &op->sends,
                                 &op->begun);
        op->receive_index = present((real + 2) * lag, total, there, count, op->half, &op->receives,
                                    &op->added);
    }
}

static Op *begin(int number, uint64_t slot, double now) {
    Group *group = &S.groups[number];
    int kind = slot >> 56, world = group->world;
    Vector vector = {0};
    if (kind == ALL_REDUCE && !take_vector(group, kind, slot >> 24 & 0xffffffff, &vector)) return NULL;
    Op *op = fresh(1, sizeof *op);
    op->group = number;
    op->kind = kind;
    op->slot = slot;
    op->vector = vector;
    op->inner = world - 1;
    int step = kind == ALL_REDUCE ? -1 : 1;
    op->in = group->links[(group->real + step + world) % world];
    op->out = group->links[(group->real - step + world) % world];
    op->halves[0] = op->halves[1] = UINT64_MAX;
    if (kind == ALL_REDUCE)
        lay_out(op, group);
    else {
        op->lag = 2;
        op->half = op->sends = op->receives = op->begun = op->added = 2 * (world - 1);
        op->part = group->part;
        group->part = NULL;
        if (op->part) {
            op->halves[0] = op->part->length / 2;
            op->halves[1] = op->part->length - op->halves[0];
            op->knows_lengths = !op->part->got;
            if (!op->part->got) give(&op->part);
        }
    }
    op->pattern = zeros;
    op->pattern_size = PATTERN;
    for (uint32_t i = 0; i < vector.neutral_size; i++)
        if (vector.neutral[i] && op->pattern == zeros) {
            uint64_t element = vector.neutral_size;
            op->pattern_size = PATTERN / element * element;
            op->pattern = fresh(1, op->pattern_size);
            for (uint64_t at = 0; at < op->pattern_size; at++)
                op->pattern[at] = vector.neutral[at % element];
        }
    op->send_length = fresh(op->sends, sizeof(uint64_t));
    op->receive_length = fresh(op->receives, sizeof(uint64_t));
    op->arrived_at = fresh(op->half, sizeof(double));
    for (int64_t i = 0; i < op->half; i++) op->arrived_at[i] = NAN;
    op->kept = fresh(op->half + 2, sizeof(Buffer *));
    op->entry = fresh(op->inner, sizeof(double));
    op->free_at = fresh(op->inner, sizeof(double));
    op->ready_index = -1;
    op->asked_at = op->last = now;
    op->due = op->in_due = INFINITY;
    op->next = S.ops;
    S.ops = op;
    double added = group->is_late ? 0 : group->added[kind == ALL_REDUCE];
    for (int i = 0; i < op->inner; i++) op->entry[i] = now + added;
    if (group->is_late) tell(BEGIN, number, kind, op->inner, op->entry);
    op->entered = op->asked_at;
    for (int i = 0; i < op->inner; i++) {
        op->free_at[i] = op->entry[i];
        op->entered = fmax(op->entered, op->entry[i]);
    }
    return op;
}

// Begin what the real rank has just announced: emulated members come when it does, not when its
// first message has come.
static void begin_announced(int number) {
    Vector next;
    for (;;) {
        Group *group = &S.groups[number];
        if (group->connected < group->world - 1) return;
        if (pread(group->vectors, &next, sizeof next, group->at) != sizeof next) return;
        group->at += sizeof next;
        int is_mine = next.key == group->key && next.member == (uint32_t)group->real;
        if (next.kind == ALL_GATHER) {
            Buffer *part = take(next.size);
            while (part->got < next.element) {  // the rest is being written
                ssize_t count = pread(group->vectors, part->data + part->got,
                                      next.element - part->got, group->at);
                if (count < 0 && errno != EINTR) return;
                if (count > 0) part->got += count, group->at += count;
            }
            if (is_mine)
                group->part = part;
            else
                give(&part);
        } else if (next.kind != ALL_REDUCE)
            continue;
        if (!is_mine) continue;
        for (Op *next_op, *op = S.ops; op; op = next_op) {  // that gloo refused to do
            next_op = op->next;
            uint32_t tag = op->slot >> 24 & 0xffffffff;
            if (op->group == number && !op->is_met && (tag == next.tag || tag + PASSED < next.tag))
                forget(op);
        }
        if (next.kind == ALL_REDUCE && (!next.size || !next.element)) continue;
        if (next.kind == ALL_REDUCE) keep(group, &next);
        double now = now_();
        uint64_t slot = (uint64_t)next.kind << 56 | (uint64_t)next.tag << 24;
        Op *op = op_of(number, slot) ? NULL : begin(number, slot, now);
        give(&S.groups[number].part);
        if (op) advance(op, now);
    }
}

static void snap(const Op *op, Snapshot *to) {
    *to = (Snapshot){op->slot, size_of(op), op->vector.element, op->sent_bytes, op->received_bytes,
                     op->number, op->announced, op->accepted, op->arrived, op->asked, op->sent,
                     op->gone, op->asked_at, op->last,
                     op->due < INFINITY || op->in_due < INFINITY, op->group};
}

static void unexpected(int number, Op *op, int is_ours, uint64_t length) {
    Snapshot snapshot;
    snap(op, &snapshot);
    tell(UNEXPECTED, number, is_ours, length, &snapshot);
}

static void received(int number, double now) {
    Link *link = &S.links[number];
    Op *op = link->op;
    link->op = NULL;
    link->into = NULL;
    link->messages++;
    int64_t index = op->send_index ? op->send_index[op->arrived] : op->arrived;
    if (index < op->half) op->arrived_at[index] = now;
    op->arrived++;
    op->sent_bytes += link->length;
    op->last = now;
    advance(op, now);
    finish_if_complete(op);
}

// Take a frame whose header is complete; return 0 if it is for Python.
static int frame(int number, const char *head) {
    uint64_t values[6];
    memcpy(values, head, HEADER);
    uint64_t size = values[0], opcode = values[1], slot = values[2], length = values[4];
    Link *link = &S.links[number];
    int kind = slot >> 56;
    if ((kind != ALL_REDUCE && kind != ALL_GATHER) || opcode < DATA || opcode > RECV_READY ||
        length > LONGEST || size != HEADER + (opcode == DATA ? length : 0))
        return 0;
    double now = now_();
    Op *op = op_of(link->group, slot);
    if (!op && opcode == DATA) return 0;  // which nobody has announced
    if (!op) begin_announced(link->group), op = op_of(link->group, slot);
    if (!op && !(op = begin(link->group, slot, now))) return 0;
    link = &S.links[number];
    if (!op->is_met) op->is_met = 1, op->number = S.groups[op->group].number++;
    if (opcode == DATA) {
        if (number != op->in || op->arrived >= op->announced) return 0;
        if (op->send_length[op->arrived] != length) {
            tell(WRONG_LENGTH, number, slot, op->send_length[op->arrived], NULL);
            return 0;
        }
        int64_t index = op->send_index ? op->send_index[op->arrived] : op->arrived;
        link->op = op;
        link->length = link->left = length;
        if (op->kind == ALL_GATHER ? index < 2 && !op->part : index < op->half)
            link->into = op->kept[index] = take(length);
        if (op->kind == ALL_GATHER && length) advance(op, now);  // what goes back may begin
        if (!length) received(number, now);
        return 1;
    }
    int is_ours = opcode == RECV_READY;
    if (number != (is_ours ? op->out : op->in) ||
        (op->kind == ALL_REDUCE && length > op->segment) ||
        (is_ours ? op->asked >= op->receives : op->announced >= op->sends)) {
        unexpected(number, op, is_ours, length);
        return 1;
    }
    op->last = now;
    if (is_ours)
        op->receive_length[op->asked++] = length;
    else {
        int is_awaited = op->accepted > op->announced && op->kind == ALL_REDUCE;
        int64_t index = op->send_index ? op->send_index[op->announced] : op->announced;
        op->send_length[op->announced++] = length;
        if (!is_awaited) op->halves[index % 2] = length, op->knows_lengths = 1;
    }
    advance(op, now);
    return 1;
}

EXPORT int answer_may_write(int number) {  // whether no frame from here is incomplete
    Link *link = &S.links[number];
    return link->fd >= 0 && !(link->first && link->first->moved);
}

static void wake_at(Link *link, uint64_t left) {
    int low = left > 4 * LOW ? (int)LOW : 1;
    if (low != link->low && link->fd >= 0) {
        link->low = low;
        setsockopt(link->fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
    }
}

// Parse bytes that have come; those of a long message are read to where they belong instead.
static void parse(int number, const char *bytes, uint64_t count) {
    while (count && S.links[number].fd >= 0) {
        Link *link = &S.links[number];
        uint64_t size = count;
        if (link->foreign) {
            if (size > link->foreign) size = link->foreign;
            link->foreign -= size;
            tell(FOREIGN, number, 0, size, bytes);
        } else if (link->left) {
            if (size > link->left) size = link->left;
            if (link->into) {
                memcpy(link->into->data + link->into->got, bytes, size);
                link->into->got += size;
            }
            link->left -= size;
            link->received += size;
            if (!link->left) received(number, now_());
            flush_changed();
        } else {
            if (size > HEADER - link->headed) size = HEADER - link->headed;
            memcpy(link->head + link->headed, bytes, size);
            link->headed += size;
            if (link->headed == HEADER) {
                char head[HEADER];
                memcpy(head, link->head, HEADER);
                link->headed = 0;
                if (!frame(number, head)) {
                    uint64_t values[6];
                    memcpy(values, head, HEADER);
                    link = &S.links[number];
                    if (values[1] == DATA && values[4] <= LONGEST) link->foreign = values[4];
                    tell(FOREIGN, number, 0, HEADER, head);
                }
                flush_changed();
            }
        }
        bytes += size;
        count -= size;
    }
}

static void forward(Op *op) {  // what has come goes on, where it is waited for
    if (op && S.links[op->out].first) changed(&S.links[op->out]);
}

static void readable(int number) {
    for (uint64_t turn = 0; turn < SCRATCH;) {
        Link *link = &S.links[number];
        if (link->fd < 0) return;
        ssize_t count;
        if (link->left && link->into) {
            count = recv(link->fd, link->into->data + link->into->got, link->left, MSG_DONTWAIT);
        } else if (link->left) {  // thrown away by the kernel without a copy (tcp(7), MSG_TRUNC)
            uint64_t most = link->left < SCRATCH ? link->left : SCRATCH;
            count = recv(link->fd, scratch, most, MSG_DONTWAIT | MSG_TRUNC);
        } else
            count = recv(link->fd, scratch, link->foreign > LOW ? SCRATCH : LOW, MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) break;
        if (count <= 0) {
            closed(number);
            return;
        }
        turn += count;
        if (link->left) {
            if (link->into) link->into->got += count;
            link->left -= count;
            link->received += count;
            Op *op = link->op;
            if (link->left)
                forward(op);
            else
                received(number, now_());
            flush_changed();
        } else
            parse(number, scratch, count);
        if (count < HEADER * 4) break;  // most probably nothing more is there
    }
    Link *link = &S.links[number];
    if (link->fd >= 0) wake_at(link, link->left + link->foreign);
}

// --- the loop ---

static double next_due(void) {
    double due = INFINITY;
    for (Op *op = S.ops; op; op = op->next) due = fmin(due, fmin(op->due, op->in_due));
    return due;
}

static void serve_due(double now) {
    for (Op *op = S.ops; op; op = op->next)
        if (fmin(op->due, op->in_due) <= now) advance(op, now);
}

// Serve until an instant, until Python's own descriptors are ready, or until it was called.
EXPORT void answer_wait(double until) {
    struct epoll_event events[64];
    S.called = 0;
    S.running = 1;
    flush_changed();
    while (S.running) {
        double now = now_(), due = next_due();
        if (due <= now) {
            serve_due(now);
            flush_changed();
            due = next_due();
        }
        double left = fmin(due, until) - now_();
        int is_python = 0, timeout = left > COARSE ? (int)(1e3 * fmin(left - COARSE / 2, 1)) : 0;
        if (left > EARLY && left <= COARSE) {
            struct timespec sleep = {0, (long)((left - EARLY) * 1e9)};
            struct pollfd one = {S.epoll, POLLIN, 0};
            ppoll(&one, 1, &sleep, NULL);
        }
        int count = 0;
        for (double end = S.awake; !count && now_() < fmin(end, fmin(due, until));) {
            for (int i = 0; i < S.group_count; i++) begin_announced(i);
            if (S.changed) flush_changed();
            due = next_due();
            count = epoll_wait(S.epoll, events, 64, 0);
        }
        if (!count) count = epoll_wait(S.epoll, events, 64, timeout);
        if (count) S.awake = now_() + AWAKE;  // waking up takes longer than an answer
        for (int i = 0; i < count; i++) {
            int number = (int)events[i].data.u32;
            if (number == -1) {
                is_python = 1;
                continue;
            }
            if (events[i].events & EPOLLOUT && S.links[number].fd >= 0) {
                flush(number);
                if (S.links[number].python_wants_room && answer_may_write(number))
                    tell(WRITABLE, number, 0, 0, NULL);
                flush_changed();
            }
            if (events[i].events & ~EPOLLOUT && S.links[number].fd >= 0) readable(number);
        }
        if (is_python || S.called || S.text_size > 1 << 16 || now_() >= until) return;
    }
}

EXPORT void answer_stop(void) { S.running = 0; }

// --- what Python says and asks ---

EXPORT int answer_start(Callback call, int python) {
    memset(&S, 0, sizeof S);
    memset(&ports, 0, sizeof ports);
    S.call = call;
    S.epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)-1};
    return S.epoll < 0 ? -1 : epoll_ctl(S.epoll, EPOLL_CTL_ADD, python, &event);
}

EXPORT int answer_group(uint64_t key, const char *name, int rank, int real, int world, int is_late,
                        int is_paced, double gather, double reduce, int64_t number,
                        const char *vectors) {
    int file = -1;  // a group that is made again reads on
    int64_t at = 0;
    for (int i = 0; i < S.group_count; i++)
        if (S.groups[i].key == key && S.groups[i].real == real)
            file = S.groups[i].vectors, at = S.groups[i].at;
    if (file < 0) file = open(vectors, O_RDONLY | O_CLOEXEC);
    S.groups = realloc(S.groups, (S.group_count + 1) * sizeof(Group));
    if (!S.groups) abort();
    Group *group = &S.groups[S.group_count];
    *group = (Group){key, strdup(name), rank, real, world, is_late,
                     {gather, reduce}, fresh(world, sizeof(int)), number, NULL,
                     0, file, 0, 0, NULL, NULL, at, is_paced, NULL};
    return S.group_count++;
}

EXPORT int answer_link(int fd, int group, int peer) {
    S.links = realloc(S.links, (S.link_count + 1) * sizeof(Link));
    if (!S.links) abort();
    S.links[S.link_count] = (Link){.fd = fd, .group = group, .low = 1};
    Group *one = &S.groups[group];
    one->links[peer] = S.link_count++;
    if (++one->connected < one->world - 1) return one->links[peer];
    for (int member = 0; member < one->world; member++) {  // all are here: now they are served
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = one->links[member]};
        if (member == one->real || S.links[event.data.u32].fd < 0) continue;
        if (epoll_ctl(S.epoll, EPOLL_CTL_ADD, S.links[event.data.u32].fd, &event)) return -1;
    }
    return one->links[peer];
}

EXPORT void answer_close(int number) {
    Link *link = &S.links[number];
    if (link->fd < 0) return;
    epoll_ctl(S.epoll, EPOLL_CTL_DEL, link->fd, NULL);
    link->fd = -1;
    for (Frame *next, *one = link->first; one; one = next) next = one->next, free(one);
    link->first = link->last = NULL;
}

EXPORT void answer_hops(int group, int kind, uint64_t size, int count, const double *latency,
                        const double *busy) {
    Hops *hops = fresh(1, sizeof *hops);
    *hops = (Hops){S.groups[group].hops, kind, size, fresh(count, sizeof(double)),
                   fresh(count, sizeof(double))};
    memcpy(hops->latency, latency, count * sizeof(double));
    memcpy(hops->busy, busy, count * sizeof(double));
    S.groups[group].hops = hops;
}

// `in` and `out` have what such messages need of a port, and of which pool they are.
EXPORT void answer_pace(int group, int kind, uint64_t size, int in_port, const Flow *in,
                        int out_port, const Flow *out) {
    Pace *pace = fresh(1, sizeof *pace);
    *pace = (Pace){S.groups[group].paces,     kind,
                   size,                      {in->pool, out->pool},
                   {in_port, out_port},       {in->fixed, out->fixed},
                   {in->left, out->left},     {in->after, out->after}};
    S.groups[group].paces = pace;
}

EXPORT void answer_python_writes(int number, int is_inside, int wants_room) {
    Link *link = &S.links[number];
    if (link->fd < 0) return;
    link->python_writes = is_inside;
    if (link->python_wants_room != wants_room) link->python_wants_room = wants_room, interest(link);
    if (!is_inside && link->first) changed(link);
}

EXPORT void answer_counts(int number, uint64_t *counts) {
    Link *link = &S.links[number];
    counts[0] = link->sent, counts[1] = link->received, counts[2] = link->messages;
    link->sent = link->received = link->messages = 0;
}

EXPORT int64_t answer_next_number(int group) { return S.groups[group].number++; }

EXPORT int answer_open(Snapshot *to, int room) {
    int count = 0;
    for (Op *op = S.ops; op && count < room; op = op->next)
        if (op->is_met) snap(op, &to[count++]);
    return count;
}

EXPORT size_t answer_text(const char **text) {
    size_t size = S.text_size;
    *text = S.text;
    S.text_size = 0;
    return size;
}
