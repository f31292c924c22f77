// When messages of a ring may go, what goes, and its way out to the socket; part of answer.c.

// --- when a message may go, as schedules.Ring ---

static const Hops *hops_of(Op *op, uint64_t size) {
    Group *group = &S.groups[op->group];
    for (int once = 0; once < 2; once++) {
        for (Hops *at = group->hops; at; at = at->next)
            if (at->kind == op->kind && at->size == size) return at;
        if (!once) tell(HOPS, op->group, op->kind, size, NULL), group = &S.groups[op->group];
    }
    return NULL;
}

// When a message that began at `origin` arrives at the last emulated member. Each hop starts once
// the message is there and the link is free.
EXPORT double answer_through(int hops, int origin, double began, const double *latency,
                             const double *busy, double *free_at) {
    for (int place = origin; place < hops; place++) {
        free_at[place] = fmax(began, free_at[place]) + busy[place];
        began = free_at[place] + latency[place];
    }
    return began;
}

static double through(Op *op, int origin, double began, uint64_t size) {
    if (origin == op->inner - 1) return began;
    const Hops *hops = hops_of(op, size);
    if (!hops) return NAN;
    return answer_through(op->inner - 1, origin, began, hops->latency, hops->busy, op->free_at);
}

static double ready(Op *op, int64_t index, uint64_t size) {  // NAN: it waits for another message
    if (op->ready_index == index) return op->ready_at;
    int64_t origin = op->inner - 1 - index / op->lag;
    double began;
    if (origin < 0) {
        int64_t from = index - op->inner * op->lag;
        began = from < op->half ? op->arrived_at[from] : NAN;
        if (isnan(began)) return NAN;
        origin = 0;
    } else
        began = op->entry[origin];
    op->ready_at = fmax(through(op, origin, began, size), op->entry[op->inner - 1]);
    op->ready_index = index;
    return op->ready_at;
}

// --- what the real member's modelled links take, as messages.GroupState.there ---

static Pace *pace_of(Op *op, uint64_t size) {
    Group *group = &S.groups[op->group];
    for (int once = 0; once < 2; once++) {
        for (Pace *at = group->paces; at; at = at->next)
            if (at->kind == op->kind && at->size == size) return at;
        if (!once) tell(PACE, op->group, op->kind, size, NULL), group = &S.groups[op->group];
    }
    return NULL;
}

// Return when the next message in (0) or out (1) that may go at an instant is there.
static double there(Op *op, int way, uint64_t size, double at, double now) {
    if (!S.groups[op->group].is_paced) return at;
    Flow *flow = op->flows[way];
    if (!flow) {
        const Pace *pace = pace_of(op, size);
        if (!pace) return at;
        flow = op->flows[way] = fresh(1, sizeof *flow);
        *flow = (Flow){.ready = at, .fixed = pace->fixed[way], .left = pace->busy[way],
                       .after = pace->after[way], .is_mine = 1, .pool = pace->pool[way]};
        answer_ask(pace->port[way], flow, now);
    }
    return flow->done;
}

// --- out ---

static void advance(Op *op, double now);
static void finish_if_complete(Op *op);

static void interest(Link *link) {
    struct epoll_event event = {.data.u32 = link - S.links};
    event.events = EPOLLIN | (link->wants_room || link->python_wants_room ? EPOLLOUT : 0);
    epoll_ctl(S.epoll, EPOLL_CTL_MOD, link->fd, &event);
}

static void closed(int number) {
    if (S.links[number].fd >= 0) tell(CLOSED, number, 0, 0, NULL);
}

static void gone(int number, Frame *frame, double now) {
    Link *link = &S.links[number];
    Op *op = frame->op;
    link->sent += frame->length;
    link->messages++;
    int64_t index = op->receive_index ? op->receive_index[op->gone] : op->gone;
    if (op->kind == ALL_REDUCE && index >= op->half) give(&op->kept[index - op->half]);
    op->gone++;
    op->received_bytes += frame->length;
    op->last = now;
}

static void changed(Link *link) {
    if (link->next_changed) return;
    link->next_changed = S.changed + 1;
    S.changed = (int)(link - S.links) + 1;
}

