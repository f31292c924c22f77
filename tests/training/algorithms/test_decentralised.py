"""Workers that mix what their neighbours send, against plain loops; and the weights of that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import federated
import numpy as np
import pytest
import torch
from metric_rows import series
from test_federated import CLIENTS, ROUNDS, run, task

from paracosm.errors import InputError
from paracosm.training.algorithms.mixing import mixing_weights

RING = np.array([[(abs(i - j) % 4 <= 1) / 3 for j in range(5)] for i in range(5)])
DIRECTED = np.array(  # rows add up to 1, columns do not
    [
        [0.5, 0.5, 0, 0, 0],
        [0, 0.25, 0.75, 0, 0],
        [0.1, 0, 0.4, 0.5, 0],
        [0, 0, 0, 0.2, 0.8],
        [0.3, 0.3, 0, 0, 0.4],
    ]
)


def written(path: Path, weights: np.ndarray) -> str:
    np.savetxt(path, weights, delimiter=",")
    return str(path)


def half_onward(step: int) -> np.ndarray:
    """Return the matrix of a step of the directed exponential graph, as in figure 1 of the paper:
    each worker keeps half, and sends half to the one 2^(step mod 3) places on.
    """
    return (np.eye(5) + np.roll(np.eye(5), 2 ** (step % 3), axis=0)) / 2


def flat(parameters: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in parameters])


def steps(algorithm: str, **arguments: Any) -> torch.Tensor:
    """Return the mean of all workers when each has made `ROUNDS` steps, all at one instant, before
    any has received what follows it.
    """
    arguments = {"updates": CLIENTS * ROUNDS, "compute": "1s", "latency": "1ms", **arguments}
    arguments["shards"] = "iid"
    return run(algorithm, **arguments).parameters  # type: ignore[no-any-return]


@pytest.mark.parametrize("lookahead", ["off", "auto"])
def test_d_psgd_is_what_a_plain_loop_makes_of_it(lookahead: str, tmp_path: Path) -> None:
    metropolis = np.array(
        [
            [2, 1, 1, 0, 0],
            [1, 2, 0, 1, 0],
            [1, 0, 3, 0, 0],
            [0, 1, 0, 2, 1],
            [0, 0, 0, 1, 3],
        ]
    )
    for graph, weights in (
        ("ring", RING),
        ("complete", np.full((5, 5), 0.2)),
        (written(tmp_path / "weights.csv", metropolis / 4), metropolis / 4),
    ):
        found = steps(f"d-psgd(graph={graph})", lookahead=lookahead)
        expected = flat(federated.d_psgd(task(scheme="iid"), ROUNDS, weights))
        assert torch.allclose(found, expected, rtol=1e-4, atol=2e-5), graph


@pytest.mark.parametrize("lookahead", ["off", "auto"])
def test_sgp_is_what_a_plain_loop_makes_of_it(lookahead: str, tmp_path: Path) -> None:
    graphs: dict[str, Callable[[int], np.ndarray]] = {
        "exponential": half_onward,
        "ring": lambda step: half_onward(0),
        written(tmp_path / "shares.csv", DIRECTED): lambda step: DIRECTED.T,
    }
    for graph, shares in graphs.items():
        found = steps(f"sgp(graph={graph})", lookahead=lookahead)
        expected = flat(federated.sgp(task(scheme="iid"), ROUNDS, shares))
        assert torch.allclose(found, expected, rtol=1e-4, atol=2e-5), graph


@pytest.mark.parametrize("algorithm", ["d-psgd", "d-psgd(graph=exponential)", "sgp"])
def test_what_a_worker_computes_does_not_depend_on_who_is_fast(algorithm: str) -> None:
    losses = []
    for compute in ("1s", "lognormal(1s, 1)"):
        by_worker = defaultdict(list)
        result = run(algorithm, compute=compute, updates=40, latency="50ms", bandwidth="10kB/s")
        for row in series(result, "minibatch_loss"):
            by_worker[row.node].append(row.value)
        losses.append(by_worker)
    for node, found in losses[1].items():
        both = min(len(found), len(losses[0][node]))
        assert both >= 5
        assert found[:both] == pytest.approx(losses[0][node][:both], rel=1e-4)


def test_messages_go_to_neighbours_while_gradients_are_computed() -> None:
    # 100 bytes take 1 s. On a ring two messages share a worker's port for 2 s beside a gradient
    # of 3 s; in a complete graph four take 4 s, and the step waits for them.
    common: dict[str, Any] = {"compute": "3s", "updates": 10, "timing_only": True}
    for graph, seconds, messages in (("ring", 6, 2), ("complete", 8, 4)):
        asked = {**common, "model": None, "data": None, "lr": None, "shards": None, "batch": None}
        asked |= {"algorithm": f"d-psgd(graph={graph})", "message_size": 100, "bandwidth": 100}
        result = timed({key: value for key, value in asked.items() if value is not None})
        assert result.virtual_time == pytest.approx(seconds)
        assert result.bytes_sent == 2 * 5 * messages * 100


def timed(arguments: dict[str, Any]) -> Any:
    from paracosm.training import TrainConfig, train

    return train(TrainConfig.model_validate({**arguments, "workers": 5})).summary


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (RING[:4], "it has 4 rows, and there are 5 workers"),
        (RING[:, :4], "row 0 has 4 weights, and there are 5 workers"),
        (RING + np.diag([0, 0, 0.1, 0, 0]), "row 2 adds up to 1.1: weights must be stochastic"),
        (DIRECTED, "column 0 adds up to 0.9: weights must be stochastic, each column"),
        (RING - np.roll(2 * np.eye(5), 1, axis=1), "row 0: weights are finite and not below 0"),
        (np.eye(5), "the graph is not connected: nothing of worker 0 reaches worker 1 and 3 more"),
    ],
)
def test_weights_that_cannot_be_are_refused(
    weights: np.ndarray, message: str, tmp_path: Path
) -> None:
    path = written(tmp_path / "weights.csv", weights)
    with pytest.raises(InputError, match=message):
        run(f"d-psgd(graph={path})", updates=5)


def test_a_graph_that_goes_one_way_is_refused_by_name(tmp_path: Path) -> None:
    sink = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]])
    with pytest.raises(InputError, match="nothing reaches worker 0 from worker 1 and 1 more"):
        mixing_weights("sgp", written(tmp_path / "sink.csv", sink), 3, both_ways=False)
    (tmp_path / "words.csv").write_text("1,0\n0,one\n")
    with pytest.raises(InputError, match='row 1: "one" is not a number'):
        mixing_weights("sgp", str(tmp_path / "words.csv"), 2, both_ways=False)
    for graph, message in (
        ("torus", 'ring, complete, exponential or a .csv file of weights, got "torus"'),
        ("none.csv", "none.csv: no such file"),
    ):
        with pytest.raises(InputError, match=message):
            mixing_weights("sgp", graph, 2, both_ways=False)
    with pytest.raises(InputError, match="d-psgd needs at least 2 workers, not 1"):
        run("d-psgd", workers=1)


@pytest.mark.parametrize("workers", [2, 3, 4, 7, 16])
@pytest.mark.parametrize("graph", ["ring", "complete", "exponential"])
def test_weights_of_graphs_are_stochastic(graph: str, workers: int) -> None:
    for both_ways in (True, False):
        for step in range(5):
            weights = mixing_weights("sgp", graph, workers, both_ways=both_ways, step=step)
            assert weights.sum(axis=1) == pytest.approx(1)
            assert weights.sum(axis=0) == pytest.approx(1)
    if graph != "exponential":
        return
    messages = (mixing_weights("sgp", graph, workers, both_ways=False) > 0).sum() - workers
    assert messages == workers  # one a step
