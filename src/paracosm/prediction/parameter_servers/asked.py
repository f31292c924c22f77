"""From a configuration to a profile and what is imagined of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from paracosm.cluster import Cluster
from paracosm.errors import InputError, unknown
from paracosm.prediction.parameter_servers.background import parse_background
from paracosm.prediction.parameter_servers.cluster_ports import ports_of
from paracosm.prediction.parameter_servers.config import MOST_UNEVEN
from paracosm.prediction.parameter_servers.orders import ORDERS
from paracosm.prediction.parameter_servers.settings import Settings
from paracosm.profiling.jobs import JobProfile
from paracosm.profiling.jobs.file import is_job_profile, load_job_profile
from paracosm.profiling.jobs.job_profile import without_interrupted
from paracosm.profiling.nodes.calibration import NodeCalibration, load_calibration

if TYPE_CHECKING:
    from paracosm.prediction.config import PredictConfig

__all__ = ["WINDOW", "asked_bandwidth", "asked_profile", "asked_settings"]

WINDOW = 28e6
"""Bytes of a stream's first turn where nobody measured them: what Li et al. (2020, section 3.2.2)
found on average."""

MOST_WORKERS = 10_000
MOST_STEPS = 20_000_000


def asked_profile(config: PredictConfig) -> JobProfile:
    """Return the job profile that a configuration names, with its batch if that is given.

    Raises:
        InputError: it cannot be read, or says another batch.
    """
    path = config.profile
    assert path is not None
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if not is_job_profile(path):
        raise InputError(
            f"{path}: no job profile: paracosm profile job, or profile import, writes one"
        )
    profile = without_interrupted(load_job_profile(path))
    if "batch" not in config.model_fields_set:
        return profile
    if profile.batch not in (None, config.batch):
        raise InputError(
            f"batch: a step of {path} has {profile.batch} examples, not {config.batch}"
        )
    return replace(profile, batch=config.batch)


def asked_settings(config: PredictConfig, cluster: Cluster) -> Settings:
    """Return what a configuration imagines of a profiled job on a cluster.

    Raises:
        InputError: the node's calibration or the order cannot be read; something does not fit the
            profile or the number of workers.
    """
    node = _calibration(config)
    workers = _workers(config)
    if config.backup is not None and config.backup >= workers[0]:
        raise InputError(
            f"backup: {config.backup} of {workers[0]} workers: a step needs one at least to end"
        )
    if config.steps is not None and workers[-1] * config.steps > MOST_STEPS:
        raise InputError(
            f"steps: {config.steps:,} of {workers[-1]:,} workers are more than {MOST_STEPS:,} in "
            "all: take fewer"
        )
    if cluster.sharing == "serial":
        for name in ("background", "uneven"):
            if getattr(config, name):
                raise InputError(
                    f"{name}: no effect where messages take turns, leave out: sharing is serial"
                )
    window = inf
    if config.flow_control:
        window = config.flow_control_window or node.window or WINDOW
    return Settings(
        ports=ports_of(cluster),
        alpha=node.alpha or 0.0,
        beta=node.beta or 0.0,
        window=window,
        order=_order(config.order),
        cores=config.cores or 0,
        background=None if config.background is None else parse_background(config.background),
        uneven=0.0 if cluster.sharing == "serial" else _uneven(config, node),
        backup=(config.backup or 0) if config.synchronous else None,
        start=config.start,
        stagger=config.stagger,
        measure=config.measure,
        steps=config.steps,
        repeats=config.repeats,
    )


def _workers(config: PredictConfig) -> Sequence[int]:
    numbers = config.profiled_workers
    if numbers[-1] > MOST_WORKERS:
        raise InputError(f"workers: of a profile {MOST_WORKERS:,} at most, not {numbers[-1]:,}")
    return numbers


def _calibration(config: PredictConfig) -> NodeCalibration:
    return NodeCalibration() if config.node is None else load_calibration(config.node)


def asked_bandwidth(config: PredictConfig, profile: JobProfile) -> float:
    """Return the bytes/s of links without a cluster file: as asked, of the node, or as profiled.

    Raises:
        InputError: the node's calibration cannot be read; nothing says how fast links are.
    """
    node = _calibration(config)
    if config.bandwidth is None and node.bandwidth is None and _on_loopback(node):
        raise InputError(
            f"link bandwidth not specified: {config.node} has that of loopback, which says nothing "
            "about links: add --bandwidth 10Gbit/s, or measure it between two hosts with paracosm "
            "calibrate --peer"
        )
    bandwidth = config.bandwidth or node.bandwidth or profile.bandwidth
    if bandwidth is None:
        raise InputError(
            "link bandwidth not specified: add --bandwidth 10Gbit/s, or measure it between two "
            "hosts with paracosm calibrate, and give --node"
        )
    if not isfinite(bandwidth):
        raise InputError("bandwidth: throughput is predicted on links of a finite bandwidth")
    return bandwidth


def _on_loopback(node: NodeCalibration) -> bool:
    return node.over_loopback("bandwidth_out") or node.over_loopback("bandwidth_in")


def _uneven(config: PredictConfig, node: NodeCalibration) -> float:
    """Return what was asked for, or what was measured over a network, or fair queueing."""
    if config.uneven is not None:
        return config.uneven
    if node.uneven is None or node.over_loopback("uneven"):
        return 0.0
    if node.uneven > MOST_UNEVEN:
        raise InputError(
            f"uneven: {config.node} has {node.uneven:.3g}, which is connections that starve; "
            f"{MOST_UNEVEN:g} at most is predicted: give --uneven"
        )
    return node.uneven


def _order(asked: str | list[str] | None) -> str | Sequence[str]:
    """Return the name of an order, or the names of ops in order."""
    if asked is None:
        return "scheduled"
    if not isinstance(asked, str):
        return asked
    if asked in ORDERS:
        return asked
    path = Path(asked)
    if not path.is_file():
        raise InputError(f"order: {unknown('order', asked, ORDERS)} (a file of ops is one, too)")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"order: {path}: cannot be read as text") from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise InputError(f"order: {path}: empty: write one op a line")
    return names
