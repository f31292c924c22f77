"""TIC, TAC and the other orders of transfers, on graphs small enough to be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plain_systems import plain_system
from small_workloads import Op, compute, down, once, times, up, update, workload_of
from steps_reference import simulate_literally

from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.orders import ORDERS, tac, tic, transfer_order
from paracosm.simulation.system import Workload

FOUR_LAYERS = workload_of(
    *(down(4), down(3), down(2), down(1)),  # of the last layer first
    *(compute(1, [3]), compute(1, [2, 4]), compute(1, [1, 5]), compute(1, [0, 6])),
    *(up(4, [7]), update(1, [8])),
)
"""Figure 5 of Li et al.: each layer needs its own weights and what the one before it has made."""

NAMES = ("w3", "w2", "w1", "w0", "f0", "f1", "f2", "f3", "g3", "u3")


def test_two_transfers_of_which_one_is_needed_first() -> None:
    """Figure 1 of TicTac: recv1 -> op1, and op1 and recv2 -> op2.

    op2 is the only one that needs several, both: M+ = 2 for each, whatever the order of the two.
    With times, P is 3 for recv1 and 0 for recv2: min(0, M1) < min(3, M2).
    """
    step = workload_of(down(2), down(2), compute(3, [1]), compute(1, [0, 2]))
    assert tic(step).tolist() == [0, 0, 0, 0]
    assert tac(step, 1.0).tolist() == [1, 0, 0, 0]


def test_layers_one_after_the_other() -> None:
    """M+ is 2 for the first two, then 3 and 4; TAC tells the first two apart, as f0 can begin."""
    assert tic(FOUR_LAYERS).tolist() == [2, 1, 0, 0] + [0] * 6
    assert tac(FOUR_LAYERS, 1.0).tolist() == [3, 2, 1, 0] + [0] * 6


def test_what_is_needed_with_few_others_goes_first() -> None:
    """op needs A, B and C; the next one D and E; the last one all five: M+ is 3, 3, 3, 2 and 2."""
    step = workload_of(
        *(down(1), down(1), down(1), down(1), down(1)),
        *(compute(1, [0, 1, 2]), compute(1, [3, 4]), compute(1, [5, 6])),
    )
    assert tic(step).tolist() == [1, 1, 1, 0, 0, 0, 0, 0]


def test_what_nothing_needs_with_others_goes_last() -> None:
    """M+ of C is infinite: only its own computation needs it, and nothing needs D at all."""
    step = workload_of(
        *(down(1), down(1), down(1), down(1)), compute(1, [0]), compute(1, [1, 4]), compute(9, [2])
    )
    assert tic(step)[:4].tolist() == [0, 0, 1, 1]


def test_transfers_that_must_all_come_before_anything_begins() -> None:
    """op1 (1 s) needs A and B (3 s each), op2 (4 s) C (1 s) and D (2 s), op3 all.

    No P is above 0 at first; M+ is 6, 6, 3 and 3: C, the first of the lowest. Then P of D is 4:
    min(0, 2) < min(4, 3). Then A and B are alike.
    """
    step = workload_of(
        *(down(6), down(6), down(2), down(4)),
        *(compute(1, [0, 1]), compute(4, [2, 3]), compute(1, [4, 5])),
    )
    assert tac(step, 2.0)[:4].tolist() == [2, 3, 0, 1]


@pytest.mark.parametrize(
    ("M_A", "P_A", "M_B", "P_B", "first"),
    [(2, 5, 2, 1, 0), (2, 1, 1, 5, 1), (1, 3, 4, 1, 0), (5, 3, 1, 2, 1)],
)
def test_the_one_that_overlaps_more_goes_first(
    M_A: float, P_A: float, M_B: float, P_B: float, first: int
) -> None:
    """A before B takes M_A + max(P_A, M_B) + P_B: section 4.3 of TicTac, and the simulation."""
    step = workload_of(down(M_A), down(M_B), compute(P_A, [0]), compute(P_B, [1]))
    assert tac(step, 1.0)[:2].tolist() == [first, 1 - first]
    took = {}
    for order in ([0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]):
        system = replace(plain_system(1, 1, 1.0), priority=np.array(order))
        took[order[0]] = simulate_literally(step, system, once()).step_end[0, 0]
    assert took == {0: M_A + max(P_A, M_B) + P_B, 1: M_B + max(P_B, M_A) + P_A}
    assert took[first] < took[1 - first]


def test_times_are_the_least_of_all_steps() -> None:
    """Of A's computation: 9 s once and 1 s else; so B, with 2 s, overlaps more."""
    step = workload_of(down(3), down(3), compute(9, [0]), compute(2, [1]))
    steps = replace(step, seconds=np.array([[0, 0, 9.0, 2.0], [0, 0, 1.0, 2.0]]))
    assert tac(step, 1.0)[:2].tolist() == [0, 1]
    assert tac(steps, 1.0)[:2].tolist() == [1, 0]


