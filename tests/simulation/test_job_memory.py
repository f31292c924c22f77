"""What ranks hold while a job runs, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paracosm.jobs import Codebook, ProgramWriter, write_communicators, write_job
from paracosm.jobs.job import Job
from paracosm.simulation import replay_job
from paracosm.simulation.caching_allocator import AllocatorSettings
from paracosm.simulation.memory import (
    memory_at_peak,
    memory_over_time,
    peak_memory_of_ranks,
    reserved_memory,
)

MIB = 1 << 20


def test_memory_is_held_from_the_begin_of_a_task_to_the_end_of_another() -> None:
    """forward 2 s (holds 100), forward 2 s (holds 100), backward frees them one by one.

    compute   [f0 100][f1 100][b1 +30 -130][b0 -100]     at 0: 1100, 2: 1200, 4: 1230, 7: 1100, 10
    """
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writer, idle = (ProgramWriter(names, lanes, roles) for _ in range(2))
    first, second = (writer.add(f"f{i}", "compute", 2.0) for i in range(2))
    later, last = (writer.add(f"b{i}", "compute", 3.0) for i in (1, 0))
    writer.hold(100, first, last)
    writer.hold(100, second, later)
    writer.hold(30, later, later)
    job = write_job(
        [writer, idle],
        [0, 1, 0],
        write_communicators([]),
        [{}] * 3,
        throughout=[{"parameters": 1000}, {"parameters": 7}],
    )
    schedule = replay_job(job)
    instants, held = memory_over_time(schedule, 0)
    np.testing.assert_allclose(instants, [0, 0, 2, 4, 7, 10])
    np.testing.assert_array_equal(held, [1000, 1100, 1200, 1230, 1100, 1000])
    np.testing.assert_array_equal(peak_memory_of_ranks(schedule), [1230, 7, 1230])


def test_what_is_kept_for_good_is_never_released() -> None:
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(names, lanes, roles)
    row = writer.add("f", "compute", 1.0)
    writer.hold(5, row, None)
    schedule = replay_job(write_job([writer], [0], write_communicators([]), [{}]))
    assert memory_over_time(schedule, 0)[1].tolist() == [0, 5]


def test_a_task_that_takes_no_time_holds_its_memory_all_the_same() -> None:
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(names, lanes, roles)
    work, flash, rest = (
        writer.add(name, "compute", t) for name, t in (("a", 1), ("b", 0), ("c", 1))
    )
    writer.hold(10, work, work)
    writer.hold(70, flash, flash)
    writer.hold(20, rest, rest)
    schedule = replay_job(write_job([writer], [0], write_communicators([]), [{}]))
    assert memory_over_time(schedule, 0)[1].tolist() == [0, 10, 0, 70, 0, 20, 0]


def one_program(*held: tuple[str, int, int, int | None]) -> Job:
    """Return a job of one rank: uses by name, bytes, and the first and last of four tasks."""
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(names, lanes, roles)
    for step in ("forward", "forward", "backward", "optimizer"):
        writer.add("task", "compute", 1.0, step=step)
    for kind, size, first, last in held:
        writer.allocate(size, first, (kind, "place"))
        if last is not None:
            writer.release(size, last, (kind, "place"))
    throughout = [{"parameters": 4 * MIB, "optimizer": 8 * MIB}]
    return write_job([writer], [0], write_communicators([]), [{}], throughout=throughout)


def test_memory_at_the_peak_is_told_by_its_use() -> None:
    """Tasks 0 to 3 hold 12 MiB throughout and 5, 5 + 7, 5 + 7 + 3, 3 MiB besides."""
    job = one_program(
        ("activations", 5 * MIB, 0, 2), ("logits", 7 * MIB, 1, 2), ("gradients", 3 * MIB, 2, None)
    )
    assert memory_at_peak(replay_job(job), 0) == {
        ("parameters", ""): 4 * MIB,
        ("optimizer", ""): 8 * MIB,
        ("activations", "place"): 5 * MIB,
        ("logits", "place"): 7 * MIB,
        ("gradients", "place"): 3 * MIB,
    }


def test_the_allocator_keeps_whole_segments() -> None:
    """Blocks of 1 to 10 MiB come from segments of 20 MiB, larger ones from their own, of 2 MiB.

    Parameters of 4 MiB take the first segment, the gradient of 3 MiB its next piece. The activation
    of 33 MiB has a segment of 34. Two moments of 4 MiB each are made in the first step, in what is
    left of the first segment while the activation is gone: 20 - 4 - 3 = 13 MiB have room for both.
    """
    job = one_program(("activations", 33 * MIB, 0, 2), ("gradients", 3 * MIB, 2, None))
    reserved = reserved_memory(job, 0, AllocatorSettings())
    assert reserved.size == 20 * MIB + 34 * MIB
    assert (reserved.retries, reserved.is_full) == (0, False)


def test_what_is_made_in_the_first_step_breaks_up_a_segment_that_later_ones_lack() -> None:
    """Moments of 9 MiB each find no room in the first segment of 20 MiB (4 + 3 are taken), but in
    that of the activation, 33 MiB, which is free then: the next iteration needs another one."""
    job = one_program(("activations", 33 * MIB, 0, 2), ("gradients", 3 * MIB, 2, None))
    program = replace(
        job.programs[0], throughout={"parameters": 4 * MIB, "optimizer": 2 * 14 * MIB}
    )
    job = replace(job, programs=(program,))
    assert reserved_memory(job, 0, AllocatorSettings()).size == (20 + 34 + 34) * MIB
    # With so little the unused rest of a segment is not enough, and cannot be given back.
    assert reserved_memory(job, 0, AllocatorSettings(), 70 * MIB).is_full
    # Segments that expand have no such pieces: pages of 20 MiB.
    assert reserved_memory(job, 0, AllocatorSettings(expandable=True)).size == 80 * MIB
