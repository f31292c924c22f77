"""The event loop of the asynchronous iteration in shared memory.

An instant is a time at which at least one update is complete. At each one, in this order:

1. updates that are complete are written, in the processors' order;
2. all who wrote read the iterate as it is now and begin their next update (read at start). Where
   an update has phases, a processor reads when it has copied, and that is an instant of its own.
   Where a processor reads at completion, it reads and writes when its turn comes in step 1;
3. the residual is looked at, once.

The loop stops whenever something is to be decided outside (`arrays.py` says what), and goes on
when it is called again: its own numbers live in two arrays.
"""

from typing import Any

import numpy as np

from paracosm.compiled import (
    by_reference,
    compiled_whole,
    dereference,
    inlined,
    reference,
    subroutine,
)
from paracosm.relaxation.kernel import arrays as k
from paracosm.relaxation.kernel.blocks import USER, commit, fresh_residual, propose
from paracosm.relaxation.kernel.halo import exchange, gather, move_network, receive, send
from paracosm.relaxation.kernel.observe import (
    mark,
    norm_of,
    nothing_new,
    observe,
    sample,
    save,
    watch,
)
from paracosm.relaxation.kernel.tournament_tree import rebuild, set_key
from paracosm.timing.compiled import draw, uniform

# Come back after so many, although nobody relaxes: the residual processor may be all that is left.
MOST_INSTANTS = 2_000_000


@compiled_whole
def advance(state: Any, what: Any, who: Any, until: Any, most: Any) -> Any:
    """Play instants up to `until` (clock and shift) and `most` relaxations; return why it ended.

    Or do one thing of what playing does: an entry of its own would compile all that once more.
    """
    s = reference(state)
    if what == k.BEGIN:
        move_network(s.halos, s.ports, s.draws, s.gauges[k.NOW])
        return begin(s, who, s.gauges[k.NOW])
    if what == k.SCHEDULE:
        return schedule(s, who, s.gauges[k.NOW])
    if what == k.OBSERVE:
        return observe(s)
    if what == k.SAMPLE:
        sample(s)
    elif what == k.MARK_FAULT:
        mark(s, k.FAULT)
    elif what == k.REBUILD:
        rebuild(s.clock)
    elif what == k.EXCHANGE:
        exchange(s.iterate, s.halos, who)
    elif what == k.FRESH_RESIDUAL:
        s.gauges[k.SQUARE] = fresh_residual(s.matrix, s.iterate)
    if what != k.PLAY:
        return k.GO_ON
    rules, clock, flight, halos = s.rules, s.clock, s.flight, s.halos
    counters, gauges = s.counters, s.gauges
    key, due = clock.key, flight.due
    synchronous = rules.barrier >= 0.0
    instants = 0
    while True:
        if counters[k.STAGE] == k.START:
            players = rules.processors + (rules.detect == k.PROCESSOR)
            for who in range(players):
                due[who] = who
            # Who reads at completion has nothing to read yet.
            counters[k.DUE] = players
            counters[k.POSITION] = 0 if rules.at_start and not rules.after_copy else players
            counters[k.STARTING] = 1
            counters[k.STAGE] = k.READ
            if rules.python_rows and counters[k.POSITION] == 0:
                return k.CALL_ROWS
        if counters[k.STAGE] == k.NEXT:
            instant = key[1]
            if gauges[k.NEXT_CHECKPOINT] < min(instant, until - gauges[k.SHIFT]) < np.inf:
                save(s, instant, until)
            if instant + gauges[k.SHIFT] > until or instant == np.inf:
                return k.PAUSED
            if instant > rules.last_instant:
                return k.TOO_LATE
            instants += 1
            if counters[k.RELAXATIONS] >= most or instants > MOST_INSTANTS:
                return k.SLICE
            if rules.distributed and halos.fullest[0] > halos.arrival.shape[1] - 2:
                return k.GROW
            gauges[k.NOW] = instant
            counters[k.VERDICT] = 0
            counters[k.STAGE] = k.GATHER
        instant = gauges[k.NOW]
        if counters[k.STAGE] == k.GATHER:
            counters[k.DUE] = 0
            counters[k.POSITION] = 0
            gauges[k.SLOWEST] = 0.0
        starting = counters[k.STARTING] == 1
        # They write before all read, or once each has read; at the start nothing is written.
        late = counters[k.STAGE] == k.WRITE and (starting or not rules.at_start)
        if counters[k.STAGE] == k.GATHER or late:
            while True:
                who = _next_due(s, instant)
                if who < 0:
                    break
                if not starting:
                    move_network(halos, s.ports, s.draws, instant)
                    write(s, who, instant)
                reason = schedule(s, who, instant)
                if reason != k.GO_ON:
                    return reason
            if synchronous:
                _synchronise(rules, clock, instant + gauges[k.SLOWEST] + rules.barrier)
            if counters[k.STAGE] == k.GATHER:
                counters[k.STAGE] = k.READ
                if rules.python_rows:
                    return k.CALL_ROWS
            elif starting:
                counters[k.STARTING] = 0
                counters[k.STAGE] = k.NEXT
                if rules.python_values:
                    return k.CALL_VALUES  # for the durations of the updates after these
                continue
            elif key[1] == instant:
                counters[k.STAGE] = k.GATHER
                continue
        if counters[k.STAGE] == k.READ:
            if counters[k.POSITION] == 0 and (rules.component or rules.own_block):
                watch(s)
            while counters[k.POSITION] < counters[k.DUE]:
                move_network(halos, s.ports, s.draws, instant)
                reason = begin(s, due[counters[k.POSITION]], instant)
                if reason != k.GO_ON:
                    return reason
                counters[k.POSITION] += 1
            counters[k.STAGE] = k.WRITE
            if rules.python_values:
                return k.CALL_VALUES
            if starting or not rules.at_start:
                continue  # to write
        counters[k.STAGE] = k.NEXT
        if nothing_new(s):
            continue
        reason = observe(s)
        if reason != k.GO_ON:
            return reason


