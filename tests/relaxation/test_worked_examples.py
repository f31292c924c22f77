"""What Coleman, Jensen and Sosonkina explain by an example, in sections 4 and 6.2."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from paracosm.relaxation import relax
from paracosm.relaxation.problems import load_problem

TWO = csr_array([[2.0, -1.0], [-1.0, 2.0]])  # x1 = (1 + x2) / 2, x2 = x1 / 2


@pytest.mark.parametrize(("latest", "x1"), [("start", 1 / 2), ("completion", 5 / 8)])
def test_ten_updates_of_one_component_in_the_time_of_one_of_the_other(
    latest: str, x1: float
) -> None:
    """Section 4: G2's second call has x1 as updated ten times, x2 as updated once."""
    result = relax(
        TWO, [1.0, 0.0], processors=2, time=[1.0, 10.0], read=latest, max_time=19.5, timeline=100
    )
    fast, slow = (result.spans.end[result.spans.processor == who] for who in (0, 1))
    assert fast[:10].tolist() == list(range(1, 11))
    assert slow[0] == 10
    assert result.updates.tolist() == [19, 1]
    # Read at the start, x2 = 0 / 2 at t = 10. Read at completion, x1 = 1/2 was updated ten times:
    # x2 = 1/4, and from then on x1 = 5/8.
    assert result.x[0] == x1


def test_a_sampled_duration_is_scaled_and_rounded_to_whole_ticks() -> None:
    """Section 4: 1.234 s in hundredths are 123.4, so 123 ticks, and scaled back 1.23 s."""
    result = relax(
        TWO, [1.0, 0.0], processors=2, time="1.234s", scale_factor=100, max_time=5, timeline=100
    )
    assert result.spans.end[:4].tolist() == [1.23, 1.23, 2.46, 2.46]


@pytest.mark.parametrize(("size", "caught"), [(100.0, (True, True)), (0.01, (True, False))])
def test_a_small_fault_is_caught_by_some_alphas_only(
    size: float, caught: tuple[bool, bool]
) -> None:
    """Section 6.2: one that raises the residual less than alpha times goes undetected."""
    problem = load_problem("laplace2d:10", seed=0)
    rollbacks = [
        relax(
            problem,
            processors=10,
            time="normal(10, 1)",
            fault=f"uniform(-{size:g}, {size:g}) at 400s",
            checkpoint=f"alpha={alpha}, omega=10s",
        ).rollbacks
        for alpha in (2, 10)
    ]
    assert tuple(count > 0 for count in rollbacks) == caught


def test_components_that_double_run_away_on_any_schedule() -> None:
    """Section 3: f(x) = 2x acts on each component by itself; its fixed point 0 repels."""
    result = relax(
        csr_array([[1.0, -2.0], [-2.0, 1.0]]), [0.0, 0.0], x0=[1.0, 1.0], processors=2, time="1 s"
    )
    assert result.status == "diverged"
    assert np.all(np.abs(result.x) > 1e6)
