"""Real trainings on the loopback: schedules that count right, and say what made the parameters."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from real_training import RecordedRun, Training, load_run, real_training
from training_on_schedule import train_plainly

from paracosm.errors import InputError
from paracosm.graphs.capture.step import load_workload
from paracosm.models.build import build_model
from paracosm.models.data_sets import DataSet, load_data
from paracosm.models.registry import Model
from paracosm.models.shards import BatchSampler
from paracosm.profiling.jobs.pytorch import JobOptions
from paracosm.profiling.processes import WorkerError
from paracosm.rng import TrainingStream, generator, integer_seed

MODEL, BATCH, SEED, LR = "mlp(hidden=12, layers=1)", 8, 5, 0.3
WORKERS, STEPS = 2, 12
TENSORS = ("layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias")
ALGORITHMS = ("asgd", "staleness-aware", "ssp(slack=1)", "ssgd", "ddp")


@dataclass
class Runs:
    """One job of two servers, which trains by one algorithm after another."""

    job: Training
    done: dict[str, RecordedRun]

    def __getitem__(self, algorithm: str) -> RecordedRun:
        if algorithm not in self.done:
            self.done[algorithm] = self.job.train(
                WORKERS, steps=STEPS, snapshot_every=0.05, algorithm=algorithm
            )
        return self.done[algorithm]


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    options = JobOptions(
        MODEL,
        data="digits",
        batch=BATCH,
        servers=2,
        lr=LR,
        seed=SEED,
        waiting=(0.002, 0.004),
        noise=0.2,
        timeout=300,
    )
    with real_training(options, WORKERS) as job:
        yield Runs(job, {})


@pytest.fixture(scope="module")
def data() -> DataSet:
    return load_data("digits")


def initial(data: DataSet) -> Model:
    """The model with which `train` begins for the seed."""
    return build_model(MODEL, data, integer_seed(SEED, TrainingStream.MODEL), BATCH)


def batches(data: DataSet) -> list[list[np.ndarray]]:
    """By worker and step, the examples that `train` draws for the seed."""
    every = np.arange(len(data.train_x))
    streams = [generator(SEED, TrainingStream.BATCHES, worker) for worker in range(WORKERS)]
    samplers = [BatchSampler(every, BATCH, stream) for stream in streams]
    return [[sampler.next() for _ in range(STEPS)] for sampler in samplers]


def flat(tensors: dict[str, torch.Tensor]) -> np.ndarray:
    return torch.cat([tensors[name].detach().flatten() for name in TENSORS]).numpy()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_read_has_the_version_that_as_many_updates_have_made(runs: Runs, algorithm: str) -> None:
    schedule = runs[algorithm].schedule
    assert schedule.tensors == TENSORS
    assert len(schedule.reads) == WORKERS * STEPS * len(TENSORS)
    read = {}
    for time, worker, step, tensor, version in schedule.reads.tolist():
        own = schedule.updates[schedule.updates["tensor"] == tensor]
        assert version == len(np.unique(own["time"][own["time"] < time]))
        read[worker, step, tensor] = version
    for _, worker, step, tensor, version, its in schedule.updates.tolist():
        assert read[worker, step, tensor] == its < version
    assert (np.diff(schedule.reads["time"]) >= 0).all()
    assert (np.diff(schedule.updates["time"]) >= 0).all()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_gradient_is_part_of_one_update(runs: Runs, algorithm: str) -> None:
    run = runs[algorithm]
    schedule = run.schedule
    made = Counter((w, s, t) for _, w, s, t, _, _ in schedule.updates.tolist())
    each = {(w, s, t) for w in range(WORKERS) for s in range(STEPS) for t in range(len(TENSORS))}
    assert made == dict.fromkeys(each, 1)
    assert schedule.dropped == 0
    pushes = WORKERS if algorithm in ("ssgd", "ddp") else 1
    assert schedule.updates["version"].max() == WORKERS * STEPS // pushes
    assert schedule.steps["accepted"].all()
    assert [len(losses) for losses in run.losses] == [STEPS] * WORKERS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_schedule_alone_gives_losses_and_parameters(
    runs: Runs, data: DataSet, algorithm: str
) -> None:
    run, model, drawn = runs[algorithm], initial(data), batches(data)
    begin = flat(dict(model.module.named_parameters()))
    assert np.array_equal(run.snapshots[0], begin)
    aware = algorithm == "staleness-aware"
    losses, last = train_plainly(
        model.module,
        model.loss,
        data.train_x,
        data.train_y,
        lambda worker, step: drawn[worker][step],
        run.schedule.reads.tolist(),
        run.schedule.updates.tolist(),
        TENSORS,
        LR,
        (lambda staleness: 1 / max(1, staleness)) if aware else (lambda staleness: 1.0),
    )
    for worker, its in enumerate(run.losses):
        expected = [losses[worker, step] for step in range(STEPS)]
        assert its == pytest.approx(expected, abs=1e-5)
    assert run.snapshots[-1] == pytest.approx(flat(last), abs=1e-5)
    assert np.abs(run.snapshots[-1] - begin).max() > 0.01


@pytest.mark.parametrize("algorithm", ["ssgd", "ddp"])
def test_synchronous_workers_are_one_with_all_their_batches(
    runs: Runs, data: DataSet, algorithm: str
) -> None:
    model, drawn = initial(data), batches(data)
    descent = torch.optim.SGD(model.module.parameters(), LR)
    for step in range(STEPS):
        chosen = np.concatenate([drawn[worker][step] for worker in range(WORKERS)])
        descent.zero_grad()
        model.loss(model.module(data.train_x[chosen]), data.train_y[chosen]).backward()
        descent.step()
    run = runs[algorithm]
    expected = flat(dict(model.module.named_parameters()))
    assert run.snapshots[-1] == pytest.approx(expected, abs=1e-5)
    assert (run.schedule.staleness == 0).all()


def test_nobody_is_further_ahead_than_the_slack(runs: Runs) -> None:
    """Worker 1 begins late: worker 0 may read for steps 0 and 1, and then has to wait."""
    run = runs.job.train(2, steps=6, stagger=0.3, algorithm="ssp(slack=1)")
    schedule = run.schedule
    first = schedule.reads["time"][schedule.reads["worker"] == 1].min()
    before = schedule.reads[schedule.reads["time"] < first]
    assert before["step"].max() == 1
    for time, worker, step, tensor, _ in schedule.reads.tolist():
        # A server counts the steps of which it has applied all gradients of its own tensors.
        rows = schedule.updates[schedule.updates["worker"] == 1 - worker]
        rows = rows[(rows["tensor"] % 2 == tensor % 2) & (rows["time"] < time)]
        ended = Counter(rows["step"].tolist())
        assert step - sum(count == 2 for count in ended.values()) <= 1


def test_a_run_is_read_as_it_was_written(
    runs: Runs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for algorithm in ALGORITHMS:
        run = runs[algorithm]
        folder = tmp_path_factory.mktemp("run")
        run.save(folder)
        again = load_run(folder)
        for name in ("reads", "updates", "steps"):
            assert np.array_equal(getattr(again.schedule, name), getattr(run.schedule, name))
        assert again.schedule.tensors == TENSORS
        assert again.schedule.end == run.schedule.end
        assert np.array_equal(again.snapshot_times, run.snapshot_times)
        for one, other in zip(again.losses, run.losses, strict=True):
            assert np.array_equal(one, other)
        assert again.facts["algorithm"] == algorithm


def test_snapshots_are_taken_at_their_times(runs: Runs) -> None:
    run = runs.job.train(1, seconds=0.5, snapshot_every=0.1)
    assert len(run.snapshots) == len(run.snapshot_times) >= 5
    late = run.snapshot_times[:5] / 1e12 - np.arange(5) * 0.1
    assert late.min() >= 0
    assert late.max() < 0.1


PLAIN = JobOptions("mlp", shape=(6,), batch=4, lr=0.1, waiting=(0.006, 0.012), timeout=300)
MILLISECOND = 10**9  # picoseconds


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Training]:
    with real_training(PLAIN, 2) as job:
        yield job


@pytest.mark.slow
def test_one_worker_does_plain_gradient_descent_to_the_bit(
    two_workers: Training,
) -> None:
    losses = two_workers.train(1, steps=4).losses[0].tolist()
    torch.manual_seed(PLAIN.seed)
    workload = load_workload(PLAIN.capture())
    descent = torch.optim.SGD(workload.module.parameters(), PLAIN.lr)
    expected = []
    for _ in losses:
        descent.zero_grad()
        loss = workload.loss(workload.module(*workload.inputs))
        loss.backward()
        expected.append(float(loss.detach()))
        descent.step()
    assert len(losses) == 4
    assert losses == expected
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_workers_begin_one_after_the_other_and_end_after_their_seconds(
    two_workers: Training,
) -> None:
    run = two_workers.train(2, seconds=0.6, stagger=0.3)
    steps = run.schedule.steps
    for worker, earliest in ((0, 0), (1, 300)):
        own = steps[steps["worker"] == worker]
        # The clock is read between two steps: only the last may begin, or end, after the time.
        assert (own["end"][:-1] < 600 * MILLISECOND).all()
        assert own["begin"].min() >= earliest * MILLISECOND
        assert (own["end"] - own["begin"] >= 18 * MILLISECOND).all()  # that are waited
        assert (own["begin"][1:] >= own["end"][:-1]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"workers": 3, "steps": 1}, "workers: 3, but the job has 2"),
        ({"workers": 2}, "seconds or steps: say when the training ends"),
        ({"workers": 2, "steps": 0}, "steps: 0, but at least 1 is needed"),
        (
            {"workers": 2, "seconds": 0.5, "stagger": 0.6},
            "stagger: 0.6 s between 2 workers do not fit in 0.5 s",
        ),
        ({"workers": 1, "seconds": 1.0, "algorithm": "ddp"}, "steps: with all-reduce"),
        ({"workers": 1, "steps": 1, "algorithm": "adam"}, 'unknown algorithm of a real job "adam"'),
        ({"workers": 1, "steps": 1, "snapshot_every": 0.0}, "snapshot_every: 0 s, not above 0"),
    ],
)
def test_a_training_that_cannot_be_is_refused(
    two_workers: Training, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        two_workers.train(**how)
    assert message in str(refused.value)


@contextmanager
def death_of(job: Training, number: int) -> Iterator[None]:
    """End a process of the job a little later."""
    killing = threading.Timer(0.3, os.kill, (job.pids[number], signal.SIGKILL))
    killing.start()
    yield
    killing.join()


# This one ends the job of the fixture: it comes after all that use it.
@pytest.mark.slow
def test_a_worker_that_dies_is_named_in_one_line(two_workers: Training) -> None:
    with (
        death_of(two_workers, 2),
        pytest.raises(WorkerError, match=r"^worker 1 was ended by SIGKILL$"),
    ):
        two_workers.train(2, seconds=30)