@inlined
def _next_due(s: Any, instant: Any) -> Any:
    """Return whose update is to be written, or begun at the start; -1: nobody's before a read."""
    rules, flight, counters, key = s.rules, s.flight, s.counters, s.clock.key
    if counters[k.STAGE] == k.WRITE:
        if counters[k.DUE] == 0:
            return -1
        counters[k.DUE] -= 1
        return np.int64(flight.due[counters[k.DUE]])
    synchronous = rules.barrier >= 0.0
    while counters[k.DUE] < rules.processors if synchronous else key[1] == instant:
        who = counters[k.DUE] if synchronous else np.int64(s.clock.winner[1])
        flight.due[counters[k.DUE]] = who
        if rules.after_copy and flight.copying[who]:
            flight.copying[who] = False
            # What is complete at once is still written after it was read.
            just_after = instant * (1.0 + 4.5e-16) + 1e-300
            set_key(s.clock, who, max(flight.end[who], just_after))
            counters[k.DUE] += 1
            continue  # it has copied what others wrote, and computes from it
        if not rules.after_copy:
            counters[k.DUE] += 1
        # Who reads at completion has to read first, now that its turn has come.
        return who if rules.at_start else -1
    return -1


@by_reference
def write(s: Any, who: Any, instant: Any) -> None:
    """Write the values of an update that is complete."""
    rules, blocks, iterate, flight = s.rules, s.blocks, s.iterate, s.flight
    tally, halos, draws, counters = s.tally, s.halos, s.draws, s.counters
    gauges = s.gauges
    if who < rules.processors:
        first, end, chosen = rows_in_flight(blocks, flight, who)
        rows = flight.chosen if chosen else blocks.rows
        watched = rules.error_limit >= 0.0 and not rules.infinity
        if watched:
            gauges[k.ERROR] -= _error_of(iterate, rows, first, end)
        gauges[k.SQUARE] += commit(s, who, rows, first, end)
        if watched:
            gauges[k.ERROR] += _error_of(iterate, rows, first, end)
        staleness = counters[k.UPDATES] - flight.read_at[who]
        if rules.barrier >= 0.0:
            staleness = 0  # all of a sweep are written at once, whatever the order here
        counters[k.UPDATES] += 1
        counters[k.RELAXATIONS] += end - first
        gauges[k.STALENESS] += staleness
        if staleness > counters[k.STALEST]:
            counters[k.STALEST] = staleness
        tally.staleness[min(staleness >> rules.bin_shift, tally.staleness.size - 1)] += 1
        offered = tally.offered[who] if rules.detect >= k.LOCAL else -1.0
        records = tally.stage[who] == k.ASKED
        if rules.linked:
            send(iterate, halos, s.ports, draws, counters, who, instant, offered, records)
        if records:
            for place in range(blocks.pointer[who], blocks.pointer[who + 1]):
                tally.recorded[blocks.rows[place]] = iterate.x[blocks.rows[place]]
            tally.stage[who] = k.RECORDED
        if rules.detect >= k.LOCAL:
            if who == 0 and (rules.detect == k.LOCAL or offered >= 0.0):
                counters[k.VERDICT] = 1  # it looks at the sum
            if offered >= 0.0:
                tally.contribution[who] = offered
                tally.offered[who] = -1.0
                tally.stage[who] = k.IDLE
                tally.snapshots[who] += rules.detect == k.SNAPSHOT
    else:
        counters[k.VERDICT] = 0.0 <= gauges[k.SEEN] <= rules.limit
    flight.updates[who] += 1


