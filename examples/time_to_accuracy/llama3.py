"""Llama 3's published run, from its own numbers: what must have been true for 90 % effective time.

"The Llama 3 Herd of Models" (2024), section 3.3.4: in 54 days of training with 16,384 GPUs there
were 466 interruptions, 47 of them planned, and effective training time was above 90 %. It does not
say how often the job saved its state, nor how long it took to restart. This program asks which of
both are compatible with 90 %.

Assumed:
- one GPU's failures, which are all that is unexpected, come at exponential intervals, and each
  stops the whole job;
- a checkpoint is saved while nobody trains, at the sustained bandwidth of the storage (section
  3.3.1), with 4 GB of each GPU, the most that section 3.3.4 gives: both are pessimistic;
- a planned interruption follows a checkpoint: it costs a restart, and no work;
- an iteration is 6 operations for each parameter and token of a batch of 16 M tokens, at 400
  Tflop/s a GPU (table 4). It only says when a checkpoint can be saved.

All GPUs move in step, so that one schedule of iterations stands for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean, stdev

import numpy as np

from paracosm.faults import Mtbf, daly_interval, expected_makespan, failure_instants
from paracosm.simulation.rollback import Checkpoint, with_rollbacks
from paracosm.simulation.schedule import READ, STEP, UPDATE, Schedule
from paracosm.units import format_duration

DAY, MINUTE = 86_400.0, 60.0
TIME = 54 * DAY
GPUS = 16_384
UNEXPECTED, PLANNED = 419, 47

CHECKPOINT = GPUS * 4e9 / 2e12
ITERATION = 6 * 405e9 * 16 * 2**20 / (GPUS * 400e12)

INTERVALS = [2 * MINUTE, 5 * MINUTE, 15 * MINUTE, 30 * MINUTE, 60 * MINUTE, 120 * MINUTE]
RESTARTS = [1 * MINUTE, 3 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE]


def mtbf() -> Mtbf:
    """Return the mean time between the failures of a GPU."""
    return Mtbf(worker=TIME * GPUS / UNEXPECTED)


def expected_share(interval: float, restart: float) -> float:
    """Return the share of the 54 days that is training that lasts, by Daly's formula."""
    between = mtbf().of_job(GPUS, 0)
    makespan = expected_makespan(1.0, interval, CHECKPOINT, restart, between)
    return (1 - PLANNED * restart / TIME) / makespan


def simulated_share(interval: float, restart: float, seed: int) -> float:
    """Return the same of one simulated run."""
    events = with_rollbacks(
        lambda life: _iterations(),
        failure_instants(mtbf(), GPUS, 0, seed),
        workers=1,
        tensors=1,
        restart=restart,
        interval=interval,
        cost=CHECKPOINT,
    )
    end, made, saved = (TIME - PLANNED * restart) * 1e12, 0, 0
    for event in events:
        if isinstance(event, Schedule):
            in_time = event.updates[event.updates["time"] <= end]
            made = max(made, int(in_time["version"].max(initial=0)))
            if len(in_time) < len(event.updates):
                break
        elif event.end > end:
            break
        elif isinstance(event, Checkpoint):
            saved = made
        else:
            made = saved
    return made * ITERATION / TIME


def longest_restart(interval: float, share: float) -> float:
    """Return the seconds that a restart may take for so large an effective share; 0: none may."""
    low, high = 0.0, TIME / UNEXPECTED
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_share(interval, middle) > share else (low, middle)
    return low


def _iterations(block: int = 2048) -> Iterator[Schedule]:
    """Yield iterations of the whole job, without end: each reads at its begin what it updates."""
    length = np.int64(round(ITERATION * 1e12))
    first = 0
    while True:
        numbers = np.arange(first, first + block)
        reads, updates, steps = (np.zeros(block, dtype) for dtype in (READ, UPDATE, STEP))
        # What is read as an iteration ends belongs to that instant: the first read is at 0.
        reads["step"] = reads["version"] = numbers + 1
        reads["time"] = updates["time"] = steps["end"] = (numbers + 1) * length
        updates["step"] = updates["read"] = steps["step"] = numbers
        updates["version"] = numbers + 1
        steps["begin"], steps["accepted"] = numbers * length, 1
        if first == 0:
            reads = np.concatenate([np.zeros(1, READ), reads])
        first += block
        yield Schedule(reads, updates, steps, int(first * length), 0, {})


def main() -> None:
    between = mtbf()
    best = daly_interval(CHECKPOINT, between.of_job(GPUS, 0))
    budget = 0.1 * TIME / (UNEXPECTED + PLANNED)
    print(
        f"A GPU fails every {between.worker / DAY:,.0f} days, so the job every "
        f"{between.of_job(GPUS, 0) / 3600:.2f} h. For 90 % effective time, an interruption may "
        f"cost {budget / MINUTE:.1f} min, checkpoints included.\n"
        f"A checkpoint takes at most {CHECKPOINT:.0f} s; Daly's interval is "
        f"{best / MINUTE:.1f} min.\n"
    )
    print("Effective share, by Daly's formula, and the longest restart with which it is 90 %:")
    names = "".join(f"{format_duration(restart):>8}" for restart in RESTARTS)
    print(f"  checkpoint every | restart{names} | longest")
    for interval in sorted([best, *INTERVALS]):
        shares = "".join(f"{expected_share(interval, each):>8.1%}" for each in RESTARTS)
        longest = longest_restart(interval, 0.9)
        print(f"  {interval / MINUTE:>12.1f} min |        {shares} | {longest / MINUTE:>4.1f} min")
    print("\nSimulated, every GPU failing by itself, 3 runs each, checkpoints as Daly suggests:")
    for restart in RESTARTS[::2]:
        found = [simulated_share(best, restart, seed) for seed in range(3)]
        print(
            f"  restart {format_duration(restart):>6}: {mean(found):.1%} +- {stdev(found):.1%} "
            f"(formula {expected_share(best, restart):.1%})"
        )


if __name__ == "__main__":
    main()
