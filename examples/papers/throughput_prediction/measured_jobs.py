"""Jobs that were profiled with one worker and measured with several."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.cluster import Link, star
from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.config import WINDOW, Ports, Settings, ports_of
from paracosm.prediction.parameter_servers.target import TargetJob, target_job
from paracosm.prediction.parameter_servers.throughput import rate_after_start
from paracosm.profiling.jobs import JobProfile, load_job_profile
from paracosm.profiling.jobs.job_profile import without_interrupted

__all__ = ["SEED", "MeasuredJob", "Run", "link_ports", "measured_jobs"]

Floats = npt.NDArray[np.float64]

SEED = 1
SMALL = Path(__file__).parents[3] / "tests" / "data" / "psthroughput"
SMALL_GOODPUT = 191.5e6 / 8  # bytes/s, as its README says
OWN = Path(__file__).parent / "measured"


@dataclass(frozen=True)
class Run:
    """One measured run.

    Attributes:
        workers: their number.
        seconds: its length.
        stagger: worker i began i times so many seconds later; 0: all together.
        begins, ends: of the steps of each worker, in seconds.
    """

    workers: int
    seconds: float
    stagger: float
    begins: tuple[Floats, ...]
    ends: tuple[Floats, ...]

    @property
    def together(self) -> bool:
        """Whether all workers began at once."""
        return self.stagger == 0

    @property
    def rate(self) -> float:
        """Steps/s of all workers, without the first two steps of each."""
        return float(sum(rate_after_start(end[None], inf) for end in self.ends))


@dataclass(frozen=True, eq=False)
class MeasuredJob:
    """A job at hand.

    Attributes:
        name: of the configuration.
        about: what it is, in some words.
        profile: of one worker.
        settings: the link that it ran on, with the ports of one server.
        runs: measured ones, by number of workers.
        one_queue: whether the connections of all workers wait in one queue at the server's link,
            in which TCP shares as it happens; else each worker's has its own, served fairly.
    """

    name: str
    about: str
    profile: JobProfile
    settings: Settings
    runs: Sequence[Run]
    one_queue: bool = False

    @property
    def started_together(self) -> list[Run]:
        """Runs of several workers that began at once."""
        return [run for run in self.runs if run.together and run.workers > 1]

    def target(self, workers: int, **changes: Any) -> TargetJob:
        """Return the job with so many workers at most on its link, with other settings changed."""
        servers = changes.pop("servers", self.profile.servers)
        ports = link_ports(workers, servers, float(self.settings.ports.server[0]))
        return target_job(self.profile, replace(self.settings, ports=ports, **changes), SEED)

    def measured(self) -> dict[int, float]:
        """Return the mean steps/s of all runs, by number of workers."""
        numbers = sorted({run.workers for run in self.runs})
        return {
            number: float(np.mean([run.rate for run in self.runs if run.workers == number]))
            for number in numbers
        }


def link_ports(workers: int, servers: int, bandwidth: float) -> Ports:
    """Return nodes on a switch, all links of one bandwidth (bytes/s) and without latency."""
    return ports_of(star(workers, servers, Link(bandwidth=bandwidth)))


def measured_jobs(folder: Path | None, steps: int | None) -> list[MeasuredJob]:
    """Return the jobs of a folder, or the small one of this repository; then our own, if measured.

    Args:
        folder: with `index.json`, or the one that holds such a folder `psthroughput`.
        steps: of each worker that are simulated for a steady state; None: as `Settings` has it.

    Raises:
        InputError: there is no such folder.
    """
    jobs = [_small()] if folder is None else list(_of_folder(folder))
    if (OWN / "measured.json").is_file():
        jobs.append(_own())
    return [replace(job, settings=replace(job.settings, steps=steps)) for job in jobs]


def _of_folder(folder: Path) -> Iterator[MeasuredJob]:
    if (folder / "psthroughput" / "index.json").is_file():
        folder = folder / "psthroughput"
    index = folder / "index.json"
    if not index.is_file():
        raise InputError(
            f"--data: {index}: no such file: name the folder psthroughput of measured jobs"
        )
    for about in json.loads(index.read_text(encoding="utf-8")):
        place = folder / about["name"]
        with gzip.open(place / "runs.json.gz", "rt", encoding="utf-8") as file:
            found = json.load(file)["runs"]
        queue = {"htb": "a fair queue for each worker", "fifo": "one queue"}[about["share"]]
        yield MeasuredJob(
            name=about["name"],
            about=f"{about['model_bytes'] / 1e6:.1f} MB, {about['t_fwd'] + about['t_bwd']:g} s of "
            f"computing, {about['rate_mbit']} Mbit/s, {queue}",
            profile=without_interrupted(load_job_profile(place / "profile.json.gz")),
            settings=_settings(about["goodput_mbit"] * 1e6 / 8, WINDOW),
            runs=_sorted(_run(each) for each in found),
            one_queue=about["share"] == "fifo",
        )


def _small() -> MeasuredJob:
    run = json.loads((SMALL / "run_of_one_worker.json").read_text(encoding="utf-8"))
    return MeasuredJob(
        name="alex200_c09, 20 steps",
        about="18.8 MB, 0.9 s of computing, 200 Mbit/s, a fair queue for each worker",
        profile=without_interrupted(load_job_profile(SMALL / "profile.json.gz")),
        settings=_settings(SMALL_GOODPUT, WINDOW),
        runs=[_run(run)],
    )


def _own() -> MeasuredJob:
    measured = json.loads((OWN / "measured.json").read_text(encoding="utf-8"))
    profile = without_interrupted(load_job_profile(OWN / "job.profile"))
    carried = profile.size[profile.resource == 0].sum() / 1e6
    return MeasuredJob(
        name="our own run",
        about=f"PyTorch over gloo, {carried:.1f} MB",
        profile=profile,
        settings=_settings(measured["bandwidth"], inf),
        # Short queues drop packets, and are another link.
        runs=_sorted(_run(each) for each in measured["runs"] if each["queues"] == "long"),
    )


def _settings(bandwidth: float, window: float) -> Settings:
    return Settings(ports=link_ports(1, 1, bandwidth), window=window)


def _run(found: dict[str, Any]) -> Run:
    return Run(
        workers=found["W"],
        seconds=float(found["seconds"]),
        stagger=float(found["stagger_s"]),
        begins=tuple(np.array(each, float) / 1e3 for each in found["start_ms"]),
        ends=tuple(np.array(each, float) / 1e3 for each in found["end_ms"]),
    )


def _sorted(runs: Iterator[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.workers, run.stagger))