@subroutine
def _error_of(iterate: Any, rows: Any, first: Any, end: Any) -> Any:
    square = 0.0
    for place in range(first, end):
        square += (iterate.x[rows[place]] - iterate.solution[rows[place]]) ** 2
    return square


@by_reference
def schedule(s: Any, who: Any, instant: Any) -> Any:
    """Begin an update of processor `who`: draw its durations, and set its clock."""
    rules, clock, flight, spans = s.rules, s.clock, s.flight, s.spans
    draws, phase_rows, streams = s.draws, s.phase_rows, s.streams
    counters, gauges, time = s.counters, s.gauges, s.time
    number = flight.updates[who]
    # A duration that a Python function gave is a number.
    if rules.python_values and flight.given[who] == flight.given[who]:
        total = flight.given[who]
        copied = computed = 0.0
        flight.given[who] = np.nan
    elif rules.compiled_time and who < rules.processors:
        total = time(who, number, uniform(streams[who], number))
        copied = computed = 0.0
    elif rules.phases == 1:
        number_drawn = uniform(streams[who], number)
        total = draw(draws, phase_rows[who, 0], number_drawn, number)
        copied = computed = 0.0
    else:
        copied, computed, total = _phases(rules, draws, phase_rows, streams[who], number, who)
    if rules.ticks > 0.0:
        total = np.rint(total * rules.ticks)
        copied = min(np.rint(copied * rules.ticks), total)
        computed = min(np.rint(computed * rules.ticks), total)
    if not 0.0 < total < np.inf:
        counters[k.CULPRIT] = who
        gauges[k.BAD] = total
        return k.EXHAUSTED if total != total else k.BAD_TIME
    if rules.time_slice > 0.0:
        copied = _with_turns(rules, who, instant, copied)
        computed = _with_turns(rules, who, instant, computed)
        total = _with_turns(rules, who, instant, total)
    if counters[k.SPANS] < spans.processor.size:
        row = counters[k.SPANS]
        spans.processor[row] = who
        spans.times[row, 0] = instant + gauges[k.SHIFT]
        spans.times[row, 1] = copied
        spans.times[row, 2] = computed
        spans.times[row, 3] = total
        counters[k.SPANS] += 1
    clock.begun[who] = instant + gauges[k.SHIFT]
    end = instant + total
    if end == instant:  # rounded away: one that ends now would be due, and begun, over and over
        end = instant * (1.0 + 4.5e-16)
    flight.end[who] = end
    s.tally.busy[who] += total
    if rules.barrier >= 0.0:
        gauges[k.SLOWEST] = max(gauges[k.SLOWEST], total)
    elif rules.after_copy:
        flight.copying[who] = True
        set_key(clock, who, instant + copied)
    else:
        set_key(clock, who, end)
    return k.GO_ON


