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

from paracosm.compiled import address_of, apart, compiled_whole, inlined, subroutine
from paracosm.compiled_references import Referenced, call_address, call_apart, dereference
from paracosm.relaxation.kernel import arrays as k
from paracosm.relaxation.kernel.blocks import (
    MIX,
    MOMENTUM,
    SOLVE,
    SWEEP,
    USER,
    commit,
    fresh_residual,
    propose,
    propose_by_mixing,
    propose_by_solving,
    propose_by_sweep,
    rows_in_flight,
)
from paracosm.relaxation.kernel.halo import (
    exchange,
    gather,
    move_network,
    receive,
    send,
    take_part,
)
from paracosm.relaxation.kernel.observe import (
    mark,
    norm_of,
    nothing_new,
    observe,
    rollbacks,
    sample,
)
from paracosm.relaxation.kernel.tournament_tree import rebuild, set_key
from paracosm.timing.compiled import draw, uniform

# Come back after so many, although nobody relaxes: the residual processor may be all that is left.
MOST_INSTANTS = 2_000_000


@compiled_whole
def advance(s: Any, opcode: Any, processor: Any, until: Any, most: Any) -> Any:
    """Do what `opcode` says: play instants, or one thing of what playing does.

    An entry of its own for each of these would compile all that is here once more.
    """
    if opcode == k.PLAY:
        return play(s, until, most)
    if opcode == k.BEGIN:
        _messages(s, k.MOVE, processor, s.gauges[k.NOW])
        return begin(s, processor, s.gauges[k.NOW])
    if opcode == k.SCHEDULE:
        return schedule(s, processor, s.gauges[k.NOW])
    if opcode == k.OBSERVE:
        return observe(s)
    if opcode == k.SAMPLE:
        sample(s)
    elif opcode == k.MARK_FAULT:
        mark(s, k.FAULT)
    elif opcode == k.REBUILD:
        rebuild(s.clock)
    elif opcode == k.EXCHANGE:
        _messages(s, k.EXCHANGE_ROWS, processor, 0.0)
    elif opcode == k.FRESH_RESIDUAL:
        s.gauges[k.SQUARE] = fresh_residual(s.matrix, s.iterate)
    return k.GO_ON


@subroutine
def play(s: Any, until: Any, most: Any) -> Any:
    """Play instants up to `until` (clock and shift) and `most` relaxations; return why it ended.

    The stages of an instant are `GATHER`, `READ`, `WRITE`; one that is left to decide something
    outside is entered again where it was left.
    """
    rules, counters, gauges = s.rules, s.counters, s.gauges
    instants = np.int64(0)  # a literal would have a type of its own
    while True:
        if counters[k.STAGE] == k.START:
            _start(rules, counters, s.flight)
            if rules.python_rows and counters[k.POSITION] == 0:
                return k.CALL_ROWS
        if counters[k.STAGE] == k.NEXT:
            reason = _next_instant(s, until, most, instants)
            if reason != k.GO_ON:
                return reason
            instants += 1
        instant = gauges[k.NOW]
        if counters[k.STAGE] == k.GATHER:
            counters[k.DUE] = 0
            counters[k.POSITION] = 0
            gauges[k.SLOWEST] = 0.0
        starting = counters[k.STARTING] == 1
        # They write before all read, or once each has read; at the start nothing is written.
        late = counters[k.STAGE] == k.WRITE and (starting or not rules.at_start)
        if counters[k.STAGE] == k.GATHER or late:
            reason = _write_due(s, instant, starting)
            if reason != k.GO_ON:
                return reason
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
            elif s.clock.key[1] == instant:
                counters[k.STAGE] = k.GATHER
                continue
        if counters[k.STAGE] == k.READ:
            reason = _read_due(s, instant)
            if reason != k.GO_ON:
                return reason
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
def _start(rules: Any, counters: Any, flight: Any) -> None:
    """Make all processors due, with the residual processor if there is one."""
    players = rules.processors + (rules.detect == k.PROCESSOR)
    for processor in range(players):
        flight.due[processor] = processor
    counters[k.DUE] = players
    # Who reads at completion has nothing to read yet.
    counters[k.POSITION] = 0 if rules.at_start and not rules.after_copy else players
    counters[k.STARTING] = 1
    counters[k.STAGE] = k.READ


