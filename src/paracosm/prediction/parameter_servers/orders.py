"""Orders of transfers that wait for one link: by name, or listed by the user.

TIC and TAC are those of S. H. Hashemi, S. A. Jyothi, R. H. Campbell, "TicTac: Accelerating
Distributed Deep Learning with Communication Scheduling", SysML 2019, section 4.1.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from paracosm.arrays import Bools, Floats, Ints
from paracosm.errors import InputError, unknown
from paracosm.profiling.jobs import DOWNLINK, UPLINK, WORKER
from paracosm.profiling.jobs.job_profile import in_order
from paracosm.simulation.system import Workload

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
    """Return the priorities that a `System` takes, by op, the lowest first; None: first come.

    Orders by name are those of downlinks, which are what TicTac orders; uplinks have one priority,
    and so go first come, first served. A list orders the transfers in it, of either direction; the
    others come after them as they were recorded.

    `names` may leave out ops at the end that have none, as parsing has. By `bandwidth`, bytes/s of
    the link, TAC weighs bytes against seconds; `seed` is that of the random order.
    """
    if not isinstance(order, str):
        return _listed_order(order, workload, names)
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


def _listed_order(order: Sequence[str], workload: Workload, names: Sequence[str]) -> Floats:
    """Of ops that are not in the list, the priority is its length."""
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


def tac(workload: Workload, bandwidth: float) -> Floats:
    """Return priorities by op: one transfer after the other, the one first that overlaps best.

    "Timing-Aware Communication scheduling", Algorithm 3 of TicTac: transfer A goes before B if
    min(P_B, M_A) < min(P_A, M_B), where M is a transfer's own time and P what can be computed with
    it alone; if these are equal, the one with the lower M+. The properties of those left are worked
    out anew after each choice. The comparison is not transitive; those that are asked for are gone
    through in the order of their numbers, and of equal ones the first stays. A computation's time
    is the least in any step (their time oracle).

    What is not a transfer to the worker has 0. `bandwidth` is that of the link, bytes/s.
    """
    needed = _needed_by_computations(workload)
    seconds = workload.size[needed.transfers] / bandwidth
    outstanding = np.ones(len(seconds), bool)
    priority = np.zeros(workload.ops)
    for place in range(len(seconds)):
        load, impending = needed.properties(outstanding, seconds)
        P, M, M_plus = load.tolist(), seconds.tolist(), impending.tolist()
        left = np.flatnonzero(outstanding).tolist()
        best = left[0]
        for other in left[1:]:
            ours, theirs = min(P[best], M[other]), min(P[other], M[best])
            if theirs > ours or (theirs == ours and M_plus[other] < M_plus[best]):
                best = other
        priority[needed.transfers[best]] = place
        outstanding[best] = False
    return priority


def tic(workload: Workload) -> Floats:
    """Return priorities by op: transfers that fewer others must come with go first.

    "Timing-Independent Communication scheduling", Algorithm 2 of TicTac: a transfer's priority is
    its impending communication load M+, where each transfer takes 1 and computations nothing. Those
    that nothing needs together with others come last. Ties stay as they are, to be sent in the
    order in which they are asked for.

    Here M+ is numbered from 0; what is not a transfer to the worker has 0.
    """
    needed = _needed_by_computations(workload)
    everything = np.ones(len(needed.transfers), bool)
    _, impending = needed.properties(everything, np.ones(len(needed.transfers)))
    priority = np.zeros(workload.ops)
    priority[needed.transfers] = np.unique(impending, return_inverse=True)[1]
    return priority


@dataclass(frozen=True)
class _Needed:
    """Groups of computations that need the same transfers, whether at first or second hand."""

    transfers: Ints  # ops, as numbered in the workload, (transfers,)
    needs: Bools  # whether a group needs a transfer (`op.dep` in the paper), (groups, transfers)
    seconds: Floats  # that all computations of each group take, (groups,)

    def properties(self, outstanding: Bools, seconds: Floats) -> tuple[Floats, Floats]:
        """Return P and M+ of each transfer by Algorithm 1 (`UpdateProperties`), in seconds.

        P is the computing that can begin with this transfer alone ("directly-dependent compute
        load"), M+ the least of all transfers together that a computation needs beside this one
        ("impending communication load"), infinite if there is none. `outstanding` are the transfers
        that have no priority yet.
        """
        needs = self.needs & outstanding
        several, alone = needs.sum(axis=1) > 1, needs.sum(axis=1) == 1
        together = np.where(needs[several], (needs @ seconds)[several, None], np.inf)
        return needs[alone].T @ self.seconds[alone], together.min(axis=0, initial=np.inf)


def _needed_by_computations(workload: Workload) -> _Needed:
    transfers = np.flatnonzero(workload.resource == DOWNLINK)
    needs = np.zeros((workload.ops, len(transfers)), bool)
    for op in in_order(workload.waits, workload.first_dependent, workload.dependents):
        if workload.resource[op] == DOWNLINK:
            needs[op] = transfers == op
        first, last = workload.first_dependent[op : op + 2]
        needs[workload.dependents[first:last]] |= needs[op]
    computations = np.flatnonzero(workload.resource == WORKER)
    groups, group = np.unique(needs[computations], axis=0, return_inverse=True)
    seconds = workload.seconds[:, computations].min(axis=0)
    total = np.zeros(len(groups))
    np.add.at(total, group.reshape(-1), seconds)
    return _Needed(transfers, groups, total)
