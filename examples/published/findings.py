"""What each study shows, as a table, and whether what its paper found comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from paracosm.planning.gradient_noise import measure_noise, points_of_run
from paracosm.training import TrainConfig

Floats = npt.NDArray[np.float64]


class Run(NamedTuple):
    """One run of a study: what it varied with the numbers of its summary, and its metrics."""

    row: Mapping[str, Any]
    metrics: pa.Table

    @property
    def label(self) -> str:
        if "batch" in self.row:
            return f"batch {self.row['batch']}"
        return str(self.row["algorithm"])

    @property
    def reached(self) -> float:
        """The virtual time of the target, seconds; infinite where it was missed."""
        return _or_infinite(self.row.get("reached_at"))

    @property
    def rounds(self) -> float:
        """The updates to the target; infinite where it was missed."""
        return _or_infinite(self.row.get("reached_updates"))

    def curve(self) -> tuple[Floats, Floats, Floats]:
        """Return virtual times, updates and training losses."""
        rows = self.metrics.filter(pc.equal(self.metrics["name"], "loss"))
        times, updates, losses = (
            rows[name].to_numpy().astype(float) for name in ("virtual_time", "step", "value")
        )
        return times, updates, losses


@dataclass(frozen=True)
class Finding:
    """A published result: a table of the runs, and what the paper says of them."""

    paper: str
    table: Callable[[Sequence[Run]], list[str]]
    claims: Callable[[Sequence[Run]], dict[str, bool]]
    drawn: Callable[[Sequence[Run]], Sequence[Run]]
    against_time: bool


def _or_infinite(value: float | None) -> float:
    return math.inf if value is None else float(value)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


# FedProx, figure 1


def _by_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.label, []).append(run)
    return groups


def _fedprox_label(name: str, mu: int | None, stragglers: float) -> str:
    options = ["epochs=20"]
    options += [f"mu={mu}"] if mu is not None else []
    options += [f"stragglers={stragglers:g}"] if stragglers else []
    return f"{name}({', '.join(options)})"


def _of_fedprox(runs: Sequence[Run], stragglers: float) -> tuple[Floats, Floats, Floats]:
    """Return the losses of FedAvg, FedProx with mu = 0 and with mu = 1.

    Without stragglers the first two are the same, and only one is run.
    """
    by_label = {run.label: run.curve()[2] for run in runs}
    plain = by_label[_fedprox_label("fedprox", 0, stragglers)]
    proximal = by_label[_fedprox_label("fedprox", 1, stragglers)]
    if not stragglers:
        return plain, plain, proximal
    return by_label[_fedprox_label("fedavg", None, stragglers)], plain, proximal


def _roughness(losses: Floats) -> float:
    """Return by how much the loss rises from round to round, in all."""
    return float(np.clip(np.diff(losses), 0, None).sum())


def _fedprox_table(runs: Sequence[Run]) -> list[str]:
    rows = []
    for stragglers in (0.0, 0.5, 0.9):
        for name, losses in zip(
            ("FedAvg", "FedProx, mu = 0", "FedProx, mu = 1"),
            _of_fedprox(runs, stragglers),
            strict=True,
        ):
            half = losses[len(losses) // 2 :]
            rows.append(
                [
                    *(f"{stragglers:.0%}", name),
                    *(f"{losses[-1]:.3f}", f"{half.mean():.3f}", f"{_roughness(losses):.2f}"),
                ]
            )
    head = ["stragglers", "", "last loss", "mean of the second half", "sum of its rises"]
    return _table(head, rows)


def _fedprox_claims(runs: Sequence[Run]) -> dict[str, bool]:
    claims = {}
    for stragglers in (0.5, 0.9):
        fedavg, plain, proximal = _of_fedprox(runs, stragglers)
        half = len(plain) // 2
        claims[
            f"with {stragglers:.0%} stragglers FedProx of mu = 0, which keeps their work, has a "
            "lower loss than FedAvg, which drops it"
        ] = plain[half:].mean() < fedavg[half:].mean()
        claims[f"with {stragglers:.0%} stragglers mu = 1 is stabler than mu = 0"] = _roughness(
            proximal
        ) < _roughness(plain)
    _, plain, proximal = _of_fedprox(runs, 0.0)
    claims["without stragglers mu = 1 is stabler than FedAvg"] = _roughness(proximal) < _roughness(
        plain
    )
    return claims


# FedBuff, efficiency under half-normal training times


def _best(runs: Sequence[Run], key: Callable[[Run], float]) -> tuple[float, list[Run]]:
    """Return the learning rate with the least mean, and its runs."""
    by_rate: dict[float, list[Run]] = {}
    for run in runs:
        by_rate.setdefault(run.row["lr"], []).append(run)
    rate = min(by_rate, key=lambda lr: mean(map(key, by_rate[lr])))
    return rate, by_rate[rate]


def _participations(run: Run) -> float:
    return float(pc.sum(pc.equal(run.metrics["name"], "client")).as_py())


def _fedbuff_best(runs: Sequence[Run]) -> dict[str, tuple[float, list[Run]]]:
    return {
        label: _best(group, lambda run: run.reached) for label, group in _by_label(runs).items()
    }


def _fedbuff_table(runs: Sequence[Run]) -> list[str]:
    rows = []
    for name, (rate, best) in _fedbuff_best(runs).items():
        rows.append(
            [
                *(f"`{name}`", f"{rate:g}"),
                f"{mean(run.reached for run in best):.1f}",
                f"{mean(run.rounds for run in best):,.0f}",
                f"{mean(map(_participations, best)):,.0f}",
                f"{mean(run.row['mean_staleness'] for run in best):.1f}",
            ]
        )
    head = ["", "best lr", "s to the target", "updates", "client updates in all", "staleness"]
    return _table(head, rows)


def _fedbuff_claims(runs: Sequence[Run]) -> dict[str, bool]:
    best = [group for _, group in _fedbuff_best(runs).values()]
    times = [mean(run.reached for run in group) for group in best]
    work = [mean(map(_participations, group)) for group in best]
    *others, fedbuff = times
    fedavg, chosen, fedasync = (time / fedbuff for time in others)
    return {
        "all reach the target": max(times) < math.inf,
        f"FedBuff is faster than rounds of all 50 clients ({fedavg:.1f} times)": fedavg > 1,
        f"and than rounds of the first 38 of 50 ({chosen:.1f} times)": chosen > 1,
        f"FedBuff is faster than FedAsync ({fedasync:.2f} times)": fedasync > 1,
        "and needs fewer client updates than each of them": work[-1] < min(work[:-1]),
    }


# AdaComm, error against run time


def _loss_at(run: Run, time: float) -> float:
    """Return the mean training loss of the evaluations in the last 40 % of a time."""
    times, _, losses = run.curve()
    return float(losses[(times > 0.6 * time) & (times <= time)].mean())


_EARLY, _LATE = 4.0, 60.0


def _adacomm_table(runs: Sequence[Run]) -> list[str]:
    rows = []
    for label, group in _by_label(runs).items():
        rows.append(
            [f"`{label}`"]
            + [f"{mean(_loss_at(run, time) for run in group):.4f}" for time in (_EARLY, _LATE)]
            + [f"{mean(run.row['updates'] for run in group):,.0f}"]
        )
    return _table(["", f"loss until {_EARLY:g} s", f"until {_LATE:g} s", "means"], rows)


def _adacomm_claims(runs: Sequence[Run]) -> dict[str, bool]:
    early, late = (
        {
            label: mean(_loss_at(run, time) for run in group)
            for label, group in _by_label(runs).items()
        }
        for time in (_EARLY, _LATE)
    )
    seldom, always, adaptive = (
        next(label for label in early if label.startswith(start))
        for start in ("local-sgd(steps=64", "local-sgd(steps=1)", "adacomm")
    )
    return {
        "seldom averaging falls faster at first than averaging at every step": early[seldom]
        < early[always],
        "but ends at a higher loss": late[seldom] > late[always],
        "AdaComm begins like the first": early[adaptive] < early[always],
        "and ends below every fixed period": late[adaptive]
        < min(loss for label, loss in late.items() if label != adaptive),
    }


# Staleness-aware SGD, softsync


def _of_softsync(label: str) -> tuple[bool, int]:
    """Return whether steps are divided by staleness, and n, of 30 workers."""
    if label == "ssgd":
        return True, 0
    if label.startswith("softsync"):
        return True, int(label.removeprefix("softsync(n=").rstrip(")"))
    return False, 30 // int(label.partition("buffer=")[2].partition(",")[0])


def _accuracies(runs: Sequence[Run]) -> dict[tuple[bool, int], float]:
    return {
        _of_softsync(label): mean(run.row["final_accuracy"] for run in group)
        for label, group in _by_label(runs).items()
    }


def _staleness_table(runs: Sequence[Run]) -> list[str]:
    accuracies = _accuracies(runs)
    stale = {
        _of_softsync(label): mean(run.row["mean_staleness"] for run in group)
        for label, group in _by_label(runs).items()
    }
    rows = [["synchronous", "0", f"{accuracies[True, 0]:.1%}", ""]]
    for n in sorted({n for _, n in accuracies if n}):
        rows.append(
            [f"{n}-softsync", f"{stale[True, n]:.1f}"]
            + [f"{accuracies[divided, n]:.1%}" for divided in (True, False)]
        )
    return _table(["", "mean staleness", "lr / staleness", "lr not divided"], rows)


def _staleness_claims(runs: Sequence[Run]) -> dict[str, bool]:
    accuracies = _accuracies(runs)
    divided = [accuracy for (is_divided, n), accuracy in accuracies.items() if is_divided and n]
    plain = {n: accuracies[False, n] for is_divided, n in accuracies if not is_divided}
    most = max(plain)
    return {
        "with lr / staleness every n is as accurate as synchronous SGD, within 3 points": min(
            divided
        )
        > accuracies[True, 0] - 0.03,
        f"without the division {most}-softsync does not learn": plain[most] < 0.3,
        "and 1-softsync, whose staleness is 1, is as good with and without": abs(
            accuracies[True, 1] - plain[1]
        )
        < 0.03,
    }


# SCAFFOLD, rounds over similarity


_SIMILAR = {"none": "0 %", "tenth": "10 %", "all_alike": "100 %"}


def _rounds(runs: Sequence[Run]) -> dict[tuple[str, int, str], float]:
    """Return the rounds with the best learning rate, by algorithm, epochs and similarity."""
    rounds: dict[tuple[str, int, str], float] = {}
    for run in runs:
        name, _, epochs = run.label.rstrip(")").partition("(epochs=")
        key = name, int(epochs), str(run.row["shards"]).rpartition(":")[2]
        rounds[key] = min(rounds.get(key, math.inf), run.rounds)
    return rounds


def _scaffold_table(runs: Sequence[Run]) -> list[str]:
    rounds = _rounds(runs)
    rows = [
        [name, str(epochs), *(f"{rounds[name, epochs, shards]:g}" for shards in _SIMILAR)]
        for name in ("fedavg", "scaffold")
        for epochs in sorted({key[1] for key in rounds})
    ]
    return _table(["rounds at a similarity of", "epochs", *_SIMILAR.values()], rows)


def _scaffold_claims(runs: Sequence[Run]) -> dict[str, bool]:
    rounds = _rounds(runs)
    most = max(key[1] for key in rounds)
    several = sorted({key[1] for key in rounds} - {1})
    return {
        "SCAFFOLD needs no more rounds than FedAvg where labels differ and epochs are several": all(
            rounds["scaffold", epochs, shards] <= rounds["fedavg", epochs, shards]
            for epochs in several
            for shards in ("none", "tenth")
        ),
        f"with {most} epochs FedAvg needs more rounds the less similar clients are": rounds[
            "fedavg", most, "none"
        ]
        > rounds["fedavg", most, "tenth"]
        > rounds["fedavg", most, "all_alike"],
        "where clients are alike more epochs save rounds": all(
            rounds[name, most, "all_alike"] < rounds[name, 1, "all_alike"]
            for name in ("fedavg", "scaffold")
        ),
    }


# Gradient noise, updates over batch sizes


def _fewest(runs: Sequence[Run]) -> dict[int, Run]:
    """Return for each batch size the run whose learning rate needs the fewest updates."""
    fewest: dict[int, Run] = {}
    for run in runs:
        batch = run.row["batch"]
        if batch not in fewest or run.rounds < fewest[batch].rounds:
            fewest[batch] = run
    return fewest


@cache
def _noise_scale(batch: int, lr: float, updates: int, seed: int) -> float:
    """Return the noise scale of gradients on the way of a run, examples."""
    config = TrainConfig.model_validate({"algorithm": "sequential", "batch": batch, "lr": lr})
    points = measure_noise(config, seed, points_of_run(updates))
    # Means over the run: each point stands for the updates until the next.
    spans = np.diff([*points_of_run(updates), updates])
    signal, variance = spans @ np.array(points)
    return float(variance / signal)


def _predicted(runs: Sequence[Run]) -> tuple[float, dict[int, float]]:
    """Return the noise scale on the way of the smallest batch, and the updates that it predicts."""
    fewest = _fewest(runs)
    least = min(fewest)
    single = fewest[least]
    updates = int(single.rounds)
    scale = _noise_scale(least, single.row["lr"], updates, single.row["seed"])
    return scale, {
        batch: updates * (1 + scale / batch) / (1 + scale / least) for batch in sorted(fewest)
    }


def _batches_table(runs: Sequence[Run]) -> list[str]:
    fewest = _fewest(runs)
    scale, predicted = _predicted(runs)
    rows = [
        [
            *(str(batch), f"{fewest[batch].row['lr']:g}"),
            *(f"{fewest[batch].rounds:,.0f}", f"{updates:,.0f}"),
            f"{batch * fewest[batch].rounds:,.0f}",
        ]
        for batch, updates in predicted.items()
    ]
    head = ["batch", "best lr", "updates", f"predicted (noise scale {scale:.0f})", "examples"]
    return _table(head, rows)


def _batches_claims(runs: Sequence[Run]) -> dict[str, bool]:
    updates = {batch: run.rounds for batch, run in _fewest(runs).items()}
    _, predicted = _predicted(runs)
    least, most = min(updates), max(updates)
    worst = max(
        max(updates[batch] / predicted[batch], predicted[batch] / updates[batch])
        for batch in updates
    )
    return {
        "larger batches need fewer updates": updates[most] < updates[least],
        "but more examples": most * updates[most] > least * updates[least],
        f"the noise scale predicts the updates within a factor of 2 ({worst:.2f})": worst < 2,
    }


def _of_first_seed(runs: Sequence[Run]) -> list[Run]:
    least = min(run.row["seed"] for run in runs)
    return [run for run in runs if run.row["seed"] == least]


def _largest_rate_of_a_tenth(runs: Sequence[Run]) -> list[Run]:
    most = max(run.row["lr"] for run in runs)
    return [run for run in runs if "tenth" in run.row["shards"] and run.row["lr"] == most]


def _best_of_first_seed(runs: Sequence[Run]) -> list[Run]:
    return [_of_first_seed(best)[0] for _, best in _fedbuff_best(runs).values()]


_KARIMIREDDY = "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning"
_WANG = "Adaptive Communication Strategies to Achieve the Best Error-Runtime Trade-off"

FINDINGS = {
    "fedprox": Finding(
        'Li et al., "Federated Optimization in Heterogeneous Networks", 2020, figure 1',
        _fedprox_table,
        _fedprox_claims,
        _of_first_seed,
        against_time=False,
    ),
    "fedbuff": Finding(
        'Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation", 2022',
        _fedbuff_table,
        _fedbuff_claims,
        _best_of_first_seed,
        against_time=True,
    ),
    "adacomm": Finding(
        f'Wang, Joshi, "{_WANG}", 2019, in kind',
        _adacomm_table,
        _adacomm_claims,
        _of_first_seed,
        against_time=True,
    ),
    "staleness_aware": Finding(
        'Zhang, Gupta, Lian, Liu, "Staleness-aware Async-SGD", 2016, figure 3 in kind',
        _staleness_table,
        _staleness_claims,
        _of_first_seed,
        against_time=True,
    ),
    "scaffold": Finding(
        f'Karimireddy et al., "{_KARIMIREDDY}", 2020, table 3 in kind',
        _scaffold_table,
        _scaffold_claims,
        _largest_rate_of_a_tenth,
        against_time=False,
    ),
    "batch_sizes": Finding(
        'McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, in kind',
        _batches_table,
        _batches_claims,
        lambda runs: [run for _, run in sorted(_fewest(runs).items())],
        against_time=False,
    ),
}
