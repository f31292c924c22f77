"""All algorithms by name, and the reading of one from a string such as `ssp(slack=3)`."""

import re
from collections.abc import Mapping
from typing import Any

from paracosm.errors import InputError, unknown
from paracosm.expression import parse_expression
from paracosm.factory import describe_error
from paracosm.training.algorithms.algorithm import Algorithm, check_own, named_algorithm
from paracosm.training.algorithms.asynchronous import (
    ASGD,
    DCASGD,
    SSP,
    AdaptiveDCASGD,
    DelayAdaptive,
    Rennala,
    Ringmaster,
    SoftSync,
    StalenessAware,
)
from paracosm.training.algorithms.averaging import (
    EASGD,
    AdaComm,
    LocalAdam,
    LocalSGD,
    PostLocalSGD,
)
from paracosm.training.algorithms.decentralised import ADPSGD, DPSGD, SGP
from paracosm.training.algorithms.diloco import DelayedNesterov, DiLoCo, StreamingDiLoCo
from paracosm.training.algorithms.federated import (
    FedAdam,
    FedAsync,
    FedAvg,
    FedAvgM,
    FedBuff,
    FedDyn,
    FedNova,
    FedProx,
    FedYogi,
    Scaffold,
)
from paracosm.training.algorithms.synchronous import SSGD, BackupWorkers, OneBitAdam, Sequential
from paracosm.training.named import arguments_of

ALGORITHMS: Mapping[str, type[Algorithm]] = {
    algorithm.name: algorithm
    for algorithm in (
        *(Sequential, SSGD, ASGD, StalenessAware, SoftSync, SSP, BackupWorkers),
        *(DelayAdaptive, DCASGD, FedBuff, LocalSGD, EASGD, ADPSGD),
        *(FedAsync, FedAvg, FedAvgM, FedAdam, FedYogi, FedProx, Scaffold),
        PostLocalSGD,
        *(DiLoCo, StreamingDiLoCo, DelayedNesterov),
        *(AdaptiveDCASGD, Ringmaster, Rennala),
        *(FedNova, FedDyn, LocalAdam, AdaComm, OneBitAdam, DPSGD, SGP),
    )
}


def parse_algorithm(asked: str | Algorithm | type[Algorithm]) -> Algorithm:
    """Read an algorithm with its parameters: `asgd`, `ssp(slack=3)`, `ssp(3)`.

    One of the user's own is `file.py:Class(key=value)` or `package.module:Class`. What is an
    algorithm already is returned, of a class the one whose parameters are the defaults.

    Raises:
        InputError: naming the algorithm or parameter that is not known, with the nearest one, or
            the value that a parameter cannot have; what `named_algorithm` says.
    """
    if isinstance(asked, Algorithm):
        if type(asked) not in ALGORITHMS.values():
            check_own(asked)
        return asked
    if isinstance(asked, type) and issubclass(asked, Algorithm):
        return _with(asked, asked.reference(), {})
    reference, text = _split(asked)
    word, positional, named = parse_expression(text, "algorithm")
    if reference is None and word not in ALGORITHMS:
        raise unknown("algorithm", word, ALGORITHMS)
    kind = ALGORITHMS[word] if reference is None else named_algorithm(reference)
    name = reference or word
    return _with(kind, name, arguments_of(kind, name, positional, named))


_REFERENCE = re.compile(r"\s*([^(]*:\s*[A-Za-z_]\w*)\s*(\(.*)?", re.DOTALL)


def _split(asked: object) -> tuple[str | None, object]:
    """Divide what names one of the user's own from its parameters, behind a name in its place."""
    match = _REFERENCE.fullmatch(asked) if isinstance(asked, str) else None
    if match is None:
        return None, asked
    return match[1].strip(), f"algorithm{match[2] or ''}"


def _with(kind: type[Algorithm], name: str, values: Mapping[str, Any]) -> Algorithm:
    try:
        algorithm = kind(**values)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f'algorithm "{name}" failed: {describe_error(error)}') from error
    if kind not in ALGORITHMS.values():
        check_own(algorithm)
    return algorithm
