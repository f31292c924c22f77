"""The charts of scripts on a device that is not there: parts, memory and spans of an iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paracosm.emulation.device.memory_model import held_by_kind
from paracosm.emulation.device.recording import FILE, Recording, load_recording
from paracosm.errors import InputError
from paracosm.jobs.job import MEMORY
from paracosm.jobs.strategies.work import COMMUNICATION, COMPUTE, HOST
from paracosm.results.chart import Area, Axis, Chart, Floats, Level, Mark, Sections
from paracosm.results.charts import Part, bar_chart, breakdown_chart
from paracosm.results.node_charts import first_timelines, lane_timeline
from paracosm.results.view import Run, counted
from paracosm.units import format_duration, format_size

_POINTS = 400  # of a curve of memory
_IN_VIEW = 4  # times what is held at most, up to which the device's memory is drawn beside it

# Lane of a timeline -> its line in the row of a rank, and its colour.
_LANES = {COMPUTE: (0, 0), "other streams": (1, 2), COMMUNICATION: (2, 1), HOST: (3, 5)}


def sections(runs: Sequence[Run]) -> Sections:
    """Return the charts of scripts that were recorded."""
    return {
        "Where an iteration goes": [_parts(runs), _classes(runs)],
        "Memory over an iteration": [
            chart(run) for run in runs[:1] if len(runs) == 1 for chart in (_memory, _modules)
        ],
        "A typical iteration": first_timelines(runs, _timeline),
    }


def _parts(runs: Sequence[Run]) -> Chart | None:
    bars = {}
    if len(runs) == 1 and (before := runs[0].numbers.get("unchanged")):
        bars["unchanged"] = before.get("breakdown")
        bars["; ".join(runs[0].numbers.get("what_if") or ())] = runs[0].numbers.get("breakdown")
    else:
        bars = {run.name: run.numbers.get("breakdown") for run in runs}
    known = {name: parts for name, parts in bars.items() if parts}
    return breakdown_chart("parts", "An iteration of the slowest rank", known) if known else None


def _classes(runs: Sequence[Run]) -> Chart | None:
    times = runs[0].numbers.get("by_class") or {}
    if len(runs) > 1 or not times:
        return None
    labels = [f"{name}: {format_duration(seconds)}" for name, seconds in times.items()]
    part = Part("ops", 0, list(times.values()), labels)
    return bar_chart("classes", "Ops by class", Axis("time", unit="s"), list(times), [part])


def _memory(run: Run) -> Chart | None:
    """Return what tensors hold over the last recorded iteration, by what they are for."""
    try:
        recording = load_recording(run.path / FILE)
    except InputError:  # of an unfinished run
        return None
    steps = recording.steps
    if not len(steps):
        return None
    first = int(steps[-2]) + 1 if len(steps) > 1 else 0
    held = held_by_kind(recording)[:, first : int(steps[-1]) + 1].astype(np.float64)
    places = _highest_of_each(held)
    share = places / max(held.shape[1] - 1, 1)
    marks: list[Mark] = []
    below = np.zeros(len(places))
    for color, kind in enumerate(MEMORY):
        above = below + held[color, places]
        if held[color].any():
            most = format_size(float(held[color].max()))
            outline = np.concatenate([share, share[::-1]]), np.concatenate([above, below[::-1]])
            text = f"{kind}: at most {most}"
            marks.append(Area(*outline, (text,) * len(outline[0]), run.index, kind, color))
        below = above
    memory = run.numbers.get("memory") or {}
    capacity = memory.get("capacity") or 0
    is_in_view = capacity and capacity <= _IN_VIEW * held.sum(axis=0).max()
    if is_in_view:
        marks.append(Level(float(capacity), 0.0, 1.0, format_size(capacity), "device's memory"))
    return Chart(
        name="memory",
        title="Memory that tensors hold",
        x=Axis("share of the iteration's requests, in order", percent=True),
        y=Axis("memory", unit="B", from_zero=True),
        marks=tuple(marks),
        caption=_in_all(recording, memory, is_in_view=bool(is_in_view)),
        wide=True,
    )


def _modules(run: Run) -> Chart | None:
    modules = (run.numbers.get("memory") or {}).get("modules")
    if not modules:
        return None
    names = [
        f"{module['name']} ({module['count']})" if module["count"] > 1 else module["name"]
        for module in modules
    ]
    parts = [
        Part(title, color, sizes, [f"{title}: {format_size(size)}" for size in sizes])
        for title, color, key in (
            ("parameters and their state", 0, "state"),
            ("activations and the rest", 3, "rest"),
        )
        for sizes in [[module[key] for module in modules]]
    ]
    title = "Modules that hold most when most is allocated"
    return bar_chart("modules", title, Axis("memory", unit="B"), names, parts)


def _highest_of_each(held: Floats) -> NDArray[np.intp]:
    """Return the places of at most `_POINTS` points: of each stretch that with most."""
    count = held.shape[1]
    if count <= _POINTS:
        return np.arange(count)
    total = held.sum(axis=0)
    bounds = np.linspace(0, count, _POINTS + 1).astype(np.int64)
    pairs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    return np.array([begin + int(np.argmax(total[begin:end])) for begin, end in pairs])


def _in_all(recording: Recording, memory: Mapping[str, Any], *, is_in_view: bool) -> str:
    if not memory:
        return ""
    reserved, overhead = format_size(memory["reserved"]), format_size(memory["overhead"])
    settings = f", with {recording.allocator}," if recording.allocator else ""
    text = (
        f"Of rank {recording.rank}. PyTorch's allocator{settings} reserves {reserved} for it; CUDA "
        f"and NCCL take about {overhead} more."
    )
    if not is_in_view:
        text += f" The device has {format_size(memory['capacity'])}."
    if memory["retries"]:
        text += f" To make room, it gives back unused memory {counted(memory['retries'], 'time')}."
    return text


def _timeline(run: Run) -> Chart | None:
    return lane_timeline(run, _LANES, _lane_of)


def _lane_of(resource: str) -> str:
    if resource.startswith("stream"):
        return "other streams"
    if resource.startswith((COMMUNICATION, "send", "receive")):
        return COMMUNICATION
    return resource
