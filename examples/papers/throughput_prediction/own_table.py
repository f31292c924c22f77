"""Measured and predicted throughput of the job of our own, as a table and as a figure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

MEASURED = "measured.json"
_PARACOSM = "import sys; from paracosm.cli import main; sys.exit(main(sys.argv[1:]))"
DROPPED = 2  # first steps of each worker that do not count


@dataclass(frozen=True)
class Row:
    """Steps/s of all workers together.

    Attributes:
        workers: their number.
        start: "together", or "staggered" over a step.
        queues: "long", or "short": then packets are dropped.
        measured: in one window.
        predicted: of such a window, the mean of many simulated ones.
        spread: their standard deviation.
        steady: predicted, long after the start.
        lin, cynthia: predicted by the coarse models.
    """

    workers: int
    start: str
    queues: str
    measured: float
    predicted: float
    spread: float
    steady: float
    lin: float
    cynthia: float

    @property
    def error(self) -> float:
        """Relative error of the prediction for the window."""
        return self.predicted / self.measured - 1


def save_measured(measured: dict[str, Any], folder: Path) -> None:
    """Write what was measured, a line for each run; the profile is beside it."""
    head = {key: value for key, value in measured.items() if key != "runs"}
    runs = [json.dumps(_short(run)) for run in measured["runs"]]
    lines = f'{json.dumps(head, indent=1)[:-2]},\n "runs": [\n  ' + ",\n  ".join(runs) + "\n ]\n}\n"
    (folder / MEASURED).write_text(lines)


def load_measured(folder: Path) -> dict[str, Any]:
    """Return what was measured."""
    file = folder / MEASURED
    if not file.is_file():
        raise SystemExit(f"{file}: no such file: measure first, without --again")
    measured: dict[str, Any] = json.loads(file.read_text())
    return measured


def throughput(run: dict[str, Any]) -> float:
    """Return steps/s of a run: each worker's, without its first two steps, from end to end."""
    ends = [each[DROPPED:] for each in run["end_ms"]]
    return sum((len(end) - 1) / (end[-1] - end[0]) * 1e3 for end in ends)


def _short(run: dict[str, Any]) -> dict[str, Any]:
    short = dict(run)
    for key in ("start_ms", "end_ms"):
        short[key] = [[round(time, 1) for time in times] for times in run[key]]
    return short


def compare(measured: dict[str, Any], profile: Path) -> list[Row]:
    """Predict what was measured: from the profile and the goodput, nothing else.

    Each window is predicted from its own start. The bandwidth is what the job's transport reached
    with one worker, in the direction that was slower.
    """
    rows = []
    for start in ("together", "staggered"):
        runs = [run for run in measured["runs"] if run["start"] == start]
        if runs:
            predicted = _predict(profile, measured["bandwidth"], start, runs)
            rows += [_row(run, predicted) for run in runs]
    return sorted(rows, key=lambda row: (row.queues, row.start, row.workers))


def _predict(
    profile: Path, bandwidth: float, start: str, runs: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return what `paracosm predict --json` prints."""
    numbers = sorted({run["W"] for run in runs})
    command = [
        *(sys.executable, "-c", _PARACOSM, "predict", str(profile), "--json"),
        *("--workers", ",".join(map(str, numbers)), "--bandwidth", f"{bandwidth:.0f}B/s"),
        *("--no-flow-control", "--start", start, "--measure", f"{runs[0]['seconds']}s"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip())
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def _row(run: dict[str, Any], predicted: dict[str, Any]) -> Row:
    rows = (
        predicted["throughput"],
        predicted["baselines"]["lin"],
        predicted["baselines"]["cynthia"],
    )
    its, lin, cynthia = (next(row for row in each if row["workers"] == run["W"]) for each in rows)
    return Row(
        workers=run["W"],
        start=run["start"],
        queues=run["queues"],
        measured=throughput(run),
        predicted=its["after_start"]["steps_per_second"],
        spread=its["after_start"]["spread"],
        steady=its["steps_per_second"],
        lin=lin["steps_per_second"],
        cynthia=cynthia["steps_per_second"],
    )


def write_table(rows: Sequence[Row]) -> str:
    """Return the table, as Markdown has it."""
    names = (
        "queues",
        "start",
        "workers",
        "measured",
        "predicted",
        "error",
        "steady state",
        "Lin",
        "Cynthia",
    )
    lines = [" | ".join(names), " | ".join("---" for _ in names)]
    for row in rows:
        cells = (
            *(row.queues, row.start, f"{row.workers}", f"{row.measured:.2f}"),
            f"{row.predicted:.2f} ± {row.spread:.2f}",
            *(f"{row.error:+.1%}", f"{row.steady:.2f}", f"{row.lin:.2f}", f"{row.cynthia:.2f}"),
        )
        lines.append(" | ".join(cells))
    said = ["Steps/s."]
    for queues in sorted({row.queues for row in rows}):
        errors = [abs(row.error) for row in rows if row.queues == queues]
        said.append(
            f"{queues.capitalize()} queues: mean of absolute errors "
            f"{sum(errors) / len(errors):.1%}, worst {max(errors):.1%}."
        )
    return "\n".join([*(f"| {line} |" for line in lines), "", " ".join(said)])


def draw(rows: Sequence[Row], file: Path) -> None:
    """Draw measured and predicted steps/s against workers, each start in a panel."""
    starts = sorted({row.start for row in rows})
    figure, panels = plt.subplots(
        1,
        len(starts),
        figsize=(5 * len(starts), 4.4),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for panel, start in zip(panels[0], starts, strict=True):
        dropping = [row for row in rows if row.start == start and row.queues == "short"]
        its = [row for row in rows if row.start == start and row.queues == "long"]
        workers = [row.workers for row in its]
        panel.plot(workers, [row.measured for row in its], "ko", label="measured")
        if dropping:
            x, y = zip(*((row.workers, row.measured) for row in dropping), strict=True)
            panel.plot(x, y, "kx", label="measured, packets dropped")
        panel.errorbar(
            workers,
            [row.predicted for row in its],
            [row.spread for row in its],
            color="#0072b2",
            capsize=3,
            label="predicted, same window (± 1 s.d.)",
        )
        for name, colour, style in (
            ("steady", "#009e73", "--"),
            ("lin", "#e69f00", ":"),
            ("cynthia", "#d55e00", ":"),
        ):
            label = {"steady": "predicted, steady state", "lin": "Lin et al.", "cynthia": "Cynthia"}
            values = [getattr(row, name) for row in its]
            panel.plot(workers, values, style, color=colour, label=label[name])
        panel.set(title=f"Workers start {start}", xlabel="Workers", xticks=workers)
    panels[0][0].set(ylabel="Steps/s", ylim=(0, None))
    lines, labels = panels[0][0].get_legend_handles_labels()
    more = panels[0][-1].get_legend_handles_labels()
    both = dict(zip([*labels, *more[1]], [*lines, *more[0]], strict=True))
    figure.legend(both.values(), both.keys(), loc="outside lower center", ncols=3)
    figure.savefig(file, dpi=150)
    plt.close(figure)
