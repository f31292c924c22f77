"""Backend mode: what a call costs beside PyTorch's fake process group, and how delays are kept."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jobs import backend_job
from network import Network
from tables import Table

__all__ = ["measure_modelled", "tables_of"]

Say = Callable[[str], None]

SCRIPT = str(Path(__file__).with_name("modelled_calls.py"))
DELAYS = (100e-6, 1e-3, 20e-3)
WORLD = 8
CALLS = {100e-6: 2000, 1e-3: 1000, 20e-3: 200}


def measure_modelled(network: Network, quick: bool, say: Say) -> dict[str, Any]:
    """Time calls without a delay, beside the fake group in the same process, and with delays."""
    say("backend mode: what a call costs")
    share = 10 if quick else 1
    free = _calls(network, {"communication": "none"}, ["--fake", "--calls", str(5000 // share)])
    kept = []
    for delay in DELAYS:
        say(f"backend mode: delays of {1e3 * delay:g} ms")
        options = {"communication": "none", "what_if": (f"all_reduce: +{1e6 * delay:g} us",)}
        times = _calls(network, options, ["--calls", str(CALLS[delay] // share)])["modelled"]
        kept.append({"delay": delay, **_summary(times)})
    return {"calls": {name: _summary(times) for name, times in free.items()}, "delays": kept}


def _calls(network: Network, options: Mapping[str, Any], arguments: list[str]) -> Any:
    with tempfile.TemporaryDirectory(prefix="neuronabox-") as folder:
        out = Path(folder) / "times.json"
        with backend_job(network, WORLD, [SCRIPT, *arguments, "--out", str(out)], options) as job:
            job.wait()
        return json.loads(out.read_text())


def _summary(times: list[float]) -> dict[str, float]:
    low, median, high, most = np.quantile(times, (0.01, 0.5, 0.99, 1.0)).tolist()
    middle = {"mean": float(np.mean(times)), "median": median}
    return {"count": len(times), **middle, "p1": low, "p99": high, "largest": most}


def tables_of(measured: Mapping[str, Any]) -> list[Table]:
    """Return one table of calls without a delay, and one of those with delays."""
    calls = [
        [name, f"{times['count']:,}", *_microseconds(times, ("median", "mean", "p99"))]
        for name, times in measured["calls"].items()
    ]
    kept = [
        [
            f"{1e3 * row['delay']:g} ms",
            f"{row['count']:,}",
            *(f"{1e6 * (row[name] - row['delay']):+.0f}" for name in ("p1", "median", "p99")),
            f"{100 * (row['median'] / row['delay'] - 1):+.2f} %",
        ]
        for row in measured["delays"]
    ]
    return [
        Table(
            f"Backend mode, an all-reduce of 4 bytes among {WORLD} ranks that takes no time "
            "(microseconds; both groups in one process, in turns)",
            ("process group", "calls", "median", "mean", "99th percentile"),
            calls,
        ),
        Table(
            "Backend mode, how late a blocking all-reduce returns (microseconds)",
            (
                "modelled delay",
                "calls",
                "1st percentile",
                "median",
                "99th percentile",
                "median off",
            ),
            kept,
        ),
    ]


def _microseconds(times: Mapping[str, float], names: tuple[str, ...]) -> list[str]:
    return [f"{1e6 * times[name]:.1f}" for name in names]
