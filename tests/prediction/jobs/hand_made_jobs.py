"""Jobs of a few tasks whose times can be computed by hand. Times in milliseconds."""

from __future__ import annotations

from paracosm.jobs.job import Job
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job

MS = 1e-3


def data_parallel(compute: float, transfer: float, speed: tuple[float, ...]) -> Job:
    """Return a job of ranks that compute and then sum gradients."""
    books = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(*books)
    first = writer.add("step", "compute", compute * MS, step="backward")
    writer.add(
        "all-reduce",
        "communication",
        transfer * MS,
        [first],
        kind="collective",
        role="data",
        size=8,
        step="communication",
    )
    ranks = len(speed)
    return write_job(
        [writer],
        [0] * ranks,
        write_communicators([range(ranks)]),
        [{"data": 0}] * ranks,
        speed=speed,
        examples=8 * ranks,
        labels=[f"worker{rank}" for rank in range(ranks)],
    )


def two_stages(batches: int, forward: float, backward: float, transfer: float) -> Job:
    """Return GPipe on two ranks: all forward passes, then all backward passes."""
    books = Codebook(), Codebook(), Codebook()
    first, second = ProgramWriter(*books), ProgramWriter(*books)
    holds = 100

    def passes(writer: ProgramWriter, name: str, time: float, role: str, sends: bool) -> None:
        for batch in range(batches):
            there = (
                []
                if sends
                else [
                    writer.add(f"receive {name}", "receive", 0.0, kind="receive", role=role, size=1)
                ]
            )
            done = writer.add(name, "compute", time * MS, there, step=name, microbatch=batch)
            if name == "forward":
                writer.hold(holds, done, None)
            if sends:
                writer.add(
                    f"send {name}", "send", transfer * MS, [done], kind="send", role=role, size=1
                )

    passes(first, "forward", forward, "next", sends=True)
    passes(second, "forward", forward, "previous", sends=False)
    passes(second, "backward", backward, "back", sends=True)
    passes(first, "backward", backward, "from next", sends=False)
    return write_job(
        [first, second],
        [0, 1],
        write_communicators([(0, 1), (1, 0)]),
        [{"next": 0, "from next": 1}, {"previous": 0, "back": 1}],
        throughout=[{"parameters": 1000}, {"parameters": 2000}],
        labels=["worker0", "worker1"],
    )
