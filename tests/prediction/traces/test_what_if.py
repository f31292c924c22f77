"""What-ifs in words."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hand_made import kernel, launch, step, two_ranks, write

from paracosm.errors import InputError
from paracosm.prediction.traces import WhatIf, parse_what_if, read_job
from paracosm.prediction.traces.changed import changed


@pytest.mark.parametrize(
    ("text", "target", "pattern", "rank", "faster", "later"),
    [
        ("link bandwidth x2", "link bandwidth", "", None, 2, 0),
        ("communication x0.5", "link bandwidth", "", None, 0.5, 0),
        ("rank 3 compute x1.5", "compute", "", 3, 1.5, 0),
        ("All  Compute X2", "compute", "", None, 2, 0),
        ("rank 0 host *4", "host", "", 0, 4, 0),
        ("kernel *gemm* x3", "kernel PATTERN", "*gemm*", None, 3, 0),
        ("kernel * x3", "kernel PATTERN", "*", None, 3, 0),
        ("kernel a x2 b x3", "kernel PATTERN", "a x2 b", None, 3, 0),
        ("collective all_reduce x2", "collective KIND", "all_reduce", None, 2, 0),
        ("data loading x10", "data loading", "", None, 10, 0),
        ("without data loading", "data loading", "", None, math.inf, 0),
        ("rank 1 without copies", "copies", "", 1, math.inf, 0),
        ("link latency +5us", "link latency", "", None, 1, 5e-6),
        ("link latency - 1 ms", "link latency", "", None, 1, -1e-3),
    ],
)
def test_forms(
    text: str, target: str, pattern: str, rank: int | None, faster: float, later: float
) -> None:
    assert parse_what_if(text) == WhatIf(text, target, pattern, rank, faster, later)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("faster please", "says no change: write"),
        ("", "says no change: write"),
        ("compute x0", '"0" is no factor above 0: x2 is twice as fast'),
        ("compute x-1", '"-1" is no factor above 0'),
        ("compute xinf", '"inf" is no factor above 0'),
        ("compute xnan", '"nan" is no factor above 0'),
        ("link bandwith x2", 'unknown target "link bandwith": did you mean "link bandwidth"?'),
        ("rank three compute x2", '"three" is no rank'),
        ("rank 3 link bandwidth x2", "a collective is one for all its ranks: leave out the rank"),
        ("kernel x2", "which kernel\\? write kernel PATTERN xF"),
        ("link latency +fast", "fast"),
        ("without everything", 'unknown target "everything": choose from compute, copies'),
        ("compute x1", "would change nothing"),
        ("kernel *gemm*", "which kernel"),
        ("link latency -0us", "would change nothing"),
    ],
)
def test_what_is_not_understood_is_refused_in_a_line(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        parse_what_if(text)
    assert str(caught.value).startswith(f'--what-if "{text}": ')
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rank 2 compute x2", "no rank 2: the traces are of 0, 1"),
        ("kernel gem_m x2", 'unknown kernel "gem_m": did you mean "gemm"?'),
        ("collective all_gather x2", 'unknown collective "all_gather": did you mean "all_reduce"?'),
        ("without data loading", "would change nothing: the traces have no data loading"),
        ("rank 1 compute x2", "would change nothing: the traces have no compute"),
        ("link latency -5us", "the longest takes 5 us: without communication is what takes none"),
    ],
)
def test_what_has_no_effect_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    traced = read_job(two_ranks(tmp_path))
    with pytest.raises(InputError) as caught:
        changed(traced, [parse_what_if(text)])
    assert reason in str(caught.value)


def test_a_job_without_collectives_has_no_links(tmp_path: Path) -> None:
    traced = read_job([write(tmp_path, [step(1, 0, 20), launch(1, 0, 5), kernel(1, 8, 12)])])
    with pytest.raises(InputError, match="would change nothing: the traces have no communication"):
        changed(traced, [parse_what_if("link bandwidth x2")])


def test_structure_and_order_stay(tmp_path: Path) -> None:
    traced = read_job(two_ranks(tmp_path))
    job = changed(traced, [parse_what_if("compute x2"), parse_what_if("compute x5")])
    first = job.programs[0]
    assert 1e6 * first.duration[first.name == job.names.index("gemm")] == pytest.approx([1])
    assert job.programs[0].dependencies is traced.job.programs[0].dependencies
    assert 1e6 * traced.job.programs[0].duration.max() == pytest.approx(10)
