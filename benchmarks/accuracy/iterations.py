"""Table 2 of Huang et al., and a small ResNet: measured iterations beside predicted ones.

    python benchmarks/accuracy/iterations.py [--budget SECONDS] [--grid SECONDS] [--db FILE]

Each model is profiled with real iterations in between (one pinned thread, CPU time). Predicted is
the iteration (a) from the model's own ops, data cold, (w) the same with ops timed in a row, which
is the paper's way, (b) from the grid and the other models, the model's own shapes held out; and
ResNet-152 from ResNet-50's timings alone. Timings of other sessions are brought to the speed that
the machine had in the model's own, by the speed probes beside both.

The measured iteration's own p10 and p90 stand beside: no predictor is better than the machine. Then
where the rest comes from: *gaps* are the iteration less what its ops take in place, *caches* what
they take in place beyond what they take alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples" / "papers" / "offline_profiling"))

from designs import design
from families import FAMILIES, Family, families_named
from in_situ import time_in_situ
from iteration_accuracy import Accuracy, accuracy, from_others

from paracosm.graphs.capture import CaptureOptions
from paracosm.prediction.iteration import predict
from paracosm.profiling import ModelProfile, ProfileDatabase, Settings, profile, profile_model
from paracosm.profiling.allocator import restart_pinned
from paracosm.profiling.samples import OpTiming, at_one_speed, usual_probe

BATCH = 64
MAIN = (
    *("convolution", "convolution_backward", "native_batch_norm", "native_batch_norm_backward"),
    *("mm", "addmm"),
)
MODELS = {
    "resnet18": CaptureOptions("resnet18", batch=16, shape=(3, 32, 32)),
    "vgg19": CaptureOptions("vgg19", batch=BATCH, shape=(3, 32, 32)),
    "resnet50": CaptureOptions("resnet50", batch=BATCH, shape=(3, 32, 32)),
    "resnet152": CaptureOptions("resnet152", batch=BATCH, shape=(3, 32, 32)),
    "gpt-small": CaptureOptions("gpt-small", batch=8, optimizer="adamw"),
}


def main() -> None:
    restart_pinned()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--budget", type=float, default=90.0, help="seconds for each model")
    parser.add_argument("--grid", type=float, default=180.0, help="seconds for the grid")
    parser.add_argument("--db", type=Path, help="database to keep")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.db or Path(folder) / "profiles.db"
        with ProfileDatabase.open(path, create=True) as database:
            grid = time_grid(asked.grid, database)
            done = {
                name: profile_model(
                    MODELS[name], Settings(budget=asked.budget), database, in_situ=time_in_situ
                )
                for name in asked.models.split(",")
            }
    results = {name: accuracy(each, held_out_for(name, done, grid)) for name, each in done.items()}
    print(write_table(results))
    if {"resnet50", "resnet152"} <= done.keys():
        print(write_neighbour(done["resnet152"], done["resnet50"], results["resnet152"]))
    probes = sorted(probe for each in done.values() for probe in each.profile.probes)
    low, high = probes[len(probes) // 10], probes[-len(probes) // 10]
    print(f"\nspeed probe: p10 {1e3 * low:.3g} ms, p90 {1e3 * high:.3g} ms ({high / low:.2f})")


def time_grid(budget: float, database: ProfileDatabase) -> list[OpTiming]:
    """Time ops of model-like shapes: many of those that take most of the time, some of all."""
    main = [
        family.fixed({"batch": BATCH}) if has_batch(family) else family
        for family in families_named(MAIN)
    ]
    many = design("model-like", main, values=16)
    some = design("model-like", list(FAMILIES.values()), values=2)
    ops = list(dict.fromkeys((*many.ops, *some.ops)))
    return profile(ops, Settings(budget=budget), "grid model-like", database.add).timings


def has_batch(family: Family) -> bool:
    """Whether a family of ops has a batch size."""
    return any(argument.name == "batch" for argument in family.arguments)


def held_out_for(name: str, done: dict[str, ModelProfile], grid: list[OpTiming]) -> list[OpTiming]:
    """Return the grid's timings and those of the other models."""
    others = [each.profile.timings for other, each in done.items() if other != name]
    return [*grid, *(timing for timings in others for timing in timings)]


def write_table(results: dict[str, Accuracy]) -> str:
    """Return a row for each model: measured, predicted, errors, and where the rest comes from."""
    head = ("model", "measured", "p10..p90", "(a) own", "(w) warm", "(b) held out", "per op")
    rest = ("gaps", "caches", "faults")
    lines = ["".join(f"{cell:>16}" for cell in (*head, *rest))]
    for name, result in results.items():
        errors = [result.error(result.own), result.error(result.warm)]
        spread = f"{result.low / result.measured - 1:+.1%} {result.high / result.measured - 1:+.1%}"
        cells = [name, f"{1e3 * result.measured:.1f} ms", spread, *(f"{e:+.2%}" for e in errors)]
        held_out = "-" if result.held_out is None else f"{result.error(result.held_out):+.1%}"
        cells += [held_out, "-" if result.per_op is None else f"{result.per_op:.1%}"]
        for part in (result.gaps, result.caches):
            cells.append("-" if part is None else f"{part / result.measured:+.2%}")
        cells.append(f"{result.faults:,.0f}")
        lines.append("".join(f"{cell:>16}" for cell in cells))
    return "\n".join(lines)


def write_neighbour(model: ModelProfile, other: ModelProfile, result: Accuracy) -> str:
    """Say how well one model is predicted from another one's timings."""
    then = at_one_speed(other.profile.timings, usual_probe(model.profile.timings))
    estimates = from_others(model.graph, then)
    prediction = predict(model.graph, estimates)
    error = result.error(prediction.iteration_time)
    exact = prediction.coverage.get("exact", 0.0)
    return f"\nresnet152 from resnet50's timings: {error:+.2%}, {exact:.0%} of the time exact"


if __name__ == "__main__":
    main()