@inlined
def _next_instant(s: Any, until: Any, most: Any, instants: Any) -> Any:
    """Move the clock to the next instant, unless there is a reason to stop before it."""
    rules, counters, gauges, halos = s.rules, s.counters, s.gauges, s.halos
    instant = s.clock.key[1]
    if gauges[k.NEXT_CHECKPOINT] < min(instant, until - gauges[k.SHIFT]) < np.inf:
        call_apart(s.apart.rollbacks, (s, np.int64(k.SAVE), instant, until))
    if instant + gauges[k.SHIFT] > until or instant == np.inf:
        return k.PAUSED
    if instant > rules.last_instant:
        return k.TOO_LATE
    if counters[k.RELAXATIONS] >= most or instants >= MOST_INSTANTS:
        return k.SLICE
    if rules.distributed and halos.fullest[0] > halos.arrival.shape[1] - 2:
        return k.GROW
    gauges[k.NOW] = instant
    counters[k.VERDICT] = 0
    counters[k.STAGE] = k.GATHER
    return k.GO_ON


@subroutine
def _write_due(s: Any, instant: Any, starting: Any) -> Any:
    """Write the updates that are complete and begin the next ones; at the start, begin only."""
    rules = s.rules
    while True:
        processor = _next_due(s, instant)
        if processor < 0:
            break
        if not starting:
            _messages(s, k.MOVE, processor, instant)
            write(s, processor, instant)
        reason = schedule(s, processor, instant)
        if reason != k.GO_ON:
            return reason
    if rules.barrier >= 0.0:
        _synchronise(rules, s.clock, instant + s.gauges[k.SLOWEST] + rules.barrier)
    return k.GO_ON


@subroutine
def _read_due(s: Any, instant: Any) -> Any:
    """Let all that are due read, from where an earlier call ended."""
    rules, counters = s.rules, s.counters
    if counters[k.POSITION] == 0 and (rules.component or rules.own_block):
        call_apart(s.apart.rollbacks, (s, np.int64(k.WATCH), instant, 0.0))
    while counters[k.POSITION] < counters[k.DUE]:
        processor = np.int64(s.flight.due[counters[k.POSITION]])
        _messages(s, k.MOVE, processor, instant)
        reason = begin(s, processor, instant)
        if reason != k.GO_ON:
            return reason
        counters[k.POSITION] += 1
    return k.GO_ON


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
        processor = counters[k.DUE] if synchronous else np.int64(s.clock.winner[1])
        flight.due[counters[k.DUE]] = processor
        if rules.after_copy and flight.copying[processor]:
            flight.copying[processor] = False
            # What is complete at once is still written after it was read.
            just_after = instant * (1.0 + 4.5e-16) + 1e-300
            set_key(s.clock, processor, max(flight.end[processor], just_after))
            counters[k.DUE] += 1
            continue  # it has copied what others wrote, and computes from it
        if not rules.after_copy:
            counters[k.DUE] += 1
        # Who reads at completion has to read first, now that its turn has come.
        return processor if rules.at_start else -1
    return -1


