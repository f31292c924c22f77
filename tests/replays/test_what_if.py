"""Changes of traced jobs: which there are, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hand_made import kernel, launch, step, two_ranks, write

from paracosm.cluster.changes import parse_change
from paracosm.errors import InputError
from paracosm.replays.job import read_job
from paracosm.replays.run import changed
from paracosm.replays.traced import TracedJob


def microseconds(traced: TracedJob, name: str, *changes: str) -> list[float]:
    """Return the durations of the tasks of that name, of all ranks."""
    job = changed(traced, [parse_change(text) for text in changes])
    code = job.names.index(name)
    found = [program.duration[program.name == code] for program in job.programs]
    return (1e6 * np.concatenate(found)).tolist()


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        # The kernel takes 10 us, the all-reduce 5 of both ranks.
        ("compute: 2x slower", "gemm", [20]),
        ("workers: compute 2x faster", "gemm", [5]),
        ("rank 0: compute none", "gemm", [0]),
        ("kernel *em*: 4x faster", "gemm", [2.5]),
        ("worker 0: kernel GEM 4x slower", "gemm", [40]),
        ("workers 0..1: host 2x slower", "gemm", [10]),
        ("links: bandwidth 4x", "all_reduce", [1.25, 1.25]),
        ("bandwidth: 2x slower", "all_reduce", [10, 10]),
        ("links: bandwidth 0.5x", "all_reduce", [10, 10]),
        ("links: latency +5 us", "all_reduce", [10, 10]),
        ("latency: -2 us", "all_reduce", [3, 3]),
        ("all_reduce: 2x slower", "all_reduce", [10, 10]),
        ("all_reduce: +1 us", "all_reduce", [6, 6]),
        ("collectives: none", "all_reduce", [0, 0]),
    ],
)
def test_durations_after_a_change(
    text: str, name: str, expected: list[float], tmp_path: Path
) -> None:
    assert microseconds(read_job(two_ranks(tmp_path)), name, text) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    [
        "links: bandwidth 25 Gbit/s",  # a trace does not say how much it had
        "latency: 2x",
        "latency: 5 us",
        "overhead: +5 us",
        "link 0-1: bandwidth 2x",
        "all_reduce: algorithm ring",
        "workers: 128",
        "worker 1: +10 ms",
        "server 0: compute 2x slower",
    ],
)
def test_what_a_trace_cannot_change_is_refused_by_name(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        changed(read_job(two_ranks(tmp_path)), [parse_change(text)])
    assert str(caught.value).startswith(
        f'what_if "{text}": replay cannot change that; it can change compute, copies, host'
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("worker 2: compute 2x faster", "no worker 2: there are traces of ranks 0, 1"),
        ("workers 1..3: compute 2x faster", "no worker 2: there are traces of ranks 0, 1"),
        ("kernel gem_m: 2x faster", 'unknown kernel "gem_m": did you mean "gemm"?'),
        ("kernel at::gemm: 2x faster", 'unknown kernel "at::gemm": '),
        ("all_gather: 2x slower", 'unknown collective "all_gather": did you mean "all_reduce"?'),
        ("data loading: none", "has no effect: the traces have no data loading"),
        ("worker 1: compute 2x slower", "has no effect: the traces have no compute"),
        ("latency: -5 us", "the longest takes 5 us: to remove them, write collectives: none"),
    ],
)
def test_what_has_no_effect_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        changed(read_job(two_ranks(tmp_path)), [parse_change(text)])
    assert str(caught.value).startswith(f'what_if "{text}": {reason}')


def test_a_job_without_collectives_has_no_links(tmp_path: Path) -> None:
    traced = read_job([write(tmp_path, [step(1, 0, 20), launch(1, 0, 5), kernel(1, 8, 12)])])
    with pytest.raises(InputError, match="has no effect: the traces have no communication"):
        changed(traced, [parse_change("links: bandwidth 2x")])


def test_structure_and_order_stay(tmp_path: Path) -> None:
    traced = read_job(two_ranks(tmp_path))
    changes = [parse_change("compute: 2x faster"), parse_change("compute: 5x faster")]
    first = changed(traced, changes).programs[0]
    gemm = traced.job.names.index("gemm")
    assert 1e6 * first.duration[first.name == gemm] == pytest.approx([1])
    assert first.dependencies is traced.job.programs[0].dependencies
    assert 1e6 * traced.job.programs[0].duration.max() == pytest.approx(10)
