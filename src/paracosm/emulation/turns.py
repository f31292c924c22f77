"""Run ranks of different kinds one after the other, each while all others are emulated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.job import Ended, run_job
from paracosm.emulation.kinds import met_by_messages, missing_kinds, take_turns
from paracosm.emulation.rank.messages import awaited_rank
from paracosm.emulation.records import Record
from paracosm.errors import InputError


def run_in_turns(
    config: EmulateConfig,
    seed: int,
    folder: Path,
    on_records: Callable[[list[Record]], None],
) -> Ended:
    """Run the script as a rank of each kind, or as the ranks that are named.

    The records of a rank go to `on_records` when it has ended. A rank that fails is the last.

    Raises:
        InputError: a rank that is named exchanges messages with one that is not.
    """
    records: list[Record] = []
    messages = folder / "messages"
    messages.mkdir()
    last = Ended(0, None, False)

    def run(rank: int) -> bool:
        nonlocal last
        news: list[Record] = []
        of_rank = config.model_copy(update={"rank": (rank,), "kinds": False})
        last = run_job(of_rank, seed, folder, news.extend, messages=messages)
        if awaited_rank(messages, rank) is None:
            records.extend(news)
            on_records(news)
        return not (last.exit_code or last.interrupted)

    def others() -> set[int]:
        if config.kinds:
            return missing_kinds(records, config.world)
        for rank, met in met_by_messages(records).items():
            if left := sorted(met.difference(config.rank)):
                ranks = ",".join(map(str, sorted({*config.rank, *left})))
                raise InputError(
                    f"rank: rank {rank} exchanges messages with rank {left[0]}, which is not among "
                    f"those to run: --rank {ranks}, or --kinds, which finds them"
                )
        return set()

    take_turns(config.rank, messages, run, others)
    return last