@subroutine
def write(s: Any, processor: Any, instant: Any) -> None:
    """Write the values of an update that is complete."""
    rules, blocks, iterate, flight = s.rules, s.blocks, s.iterate, s.flight
    tally, counters, gauges = s.tally, s.counters, s.gauges
    if processor < rules.processors:
        first, end, chosen = rows_in_flight(blocks, flight, processor)
        rows = flight.chosen if chosen else blocks.rows
        watched = rules.error_limit >= 0.0 and not rules.infinity
        if watched:
            gauges[k.ERROR] -= _error_of(iterate, rows, first, end)
        gauges[k.SQUARE] += commit(s, processor, rows, first, end)
        if watched:
            gauges[k.ERROR] += _error_of(iterate, rows, first, end)
        staleness = counters[k.UPDATES] - flight.read_at[processor]
        if rules.barrier >= 0.0:
            staleness = 0  # all of a sweep are written at once, whatever the order here
        counters[k.UPDATES] += 1
        counters[k.RELAXATIONS] += end - first
        gauges[k.STALENESS] += staleness
        if staleness > counters[k.STALEST]:
            counters[k.STALEST] = staleness
        tally.staleness[min(staleness >> rules.bin_shift, tally.staleness.size - 1)] += 1
        offered = tally.offered[processor] if rules.detect >= k.LOCAL else -1.0
        records = tally.stage[processor] == k.ASKED
        _messages(s, k.SEND, processor, instant)
        if records:
            for place in range(blocks.pointer[processor], blocks.pointer[processor + 1]):
                tally.recorded[blocks.rows[place]] = iterate.x[blocks.rows[place]]
            tally.stage[processor] = k.RECORDED
        if rules.detect >= k.LOCAL:
            if processor == 0 and (rules.detect == k.LOCAL or offered >= 0.0):
                counters[k.VERDICT] = 1  # it looks at the sum
            if offered >= 0.0:
                tally.contribution[processor] = offered
                tally.offered[processor] = -1.0
                tally.stage[processor] = k.IDLE
                tally.snapshots[processor] += rules.detect == k.SNAPSHOT
    else:
        counters[k.VERDICT] = 0.0 <= gauges[k.SEEN] <= rules.limit
    flight.updates[processor] += 1


@subroutine
def _error_of(iterate: Any, rows: Any, first: Any, end: Any) -> Any:
    square = 0.0
    for place in range(first, end):
        square += (iterate.x[rows[place]] - iterate.solution[rows[place]]) ** 2
    return square


@subroutine
def schedule(s: Any, processor: Any, instant: Any) -> Any:
    """Begin an update of `processor`: draw its durations, and set its clock."""
    rules, clock, flight, spans = s.rules, s.clock, s.flight, s.spans
    draws, phase_rows, streams = s.draws, s.phase_rows, s.streams
    counters, gauges, time = s.counters, s.gauges, s.time
    number = flight.updates[processor]
    # A duration that a Python function gave is a number.
    if rules.python_values and flight.given[processor] == flight.given[processor]:
        total = flight.given[processor]
        copied = computed = 0.0
        flight.given[processor] = np.nan
    elif rules.compiled_time and processor < rules.processors:
        total = call_address(time, (processor, number, uniform(streams[processor], number)))
        copied = computed = 0.0
    elif rules.phases == 1:
        number_drawn = uniform(streams[processor], number)
        total = draw(draws, phase_rows[processor, 0], number_drawn, number)
        copied = computed = 0.0
    else:
        copied, computed, total = _phases(
            rules, draws, phase_rows, streams[processor], number, processor
        )
    if rules.ticks > 0.0:
        total = np.rint(total * rules.ticks)
        copied = min(np.rint(copied * rules.ticks), total)
        computed = min(np.rint(computed * rules.ticks), total)
    if not 0.0 < total < np.inf:
        counters[k.FAILED_PROCESSOR] = processor
        gauges[k.BAD] = total
        return k.EXHAUSTED if total != total else k.BAD_TIME
    if rules.time_slice > 0.0:
        copied = _with_turns(rules, processor, instant, copied)
        computed = _with_turns(rules, processor, instant, computed)
        total = _with_turns(rules, processor, instant, total)
    if counters[k.SPANS] < spans.processor.size:
        row = counters[k.SPANS]
        spans.processor[row] = processor
        spans.times[row, 0] = instant + gauges[k.SHIFT]
        spans.times[row, 1] = copied
        spans.times[row, 2] = computed
        spans.times[row, 3] = total
        counters[k.SPANS] += 1
    clock.begun[processor] = instant + gauges[k.SHIFT]
    end = instant + total
    if end == instant:  # rounded away: one that ends now would be due, and begun, over and over
        end = instant * (1.0 + 4.5e-16)
    flight.end[processor] = end
    s.tally.busy[processor] += total
    if rules.barrier >= 0.0:
        gauges[k.SLOWEST] = max(gauges[k.SLOWEST], total)
    elif rules.after_copy:
        flight.copying[processor] = True
        set_key(clock, processor, instant + copied)
    else:
        set_key(clock, processor, end)
    return k.GO_ON