static void flush(int number) {
    for (;;) {
        Link *link = &S.links[number];
        Frame *frame = link->first;
        if (link->fd < 0 || link->python_writes || !frame) break;
        struct iovec parts[1 + PIECES];
        int count = 0;
        uint64_t offered = 0, at = frame->moved, limit = frame->head_size + frame->length;
        if (at < HEADER) {  // a notice goes by itself
            parts[count++] = (struct iovec){frame->head + at, HEADER - at};
            offered = HEADER - at;
        } else {
            if (frame->source) limit = frame->head_size + frame->source->got;
            if (limit > frame->head_size + frame->length) limit = frame->head_size + frame->length;
            if (at < frame->head_size) {
                parts[count++] = (struct iovec){frame->head + at, frame->head_size - at};
                offered += frame->head_size - at;
                at = frame->head_size;
            }
            while (at < limit && count < 1 + PIECES) {
                uint64_t offset = at - frame->head_size, size = limit - at;
                char *from;
                if (frame->source)
                    from = frame->source->data + offset;
                else {
                    uint64_t in = offset % frame->op->pattern_size;
                    from = frame->op->pattern + in;
                    if (size > frame->op->pattern_size - in) size = frame->op->pattern_size - in;
                }
                parts[count++] = (struct iovec){from, size};
                offered += size;
                at += size;
            }
            if (!count) break;  // more has to come first
        }
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
        ssize_t moved = sendmsg(link->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (moved < 0 && errno == EINTR) continue;
        if (moved < 0 && errno != EAGAIN) {
            closed(number);
            return;
        }
        if (moved > 0) frame->moved += moved;
        if (frame->moved == frame->head_size + frame->length) {
            link->first = frame->next;
            if (!link->first) link->last = NULL;
            Op *op = frame->op;
            if (op) {
                double now = now_();
                gone(number, frame, now);
                free(frame);
                if (S.groups[op->group].world == 2) advance(op, now);
                finish_if_complete(op);
            } else
                free(frame);
        } else if (moved < (ssize_t)offered) {
            if (!link->wants_room) link->wants_room = 1, interest(link);
            return;
        }
    }
    Link *link = &S.links[number];
    if (link->fd >= 0 && link->wants_room) link->wants_room = 0, interest(link);
}

static void flush_changed(void) {
    while (S.changed) {
        int number = S.changed - 1;
        S.changed = S.links[number].next_changed - 1;
        S.links[number].next_changed = 0;
        if (!S.links[number].wants_room) flush(number);
    }
}

static void put(uint64_t *head, uint64_t opcode, uint64_t slot, uint64_t length) {
    uint64_t values[6] = {HEADER + (opcode == DATA ? length : 0), opcode, slot, 0, length, 0};
    memcpy(head, values, HEADER);
}

static void notice(int number, uint64_t slot, uint64_t length) {
    Link *link = &S.links[number];
    if (link->fd < 0) return;
    Frame *frame = fresh(1, sizeof *frame), **at = &link->first;
    put((uint64_t *)frame->head, RECV_READY, slot, length);
    frame->head_size = HEADER;
    while (*at && (!(*at)->op || (*at)->moved)) at = &(*at)->next;  // before data not begun
    frame->next = *at;
    *at = frame;
    if (!frame->next) link->last = frame;
    changed(link);
}

static void queue(Op *op, uint64_t length, Buffer *source) {
    Link *link = &S.links[op->out];
    if (link->fd < 0) return;
    Frame *frame = fresh(1, sizeof *frame);
    put((uint64_t *)frame->head, SEND_READY, op->slot, length);
    put((uint64_t *)(frame->head + HEADER), DATA, op->slot, length);
    frame->head_size = 2 * HEADER;
    frame->op = op;
    frame->length = length;
    frame->source = source;
    if (link->last)
        link->last->next = frame;
    else
        link->first = frame;
    link->last = frame;
    changed(link);
}

// --- an operation's progress, as operations.Operation and emulator.Emulator ---

static int accept_next(Op *op, double now) {
    Group *group = &S.groups[op->group];
    if (op->accepted >= op->sends) return 0;
    int is_announced = op->accepted < op->announced;
    if (!is_announced) {
        if (group->is_paced || op->accepted >= op->arrived + 2) return 0;
        if (op->kind == ALL_GATHER && !op->knows_lengths) return 0;
        int begins = op->accepted < op->begun || group->world > 2 || op->kind == ALL_GATHER;
        if (!begins && (op->arrived < op->begun || op->gone < op->added)) return 0;
    }
    uint64_t length = is_announced ? op->send_length[op->accepted] : op->segment;
    double at = there(op, 0, length, op->entry[0], now);
    if (at > now) {
        op->in_due = at;
        return 0;
    }
    if (!is_announced && op->kind == ALL_GATHER) {
        length = op->halves[op->accepted % 2];
        if (length == UINT64_MAX) length = op->halves[1 - op->accepted % 2];
    }
    let_go(&op->flows[0]);
    op->accepted++;
    notice(op->in, op->slot, length);
    return 1;
}

static Buffer *fitted(Buffer *buffer, uint64_t length) {  // cut, or repeated
    Buffer *found = take(length);
    for (uint64_t at = 0; at < length; at++) found->data[at] = buffer->data[at % buffer->length];
    found->got = length;
    return found;
}

static int send_next(Op *op, double now) {
    if (op->sent >= op->asked) return 0;
    Group *group = &S.groups[op->group];
    if (op->kind == ALL_GATHER && group->world == 2 && !op->part && op->arrived <= op->sent)
        return 0;
    uint64_t length = op->receive_length[op->sent];
    int64_t index = op->receive_index ? op->receive_index[op->sent] : op->sent;
    double at = ready(op, index, length);
    if (isnan(at)) return 0;
    at = there(op, 1, length, at, now);
    if (at > now) {
        op->due = at;
        return 0;
    }
    Buffer *source = NULL;
    if (length && op->kind == ALL_GATHER) {
        Buffer **half = &op->kept[index % 2];
        if (!*half && op->part && length <= op->part->length) {
            *half = take(length);
            memcpy((*half)->data, op->part->data + (index % 2 ? op->part->length - length : 0), length);
            (*half)->got = length;
        }
        if (!*half) return 0;
        if ((*half)->length != length) {
            if ((*half)->got < (*half)->length || !(*half)->length) return 0;
            Buffer *other = fitted(*half, length);
            give(half);
            *half = other;
        }
        source = *half;
    } else if (length && index >= op->half) {
        source = op->kept[index - op->half];
        if (!source || source->length < length) source = NULL;
    }
    let_go(&op->flows[1]);
    op->due = INFINITY;
    op->sent++;
    queue(op, length, source);
    return 1;
}

static void advance(Op *op, double now) {
    op->due = op->in_due = INFINITY;
    while (accept_next(op, now)) continue;
    while (send_next(op, now)) continue;
}

static void forget(Op *op) {
    Op **at = &S.ops;
    while (*at != op) at = &(*at)->next;
    *at = op->next;
    for (int64_t i = 0; i < (op->kind == ALL_GATHER ? 2 : op->half); i++) give(&op->kept[i]);
    give(&op->part);
    let_go(&op->flows[0]), let_go(&op->flows[1]);
    void *parts[] = {op->send_index, op->receive_index, op->send_length, op->receive_length,
                     op->entry, op->free_at, op->arrived_at, op->kept};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
    if (op->pattern != zeros) free(op->pattern);
    free(op);
}

static uint64_t size_of(const Op *op) {
    if (op->kind == ALL_REDUCE) return op->vector.size;
    uint64_t moved = op->sent_bytes ? op->sent_bytes : op->received_bytes;
    int world = S.groups[op->group].world;
    return moved * world / (world - 1);
}

static void finish_if_complete(Op *op) {
    if (op->arrived < op->sends || op->gone < op->receives) return;
    Group *group = &S.groups[op->group];
    double done = fmax(op->last, op->asked_at), entered = fmax(op->asked_at, op->entered);
    if (S.text_room - S.text_size < 512 + strlen(group->name)) {
        S.text_room = 2 * S.text_room + 65536;
        if (!(S.text = realloc(S.text, S.text_room))) abort();
    }
    S.text_size += sprintf(
        S.text + S.text_size, "[\"c\",%d,%s,%lld,\"%s\",%llu,-1,%.9f,%.9f,%.9f,%.9f,0,\"\"]\n",
        group->rank, group->name, (long long)op->number,
        op->kind == ALL_REDUCE ? "all_reduce" : "all_gather", (unsigned long long)size_of(op),
        op->asked_at, entered, op->asked_at, done);
    int number = op->group, is_late = group->is_late;
    forget(op);
    if (is_late) tell(ENDED, number, 0, 0, NULL);
}
