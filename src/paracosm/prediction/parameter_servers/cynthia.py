"""Cynthia's model of throughput: processing, slowed by a full network, and transmission."""

from __future__ import annotations

from paracosm.prediction.parameter_servers.phases import Phases

__all__ = ["cynthia"]


def cynthia(phases: Phases, bandwidth: float, workers: int, *, duplex: bool = False) -> float:
    """Return the steps/s of a number of workers.

    Zheng et al. (ICPP 2019), as Li et al. (2020, section 1) give it: the examples/s of W workers
    with batch K are W K / (T_P max(1, W U_1) + 2 T_C), where T_P is the time of processing a batch,
    T_C that of transmitting the model or its update, and U_1 the network's utilisation with one
    worker: 2 T_C over the time of its step. Of several servers, the one with most bytes counts.

    Args:
        phases: of one worker.
        bandwidth: bytes/s of each server's port.
        workers: W.
        duplex: halve T_C, as both directions are networks of their own (Li et al., section 4.4).
    """
    transmission = float(phases.carried.max()) / bandwidth / (2 if duplex else 1)
    used = 2 * transmission / phases.step
    return workers / (phases.computing * max(1.0, workers * used) + 2 * transmission)
