"""Records of a job made up for the tests: every number of its summary can be found by hand."""

from __future__ import annotations

from paracosm.emulation.records import Collective, Group, Iteration, Record, Wait

START = 1_000.0  # seconds of the monotonic clock
ITERATION = 0.1
MIB = 2**20


def made_up_records(
    rank: int = 0, iterations: int = 11, slower: float = 0.0, late: float = 0.0
) -> list[Record]:
    """Return a job with two all-reduces of 1 MiB and a broadcast of 8 bytes in each iteration.

    The first all-reduce lasts from 20 to 50 ms and is hidden; the second from 40 to 80 ms, of which
    20 ms are waited for. The broadcast takes 5 ms and is waited for whole. The wait for the second
    ends 1 ms late. Each iteration takes 100 ms (the first 500 ms), and `slower` seconds more at its
    end. The last other rank comes to the second all-reduce `late` seconds after it was asked for.
    """
    records: list[Record] = [Group(rank, "0", 4, (0, 1, 2, 3), "gloo")]
    now, number = START, 0
    for iteration in range(iterations):
        if iteration == 0:
            now += 0.4
        for kind, size, worker, asked, entered, begun, done in (
            ("all_reduce", MIB, 0, 0.020, 0.020, 0.020, 0.050),
            ("all_reduce", MIB, 1, 0.040, 0.040 + late, 0.042, 0.080),
            ("broadcast", 8, 0, 0.090, 0.090, 0.090, 0.095),
        ):
            times = (now + asked, now + entered, now + begun, now + done)
            records.append(
                Collective(rank, "0", number, kind, size, -1, *times, worker, "train.py:7")
            )
            number += 1
        records += [Wait(rank, now + 0.060, now + 0.081), Wait(rank, now + 0.090, now + 0.095)]
        now += ITERATION + slower
        records.append(Iteration(rank, iteration, now, 0.8 * (now - START), 3 * MIB))
    return records
