"""Asynchronous algorithms against plain loops written from the papers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import asynchronous
import numpy as np
import pytest
import torch
import yaml
from asynchronous import Job
from metric_rows import series
from small_network import data, initial
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from paracosm.models.shards import BatchSampler
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.training import TrainConfig, TrainingResult, train

SEED, UPDATES, BATCH, LR = 4, 60, 4, 0.2
SPEEDS = (1.0, 1.37, 0.29, 2.41)


def run(tmp_path: Path, algorithm: str, servers: int = 1, **arguments: Any) -> TrainingResult:
    cluster = tmp_path / "cluster.yaml"
    content = {
        "topology": "star" if servers else "switch",
        "workers": [{"count": 1, "speed": speed} for speed in SPEEDS],
        "servers": servers,
    }
    cluster.write_text(yaml.safe_dump(content))
    given = {
        "model": "small_network:model",
        "data": "small_network:data",
        "batch": BATCH,
        "lr": LR,
        "algorithm": algorithm,
        "cluster": str(cluster),
        "updates": UPDATES,
        "compute": "1s",
        "evaluate_every": UPDATES,
        "lookahead": "off",
        **arguments,
    }
    return train(TrainConfig.model_validate(given), SEED)


def job() -> Job:
    x, y = (torch.from_numpy(each) for each in data()[:2])
    module = initial(integer_seed(SEED, TrainingStream.MODEL))

    def gradient(at: Tensor, batch: np.ndarray) -> Tensor:
        vector_to_parameters(at, module.parameters())
        chosen = torch.from_numpy(batch)
        loss = cross_entropy(module(x[chosen]), y[chosen])
        return parameters_to_vector(torch.autograd.grad(loss, list(module.parameters())))

    def batches(worker: int) -> Iterator[np.ndarray]:
        rng = generator(SEED, TrainingStream.BATCHES, worker)
        sampler = BatchSampler(np.arange(len(x)), BATCH, rng)
        return (sampler.next() for _ in count())

    start = parameters_to_vector(module.parameters()).detach()
    workers = range(len(SPEEDS))
    return Job(start, gradient, [batches(w) for w in workers], [1 / s for s in SPEEDS], LR)


def neighbour() -> Callable[[int], int]:
    """Return who is asked next, as the run draws it."""
    streams = [generator(SEED, TrainingStream.NEIGHBOURS, each) for each in range(len(SPEEDS))]
    return lambda asking: (1, 3)[int(streams[asking].integers(2))]


CASES: dict[str, Callable[[], Tensor]] = {
    "dc-asgd-a": lambda: asynchronous.dc_asgd_a(job(), UPDATES, 2.0, 0.95),
    "dc-asgd-a(strength=0.5, decay=0.5)": lambda: asynchronous.dc_asgd_a(job(), UPDATES, 0.5, 0.5),
    "easgd": lambda: asynchronous.easgd(job(), UPDATES, 4, 0.9 / 4),
    "easgd(period=1, elasticity=0.3)": lambda: asynchronous.easgd(job(), UPDATES, 1, 0.3),
    "easgd(period=2)": lambda: asynchronous.easgd(job(), UPDATES, 2, 0.9 / 4),
    "ssp(slack=0, cache=true)": lambda: asynchronous.ssp_with_cache(job(), UPDATES, 0)[0],
    "ssp(slack=3, cache=true)": lambda: asynchronous.ssp_with_cache(job(), UPDATES, 3)[0],
}


def close(ours: Any, theirs: Tensor) -> bool:
    assert not torch.allclose(theirs, job().initial, atol=0.05), "nothing has been learnt"
    return torch.allclose(ours, theirs, atol=2e-5)


@pytest.mark.parametrize("algorithm", CASES)
def test_the_parameters_are_those_of_the_plain_program(algorithm: str, tmp_path: Path) -> None:
    assert close(run(tmp_path, algorithm).parameters, CASES[algorithm]())


@pytest.mark.parametrize("servers", [1, 2])
def test_a_correction_by_element_does_not_depend_on_servers(servers: int, tmp_path: Path) -> None:
    made = run(tmp_path, "dc-asgd-a", servers).parameters
    if servers == 1:
        assert close(made, CASES["dc-asgd-a"]())
    else:  # another order of the tensors
        theirs = CASES["dc-asgd-a"]()
        assert torch.allclose(made.sort().values, theirs.sort().values, atol=2e-5)


@pytest.mark.parametrize("threshold", [1, 2, 3, 7])
@pytest.mark.parametrize("stop", [False, True])
def test_ringmaster_ignores_or_stops_what_is_too_old(
    threshold: int, stop: bool, tmp_path: Path
) -> None:
    theirs, lost = asynchronous.ringmaster(job(), UPDATES, threshold, stop)
    result = run(tmp_path, f"ringmaster(threshold={threshold}, stop={stop})")
    assert close(result.parameters, theirs)
    # The last answers stop some workers, as the run ends.
    assert lost <= result.summary.dropped < lost + (len(SPEEDS) if stop else 1)
    assert max(row.value for row in series(result, "staleness")) < threshold


@pytest.mark.parametrize("size", [1, 4, 9])
def test_rennala_gathers_gradients_at_one_point(size: int, tmp_path: Path) -> None:
    theirs, lost = asynchronous.rennala(job(), UPDATES // 3, size)
    result = run(tmp_path, f"rennala({size})", updates=UPDATES // 3)
    assert close(result.parameters, theirs)
    assert result.summary.dropped == lost
    assert {row.value for row in series(result, "staleness")} == {0}


def test_ad_psgd_averages_while_it_computes(tmp_path: Path) -> None:
    theirs = asynchronous.ad_psgd(job(), UPDATES, neighbour())
    assert close(run(tmp_path, "ad-psgd", servers=0).parameters, theirs)


def test_a_cache_saves_answers() -> None:
    """A worker whose cache is as new as its clock waits for none for `slack` clocks."""
    waits = {}
    for cache in (False, True):
        config = TrainConfig.model_validate(
            {
                "algorithm": f"ssp(slack=3, cache={cache})",
                "workers": 4,
                "updates": UPDATES,
                "compute": "1s",
                "latency": "1ms",
                "timing_only": True,
                "timeline": True,
            }
        )
        timeline = train(config).timeline
        assert timeline is not None
        spans = [span for span in timeline.spans if span.node.startswith("worker")]
        waits[cache] = len([span for span in spans if span.resource == "wait"])
    assert waits[False] == UPDATES
    assert UPDATES / 4 <= waits[True] <= UPDATES / 3
