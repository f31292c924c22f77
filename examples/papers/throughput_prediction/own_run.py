"""A job of our own on this machine: profiled with one worker, then predicted and measured.

Processes of PyTorch, each in a network namespace, train a small network; the server's links are
shaped, and computing is waiting, as on an accelerator, so that two cores serve six workers.

    python own_run.py                     # five minutes
    python own_run.py --quick             # one and a half
    python own_run.py --again measured    # table and figure of what was measured before
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from own_table import compare, draw, load_measured, save_measured, write_table

from paracosm.errors import InputError
from paracosm.profiling.jobs import save_job_profile
from paracosm.profiling.jobs.pytorch import JobOptions, Node
from paracosm.profiling.processes import WorkerError

sys.path.append(str(Path(__file__).parents[2] / "time_to_accuracy"))
sys.path.append(str(Path(__file__).parents[3] / "benchmarks" / "accuracy"))

from real_training import RecordedRun, Training, real_training
from shaped_network import (
    INSIDE,
    build,
    may_shape,
    prepare_namespaces,
    put_first,
    set_queues,
    start_inside,
)

HERE = Path(__file__).parent
WAITING = (0.15, 0.3)  # seconds of the forward and the backward pass
DROPPING = (3, 5)  # numbers of workers that are also measured with short queues
UNSHAPED = (
    "Namespaces cannot be made here, so the job ran on the loopback, which is as fast as memory: "
    "workers hardly meet on it, and the errors below say nothing about shared links."
)


def main() -> int:
    """Measure, predict and compare; return the exit code."""
    options = _options()
    try:
        if options.again is None:
            if not os.environ.get(INSIDE) and may_shape():
                start_inside(sys.argv)
            _measure(options)
        folder = options.out if options.again is None else options.again
        measured = load_measured(folder)
        print(measured["network"], measured["environment"], sep="\n")
        rows = compare(measured, folder / "job.profile")
        print(write_table(rows))
        options.out.mkdir(parents=True, exist_ok=True)
        draw(rows, options.out / "own_run.png")
        print(options.out / "own_run.png")
    except (InputError, WorkerError) as error:
        print(f"own_run.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter measurements")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="of an earlier measurement")
    parser.add_argument("--out", type=Path, default=Path("runs/own_run"), help="folder to write")
    parser.add_argument("--rate", type=float, default=200.0, help="Mbit/s of the links (200)")
    return parser.parse_args()


def _measure(options: argparse.Namespace) -> None:
    workers = (2, 4, 6) if options.quick else (1, 2, 3, 4, 5, 6)
    shaped = bool(os.environ.get(INSIDE))
    nodes: tuple[Node, ...] = ()
    if shaped:
        prepare_namespaces()
        nodes = build(1, max(workers), options.rate)
    job_options = JobOptions(
        f"{HERE / 'own_model.py'}:make_model", batch=1, waiting=WAITING, nodes=nodes
    )
    options.out.mkdir(parents=True, exist_ok=True)
    _say(f"starting a server and {max(workers)} workers")
    with real_training(job_options, max(workers)) as job:
        first = put_first(job.pids)
        _say("profiling one worker")
        profile = job.profile(15 if options.quick else 30)
        save_job_profile(profile, options.out / "job.profile")
        step = float((profile.step_end - profile.step_begin).mean())
        measured = {
            "network": _network(options.rate, shaped),
            "environment": f"{profile.provenance['environment']}, {os.cpu_count()} cores, "
            f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}, "
            f"{'real-time priority' if first else 'usual priority'}",
            "bandwidth": profile.bandwidth,
            "goodput": profile.provenance["goodput"],
            "runs": _runs(job, workers, step, options.quick, shaped),
        }
    save_measured(measured, options.out)


def _runs(
    job: Training, workers: tuple[int, ...], step: float, quick: bool, shaped: bool
) -> list[dict[str, Any]]:
    """Measure windows of every number of workers, from a common and from a staggered start.

    Where queues can be made short as well, packets are then dropped, to see what that changes.
    """
    plan = [(number, "staggered", "long") for number in workers]
    if not quick:
        plan += [(number, "together", "long") for number in workers if number > 1]
        plan += [(number, "together", "short") for number in DROPPING if shaped]
    runs = []
    for number, start, queues in plan:
        _say(f"{number} workers, start {start}, {queues} queues")
        if shaped:
            set_queues(1, max(workers), queues)
        stagger = step / number if start == "staggered" else 0.0
        run = job.train(number, seconds=9.0 if quick else 18.0, stagger=stagger)
        runs.append({"start": start, "queues": queues, **_written(run)})
    return runs


def _written(run: RecordedRun) -> dict[str, Any]:
    """Return begins and ends of the steps, from the first begin, and what else is kept."""
    steps, facts = run.schedule.steps, run.facts
    own = [steps[steps["worker"] == worker] for worker in range(facts["workers"])]
    first = steps["begin"].min()
    return {
        "W": facts["workers"],
        "seconds": facts["seconds"],
        "stagger_s": facts["stagger"],
        "load": facts["load"],
        "cpu_workers_s": facts["cpu_seconds"][facts["servers"] :],
        "start_ms": [((each["begin"] - first) / 1e9).tolist() for each in own],
        "end_ms": [((each["end"] - first) / 1e9).tolist() for each in own],
    }


def _network(rate: float, shaped: bool) -> str:
    if not shaped:
        return UNSHAPED
    return f"Namespaces on a bridge, every node's link shaped to {rate:g} Mbit/s each way"


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