def test_a_downlink_that_waits_for_the_server_is_needed_for_itself() -> None:
    """The last computation needs op 4 alone, not what the server waited for before it sent that.

    So nothing needs op 0 or op 4 together with others, and 6 and 7, which are needed at once, go
    first.
    """
    step = workload_of(
        *(down(1), compute(1, [0]), up(1, [1]), update(1, [2]), down(1, [3]), compute(1, [4])),
        *(down(1), down(1), compute(1, [6, 7])),
    )
    assert tic(step).tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("ops", [[up(1)], [down(1)], [compute(1)], [down(1), update(1, [0])]])
def test_steps_with_nothing_to_order(ops: list[Op]) -> None:
    for algorithm in (tic, lambda step: tac(step, 1.0)):
        assert algorithm(workload_of(*ops)).tolist() == [0] * len(ops)


def priorities(order: str | list[str], seed: int = 0) -> list[float] | None:
    found = transfer_order(order, FOUR_LAYERS, NAMES, bandwidth=1.0, seed=seed)
    return None if found is None else found.tolist()


def sent(order: str | list[str], workload: Workload = FOUR_LAYERS) -> list[str]:
    """Return the names of transfers down in the order in which they are sent."""
    system = replace(
        plain_system(1, 1, 1.0), priority=transfer_order(order, workload, NAMES, bandwidth=1.0)
    )
    result = simulate_literally(workload, system, once(), keep_chunks=True)
    return [NAMES[op] for op, _, _ in times(result, 0) if NAMES[op].startswith("w")]


def test_orders_by_name() -> None:
    assert set(ORDERS) == {"scheduled", "tic", "tac", "reverse", "random"}
    assert priorities("scheduled") is None
    assert sent("scheduled") == ["w3", "w2", "w1", "w0"]
    assert sent("tic") == ["w1", "w0", "w2", "w3"]
    assert sent("tac") == ["w0", "w1", "w2", "w3"]
    assert sent("reverse") == ["w3", "w2", "w0", "w1"]


def test_a_random_order_is_that_of_its_seed() -> None:
    found = {tuple(priorities("random", seed)) for seed in range(50)}
    assert len(found) > 10
    for order in found:
        assert sorted(order[:4]) == [0, 1, 2, 3]
        assert order[4:] == (0,) * 6
    assert priorities("random", 3) == priorities("random", 3)


def test_an_order_by_a_list() -> None:
    """Those in the list in its order, and the others after them as they were recorded."""
    assert priorities(["w1", "g3"]) == [2, 2, 0, 2, 2, 2, 2, 2, 1, 2]
    assert sent(["w1"]) == ["w1", "w3", "w2", "w0"]
    assert sent([]) == sent("scheduled")


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("tick", 'unknown order of transfers "tick": did you mean "tic"?'),
        (["w1", "w33"], 'order of transfers: unknown transfer "w33": did you mean "w3"?'),
        (
            ["nothing"],
            (
                'order of transfers: unknown transfer "nothing": paracosm trace of a run shows '
                "their names, such as w3"
            ),
        ),
        (["f0"], 'order of transfers: "f0" computes and has no place in the list'),
        (["w1", "w0", "w1"], 'order of transfers: "w1" is in the list twice'),
    ],
)
def test_orders_that_are_refused(order: str | list[str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        priorities(order)
    assert str(refused.value) == message
