"""Everything that came out, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from checks import Check
from conv import Series
from copies import Copies
from design_errors import DesignError
from grids import Line
from iteration_accuracy import Accuracy
from steady import Steadiness

from models import Neighbour
from paracosm.profiling import Environment

__all__ = ["Results", "as_json"]


@dataclass(frozen=True)
class Results:
    """What the figures, tables and checks are made from.

    Attributes:
        environment: of all timings.
        names: what each model is called: "resnet50, batch 64, 3x32x32".
        figure2: by channels and cache.
        lines: of the paper's design.
        steady: how well single ops are known.
        table1: copies.
        table2: iterations, by model.
        iterations: how many real ones, by model.
        neighbour: a model predicted from another one.
        designs: errors by design and op type.
    """

    environment: Environment
    names: dict[str, str]
    figure2: list[Series]
    lines: list[Line]
    steady: Steadiness
    table1: Copies
    table2: dict[str, Accuracy]
    iterations: dict[str, int]
    neighbour: Neighbour | None
    designs: list[DesignError]

    @property
    def setting(self) -> str:
        """Where and how it was measured, in a few sentences."""
        here = self.environment
        low, median, high = self.steady.probe
        return (
            f"{here.hardware}; {here.framework}; {here.threads} thread, CPU time; "
            f"{here.allocator}. The speed probe took {1e3 * median:.2f} ms, p90 / p10 "
            f"{high / low:.2f}: no prediction is better than the machine is steady. The paper's: "
            "two Xeon E5-2620, four Tesla V100, TensorFlow 1.13."
        )


def as_json(results: Results, checks: Sequence[Check]) -> dict[str, Any]:
    """Return every number, in seconds, bytes and bytes/s."""
    content = {
        name: getattr(results, name)
        for name in ("environment", "names", "figure2", "lines", "steady", "iterations", "designs")
    }
    return {
        **{name: _plain(value) for name, value in content.items()},
        "table1": {
            "transfers": [asdict(each) for each in results.table1.found.values()],
            "missing": results.table1.missing,
            "size": results.table1.size,
        },
        "table2": {
            name: {
                **asdict(found),
                "errors": {
                    "own": found.error(found.own),
                    "warm": found.error(found.warm),
                    "held_out": None if found.held_out is None else found.error(found.held_out),
                },
                "gaps": found.gaps,
                "caches": found.caches,
            }
            for name, found in results.table2.items()
        },
        "neighbour": None if results.neighbour is None else asdict(results.neighbour),
        "checks": [{**asdict(check), "verdict": check.verdict} for check in checks],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [asdict(each) for each in value]
    return value if isinstance(value, dict) else asdict(value)
