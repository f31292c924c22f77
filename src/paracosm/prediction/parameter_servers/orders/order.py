"""Orders by name, or as a user lists them, as the priorities of transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError, unknown
from paracosm.prediction.parameter_servers.orders.tac import tac
from paracosm.prediction.parameter_servers.orders.tic import tic
from paracosm.profiling.jobs import DOWNLINK, UPLINK
from paracosm.simulation.system import Workload

__all__ = ["ORDERS", "transfer_order"]

Floats = npt.NDArray[np.float64]

ORDERS = ("scheduled", "tic", "tac", "reverse", "random")
"""As recorded; by TicTac's two algorithms; TIC's from its end; a fixed one by chance."""


def transfer_order(
    order: str | Sequence[str],
    workload: Workload,
    names: Sequence[str],
    *,
    bandwidth: float,
    seed: int = 0,
) -> Floats | None:
    """Return the priorities that a `System` takes, by op, the lowest first.

    Orders by name are those of downlinks, which are what TicTac orders; uplinks have one priority,
    and so go first come, first served. A list orders the transfers in it, of either direction; the
    others come after them as they were recorded.

    Args:
        order: one of `ORDERS`, or names of transfers.
        workload: the steps.
        names: of its ops; those at its end that have none, as parsing has, may be left out.
        bandwidth: bytes/s of the link, by which TAC weighs bytes against seconds.
        seed: of the random order.

    Returns:
        None: first come, first served.

    Raises:
        InputError: no such order, or a list with a name that is no transfer's, or twice in it.
    """
    if not isinstance(order, str):
        return _listed(order, workload, names)
    if order not in ORDERS:
        raise unknown("order of transfers", order, ORDERS)
    if order == "scheduled":
        return None
    if order == "tac":
        return tac(workload, bandwidth)
    priority = tic(workload)
    downlinks = np.flatnonzero(workload.resource == DOWNLINK)
    if order == "reverse":
        last_first = downlinks[np.argsort(priority[downlinks], kind="stable")][::-1]
        priority[last_first] = np.arange(len(downlinks))
    elif order == "random":
        priority[downlinks] = np.random.default_rng(seed).permutation(len(downlinks))
    return priority


def _listed(order: Sequence[str], workload: Workload, names: Sequence[str]) -> Floats:
    """Return the place of each op in a list of names; of all that are not in it, its length."""
    transfer = np.isin(workload.resource, (DOWNLINK, UPLINK))
    ops = {name: op for op, name in enumerate(names) if transfer[op]}
    priority = np.full(workload.ops, float(len(order)))
    for place, name in enumerate(order):
        if name not in ops:
            raise _not_a_transfer(name, names, ops)
        priority[ops[name]] = place
    twice = [name for name, count in Counter(order).items() if count > 1]
    if twice:
        raise InputError(f'order of transfers: "{twice[0]}" is in the list twice')
    return priority


def _not_a_transfer(name: str, names: Sequence[str], transfers: dict[str, int]) -> InputError:
    if name in names:
        return InputError(f'order of transfers: "{name}" computes and has no place in the list')
    if not get_close_matches(name, transfers, n=1, cutoff=0.5):
        return InputError(
            f'order of transfers: unknown transfer "{name}": paracosm trace of a run shows their '
            f"names, such as {next(iter(transfers))}"
        )
    return InputError(f"order of transfers: {unknown('transfer', name, transfers)}")
