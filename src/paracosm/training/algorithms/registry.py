"""All algorithms by name, and the reading of one from a string such as `ssp(slack=3)`."""

from __future__ import annotations

from collections.abc import Mapping

from paracosm.training.algorithms.ad_psgd import ADPSGD
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.algorithms.asgd import ASGD
from paracosm.training.algorithms.backup_workers import BackupWorkers
from paracosm.training.algorithms.dc_asgd import DCASGD
from paracosm.training.algorithms.delay_adaptive import DelayAdaptive
from paracosm.training.algorithms.delayed_nesterov import DelayedNesterov
from paracosm.training.algorithms.diloco import DiLoCo
from paracosm.training.algorithms.easgd import EASGD
from paracosm.training.algorithms.fedbuff import FedBuff
from paracosm.training.algorithms.local_sgd import LocalSGD
from paracosm.training.algorithms.sequential import Sequential
from paracosm.training.algorithms.softsync import SoftSync
from paracosm.training.algorithms.ssgd import SSGD
from paracosm.training.algorithms.ssp import SSP
from paracosm.training.algorithms.staleness_aware import StalenessAware
from paracosm.training.algorithms.streaming_diloco import StreamingDiLoCo
from paracosm.training.named import parse_named

ALGORITHMS: Mapping[str, type[Algorithm]] = {
    algorithm.name: algorithm
    for algorithm in (
        *(Sequential, SSGD, ASGD, StalenessAware, SoftSync, SSP, BackupWorkers),
        *(DelayAdaptive, DCASGD, FedBuff, LocalSGD, EASGD, ADPSGD),
        *(DiLoCo, StreamingDiLoCo, DelayedNesterov),
    )
}


def parse_algorithm(text: str) -> Algorithm:
    """Read an algorithm with its parameters: `asgd`, `ssp(slack=3)`, `ssp(3)`.

    An InputError names the algorithm or parameter that is not known, with the nearest one, or the
    value that a parameter cannot have.
    """
    return parse_named(text, "algorithm", ALGORITHMS)
