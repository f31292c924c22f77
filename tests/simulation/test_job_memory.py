"""What ranks hold while a job runs, by hand."""

from __future__ import annotations

import numpy as np

from paracosm.jobs import Codebook, ProgramWriter, write_communicators, write_job
from paracosm.simulation import replay_job
from paracosm.simulation.static import memory_over_time, peak_memory_of_ranks


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
        [writer, idle], [0, 1, 0], write_communicators([]), [{}] * 3, resident=[1000, 7]
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