@subroutine
def _with_turns(rules: Any, processor: Any, instant: Any, needed: Any) -> Any:
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
        wait = ((processor - number * cores) % threads) // cores
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
    for processor in range(rules.processors):
        clock.key[clock.winner.size // 2 + processor] = instant
    rebuild(clock)


@subroutine
def _phases(
    rules: Any, draws: Any, phase_rows: Any, stream: Any, number: Any, processor: Any
) -> Any:
    """Draw the phases of one update; return copy, copy + compute, and all of it."""
    copied = computed = total = 0.0
    for phase in range(rules.phases):
        index = number if rules.joint else number * rules.phases + phase
        total += draw(draws, phase_rows[processor, phase], uniform(stream, index), number)
        if phase == 0:
            copied = total
        if phase == 1:
            computed = total
    return copied, computed, total


@subroutine
def begin(s: Any, processor: Any, instant: Any) -> Any:
    """Let `processor` read, and compute the values that it will write."""
    rules, matrix, rows_of_a, blocks = s.rules, s.matrix, s.rows_of_a, s.blocks
    iterate, flight, tally, halos = s.iterate, s.flight, s.tally, s.halos
    choices, counters, gauges = s.choices, s.counters, s.gauges
    update, pattern = s.update, s.pattern
    if processor == rules.processors:  # the residual processor
        gauges[k.SEEN] = norm_of(rules.infinity, iterate.residual, gauges[k.SQUARE])
        return k.GO_ON
    if flight.stale[processor]:
        return k.GO_ON  # a fault: what it writes comes from what it read before
    number = flight.updates[processor]
    if not rules.python_rows:
        flight.size[processor] = -1
    if rules.compiled_rows:
        room = flight.chosen[flight.slot[processor] : flight.slot[processor + 1]]
        chance = uniform(choices[processor], number)
        size = call_address(pattern, (processor, number, chance, room))
        if size < 0:
            counters[k.FAILED_PROCESSOR] = processor
            return k.RAISED
        if size > room.size:
            return k.GROW
        for place in range(size):
            if not 0 <= room[place] < iterate.x.size:
                counters[k.FAILED_PROCESSOR] = processor
                return k.BAD_ROWS
        flight.size[processor] = size
    elif rules.choice == k.IN_TURN:
        mine = (blocks.pointer.size - 2 - processor) // rules.processors + 1
        flight.block[processor] = processor + rules.processors * (number % mine)
    elif rules.choice == k.AT_RANDOM:
        flight.block[processor] = int(
            uniform(choices[processor], number) * (blocks.pointer.size - 1)
        )
    if rules.coordinates > 0:
        _choose(rules, blocks, flight, choices[processor], number, processor)
    flight.read_at[processor] = counters[k.UPDATES]
    if rules.linked:
        flight.read_at[processor] = _messages(s, k.RECEIVE, processor, instant)
    first, end, chosen = rows_in_flight(blocks, flight, processor)
    rows = flight.chosen if chosen else blocks.rows
    residual = iterate.residual
    if rules.distributed and halos.data.size > 0:
        residual = halos.residual
    if k.LOCAL <= rules.detect <= k.TREE and number % rules.every == 0:
        tally.offered[processor] = _of_children(rules, tally, halos, processor)
        for place in range(first, end):
            tally.offered[processor] += residual[rows[place]] ** 2
    if rules.method <= MOMENTUM:
        propose(s, processor, residual, rows, first, end)
    elif rules.method != USER:
        call_apart(s.apart.values, (s, processor))
    elif rules.compiled_values:
        slot = flight.slot[processor]
        out = flight.values[slot : slot + end - first]
        if rules.distributed:
            _messages(s, k.EXCHANGE_ROWS, processor, instant)
        given = iterate.x, rows[first:end], dereference(rows_of_a), matrix.b, out
        raised = call_address(update, given)
        if rules.distributed:
            _messages(s, k.EXCHANGE_ROWS, processor, instant)
        if raised:
            counters[k.FAILED_PROCESSOR] = processor
            return k.RAISED
    return k.GO_ON


@subroutine
def _of_children(rules: Any, tally: Any, halos: Any, processor: Any) -> Any:
    """Return the sums that a processor has from its children in the tree; infinite: not yet all."""
    total = 0.0
    if rules.detect == k.TREE and rules.distributed:
        for position in range(halos.into_pointer[processor], halos.into_pointer[processor + 1]):
            if halos.kind[halos.into[position]] == k.SUM:
                total += halos.have[halos.link[halos.into[position]]]
    elif rules.detect == k.TREE:
        for child in range(2 * processor + 1, min(2 * processor + 3, rules.processors)):
            known = tally.contribution[child]
            total += known if known >= 0.0 else np.inf
    return total


@subroutine
def _choose(rules: Any, blocks: Any, flight: Any, stream: Any, number: Any, processor: Any) -> None:
    block, slot = flight.block[processor], flight.slot[processor]
    first, size = blocks.pointer[block], blocks.pointer[block + 1] - blocks.pointer[block]
    for position in range(rules.coordinates):
        place = int(uniform(stream, number * (rules.coordinates + 1) + position) * size)
        flight.chosen[slot + position] = blocks.rows[first + place]
    flight.size[processor] = rules.coordinates


@inlined
def _messages(s: Any, opcode: Any, processor: Any, instant: Any) -> Any:
    """Call `messages` where there are any."""
    if not s.rules.linked:
        return 0
    return call_apart(s.apart.messages, (s, np.int64(opcode), np.int64(processor), instant))


@apart
def messages(s: Any, opcode: Any, processor: Any, instant: Any) -> Any:
    """Do what messages do: travel, leave, arrive, or stand for rows of others."""
    rules, tally, halos, ports, counters = s.rules, s.tally, s.halos, s.ports, s.counters
    if opcode == k.MOVE:
        move_network(halos, ports, s.draws, instant)
    elif opcode == k.SEND:
        offered = tally.offered[processor] if rules.detect >= k.LOCAL else -1.0
        records = tally.stage[processor] == k.ASKED
        send(s.iterate, halos, ports, s.draws, counters, processor, instant, offered, records)
    elif opcode == k.RECEIVE:
        known = receive(halos, ports, s.draws, counters, processor, instant)
        if rules.detect == k.SNAPSHOT:
            take_part(s, processor)
        if rules.distributed and halos.data.size > 0:
            first, end, chosen = rows_in_flight(s.blocks, s.flight, processor)
            rows = s.flight.chosen if chosen else s.blocks.rows
            gather(s.matrix, halos, halos.source, s.iterate.x, rows, first, end)
        return known
    else:
        exchange(s.iterate, halos, processor)
    return 0


def with_addresses(state: k.State) -> k.State:
    """Return the same state with the addresses of what its run needs besides the loop."""
    rules, given = state.rules, Referenced(state)
    by_methods = {
        SWEEP: propose_by_sweep,
        SOLVE: propose_by_solving,
        MIX: propose_by_mixing,
    }
    values = messages_at = rollbacks_at = 0
    if rules.method in by_methods:
        values = address_of(by_methods[rules.method], given, 0)
    if rules.linked:
        messages_at = address_of(messages, given, 0, 0, 0.0)
    if state.checkpoint.x.size > 0:
        rollbacks_at = address_of(rollbacks, given, 0, 0.0, 0.0)
    return state._replace(apart=k.Apart(values, messages_at, rollbacks_at))
