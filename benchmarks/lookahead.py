"""Look-ahead batching against gradients one by one: whole runs, interleaved, ratios of medians.

    python benchmarks/lookahead.py [--repeats N]

The peer is `--lookahead off`: the same run with each gradient computed alone. Both are timed from
the first event to the last; the losses are compared as well.
"""

from __future__ import annotations

import argparse
import statistics

from paracosm.training import TrainConfig, train

CASES = (
    # model, batch, workers, updates, what is aimed at
    ("mlp", 10, 64, 3000, "at least 2.5"),
    ("mlp", 10, 16, 3000, ""),
    ("mlp", 10, 256, 3000, ""),
    ("mlp", 100, 64, 2000, ""),
    ("mlp", 32, 4, 2000, "at least 0.95"),
    ("mlp", 32, 1, 2000, "at least 0.95"),
    ("paper-cnn", 10, 8, 60, "at least 0.95"),
)


def run(model: str, batch: int, workers: int, updates: int, lookahead: str) -> dict[str, object]:
    config = TrainConfig.model_validate(
        {
            "model": model,
            "batch": batch,
            "workers": workers,
            "updates": updates,
            "lookahead": lookahead,
            "algorithm": "staleness-aware",
            "compute": "lognormal(20ms, 0.1)",
            "evaluate_every": updates,
            "timeline": False,
        }
    )
    return train(config).summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    print("model      batch    W  one by one  look-ahead  ratio  aim")
    for model, batch, workers, updates, aim in CASES:
        case = (model, batch, workers, updates)
        run(*case, "auto")  # warms the allocator and imports
        times: dict[str, list[float]] = {"off": [], "auto": []}
        losses, chosen = {}, ""
        for _ in range(repeats):
            for lookahead in times:
                summary = run(*case, lookahead)
                times[lookahead].append(float(str(summary["wall_time"])))
                losses[lookahead] = float(str(summary["final_loss"]))
                chosen = str(summary["lookahead"])
        alone, ahead = (statistics.median(times[mode]) for mode in ("off", "auto"))
        ratio = statistics.median(a / b for a, b in zip(times["off"], times["auto"], strict=True))
        print(
            f"{model:10} {batch:5} {workers:4} {alone * 1e6 / updates:8.0f} us "
            f"{ahead * 1e6 / updates:8.0f} us {ratio:6.2f}  {aim}"
        )
        print(f"{'':10} {chosen}; final losses {losses['off']:.6g} and {losses['auto']:.6g}")


if __name__ == "__main__":
    main()