@subroutine
def _with_turns(rules: Any, who: Any, instant: Any, needed: Any) -> Any:
    """Return how long a thread takes that needs a core for so long, and shares it.

    Round robin from one queue: thread i of P has one of the c cores in slice s if
    (i - s c) mod P < c, so that it has c slices of every P.
    """
    if needed <= 0.0:
        return 0.0
    size, cores, threads = rules.time_slice, rules.cores, rules.threads
    evenly = needed * threads / cores
    if instant + evenly > 2.0**50 * size:  # slices that the clock cannot tell apart
        return evenly
    number = np.int64(instant // size)
    if (number + 1) * size <= instant:
        number += 1
    rounds = max(np.int64(np.ceil(needed / (cores * size))) - 1, 0)
    needed -= rounds * cores * size
    lasted = rounds * threads * size
    now = instant
    while True:
        wait = ((who - number * cores) % threads) // cores
        if wait > 0:
            number += wait
            now = number * size
        room = (number + 1) * size - now
        if needed <= room:
            return lasted + now - instant + needed
        needed -= room
        number += 1
        now = number * size


@subroutine
def _synchronise(rules: Any, clock: Any, instant: Any) -> None:
    for who in range(rules.processors):
        clock.key[clock.winner.size // 2 + who] = instant
    rebuild(clock)


@subroutine
def _phases(rules: Any, draws: Any, phase_rows: Any, stream: Any, number: Any, who: Any) -> Any:
    """Draw the phases of one update; return copy, copy + compute, and all of it."""
    copied = computed = total = 0.0
    for phase in range(rules.phases):
        index = number if rules.joint else number * rules.phases + phase
        total += draw(draws, phase_rows[who, phase], uniform(stream, index), number)
        if phase == 0:
            copied = total
        if phase == 1:
            computed = total
    return copied, computed, total


@inlined
def rows_in_flight(blocks: Any, flight: Any, who: Any) -> Any:
    """Return where the rows in flight begin and end, and whether they are in `flight.chosen`."""
    if flight.size[who] >= 0:
        first = flight.slot[who]
        return first, first + flight.size[who], True
    block = flight.block[who]
    return blocks.pointer[block], blocks.pointer[block + 1], False


@by_reference
def begin(s: Any, who: Any, instant: Any) -> Any:
    """Let processor `who` read, and compute the values that it will write."""
    rules, matrix, rows_of_a, blocks = s.rules, s.matrix, s.rows_of_a, s.blocks
    iterate, flight, tally, halos = s.iterate, s.flight, s.tally, s.halos
    draws, choices, counters, gauges = s.draws, s.choices, s.counters, s.gauges
    update, pattern = s.update, s.pattern
    if who == rules.processors:  # the residual processor
        gauges[k.SEEN] = norm_of(rules.infinity, iterate.residual, gauges[k.SQUARE])
        return k.GO_ON
    if flight.stale[who]:
        return k.GO_ON  # a fault: what it writes comes from what it read before
    number = flight.updates[who]
    if not rules.python_rows:
        flight.size[who] = -1
    if rules.compiled_rows:
        room = flight.chosen[flight.slot[who] : flight.slot[who + 1]]
        size = pattern(who, number, uniform(choices[who], number), room)
        if size < 0:
            counters[k.CULPRIT] = who
            return k.RAISED
        if size > room.size:
            return k.GROW
        for place in range(size):
            if not 0 <= room[place] < iterate.x.size:
                counters[k.CULPRIT] = who
                return k.BAD_ROWS
        flight.size[who] = size
    elif rules.choice == k.IN_TURN:
        mine = (blocks.pointer.size - 2 - who) // rules.processors + 1
        flight.block[who] = who + rules.processors * (number % mine)
    elif rules.choice == k.AT_RANDOM:
        flight.block[who] = int(uniform(choices[who], number) * (blocks.pointer.size - 1))
    if rules.coordinates > 0:
        _choose(rules, blocks, flight, choices[who], number, who)
    flight.read_at[who] = counters[k.UPDATES]
    if rules.linked:
        flight.read_at[who] = receive(halos, s.ports, draws, counters, who, instant)
    if rules.detect == k.SNAPSHOT:
        take_part(s, who, number)
    first, end, chosen = rows_in_flight(blocks, flight, who)
    rows = flight.chosen if chosen else blocks.rows
    residual = iterate.residual
    if rules.distributed and halos.data.size > 0:
        gather(matrix, halos, halos.source, iterate.x, rows, first, end)
        residual = halos.residual
    if k.LOCAL <= rules.detect <= k.TREE and number % rules.every == 0:
        tally.offered[who] = _of_children(rules, tally, halos, who)
        for place in range(first, end):
            tally.offered[who] += residual[rows[place]] ** 2
    if rules.method != USER:
        propose(s, who, residual, rows, first, end)
    elif rules.compiled_values:
        slot = flight.slot[who]
        out = flight.values[slot : slot + end - first]
        if rules.distributed:
            exchange(iterate, halos, who)
        raised = update(iterate.x, rows[first:end], dereference(rows_of_a), matrix.b, out)
        if rules.distributed:
            exchange(iterate, halos, who)
        if raised:
            counters[k.CULPRIT] = who
            return k.RAISED
    return k.GO_ON


@by_reference
def take_part(s: Any, who: Any, number: Any) -> None:
    """Take the step of a snapshot for which all has arrived that processor `who` waits for.

    What it says is sent with the update that begins now. The n-th message of a link is of the n-th
    snapshot: nobody is asked for the next one before processor 0 has the sum of this one.
    """
    rules, tally, halos, blocks = s.rules, s.tally, s.halos, s.blocks
    idle = tally.stage[who] == k.IDLE
    if tally.stage[who] == k.ASKED or tally.offered[who] >= 0.0:
        return  # a fault made it read twice for one update
    if idle and who == 0 and number % rules.every != 0:
        return
    total = 0.0
    for position in range(halos.into_pointer[who], halos.into_pointer[who + 1]):
        link = halos.into[position]
        kind = halos.kind[link]
        if kind == k.HALO or idle != (kind == k.REQUEST):
            continue
        if halos.version[link] < tally.snapshots[who]:
            return
        if kind == k.SUM:
            total = _with(rules, total, halos.have[halos.link[link]])
    if idle:
        tally.stage[who] = k.ASKED
        return
    first, end = blocks.pointer[who], blocks.pointer[who + 1]
    gather(s.matrix, halos, halos.recorded_source, tally.recorded, blocks.rows, first, end)
    for place in range(first, end):
        total = _with(rules, total, halos.residual[blocks.rows[place]] ** 2)
    tally.offered[who] = total if total >= 0.0 else np.inf


@inlined
def _with(rules: Any, total: Any, square: Any) -> Any:
    """Return a squared norm with one more part; a NaN stays one."""
    if not rules.infinity:
        return total + square
    return square if square > total or square != square else total


@subroutine
def _of_children(rules: Any, tally: Any, halos: Any, who: Any) -> Any:
    """Return the sums that a processor has from its children in the tree; infinite: not yet all."""
    total = 0.0
    if rules.detect == k.TREE and rules.distributed:
        for position in range(halos.into_pointer[who], halos.into_pointer[who + 1]):
            if halos.kind[halos.into[position]] == k.SUM:
                total += halos.have[halos.link[halos.into[position]]]
    elif rules.detect == k.TREE:
        for child in range(2 * who + 1, min(2 * who + 3, rules.processors)):
            known = tally.contribution[child]
            total += known if known >= 0.0 else np.inf
    return total


@subroutine
def _choose(rules: Any, blocks: Any, flight: Any, stream: Any, number: Any, who: Any) -> None:
    block, slot = flight.block[who], flight.slot[who]
    first, size = blocks.pointer[block], blocks.pointer[block + 1] - blocks.pointer[block]
    for position in range(rules.coordinates):
        place = int(uniform(stream, number * (rules.coordinates + 1) + position) * size)
        flight.chosen[slot + position] = blocks.rows[first + place]
    flight.size[who] = rules.coordinates
