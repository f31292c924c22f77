"""All algorithms by name, and the reading of one from a string such as `ssp(slack=3)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from paracosm.errors import InputError, unknown
from paracosm.expression import parse_expression, read_literal
from paracosm.training.algorithms.ad_psgd import ADPSGD
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.algorithms.asgd import ASGD
from paracosm.training.algorithms.backup_workers import BackupWorkers
from paracosm.training.algorithms.dc_asgd import DCASGD
from paracosm.training.algorithms.delay_adaptive import DelayAdaptive
from paracosm.training.algorithms.delayed_nesterov import DelayedNesterov
from paracosm.training.algorithms.diloco import DiLoCo
from paracosm.training.algorithms.easgd import EASGD
from paracosm.training.algorithms.fedadam import FedAdam
from paracosm.training.algorithms.fedavg import FedAvg
from paracosm.training.algorithms.fedavgm import FedAvgM
from paracosm.training.algorithms.fedbuff import FedBuff
from paracosm.training.algorithms.fedprox import FedProx
from paracosm.training.algorithms.fedyogi import FedYogi
from paracosm.training.algorithms.local_sgd import LocalSGD
from paracosm.training.algorithms.post_local_sgd import PostLocalSGD
from paracosm.training.algorithms.scaffold import Scaffold
from paracosm.training.algorithms.sequential import Sequential
from paracosm.training.algorithms.softsync import SoftSync
from paracosm.training.algorithms.ssgd import SSGD
from paracosm.training.algorithms.ssp import SSP
from paracosm.training.algorithms.staleness_aware import StalenessAware
from paracosm.training.algorithms.streaming_diloco import StreamingDiLoCo

ALGORITHMS: Mapping[str, type[Algorithm]] = {
    algorithm.name: algorithm
    for algorithm in (
        *(Sequential, SSGD, ASGD, StalenessAware, SoftSync, SSP, BackupWorkers),
        *(DelayAdaptive, DCASGD, FedBuff, LocalSGD, EASGD, ADPSGD),
        *(DiLoCo, StreamingDiLoCo, DelayedNesterov),
        *(FedAvg, FedAvgM, FedAdam, FedYogi, FedProx, Scaffold, PostLocalSGD),
    )
}


def parse_algorithm(text: str) -> Algorithm:
    """Read an algorithm with its parameters: `asgd`, `ssp(slack=3)`, `ssp(3)`.

    An InputError names the algorithm or parameter that is not known, with the nearest one, or the
    value that a parameter cannot have.
    """
    name, positional, named = parse_expression(text, "algorithm")
    if name not in ALGORITHMS:
        raise unknown("algorithm", name, ALGORITHMS)
    kinds = {field.name: type(field.default) for field in fields(ALGORITHMS[name])}
    if len(positional) > len(kinds):
        takes = f"the parameters {', '.join(kinds)}" if kinds else "no parameters"
        raise InputError(f"{name} takes {takes}, got {len(positional)} values")
    arguments = dict(zip(kinds, positional, strict=False))
    for key, value in named.items():
        if key not in kinds:
            if not kinds:
                raise InputError(f'{name} takes no parameters, got "{key}"')
            raise unknown(f"parameter of {name}", key, kinds)
        if key in arguments:
            raise InputError(f"{name}: {key} is given twice")
        arguments[key] = value
    return ALGORITHMS[name](
        **{key: _read(name, key, value, kinds[key]) for key, value in arguments.items()}
    )


def _read(name: str, key: str, text: str, kind: type) -> Any:
    value = read_literal(text)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
        raise InputError(f'{name}: {key} must be {wanted[kind]}, got "{text}"')
    return value
