"""What of an emulated job is measured, what is modelled and what is assumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paracosm.emulation.config import EmulateConfig
from paracosm.units import format_bandwidth, format_duration


def origins(config: EmulateConfig) -> dict[str, str]:
    several = len(config.rank) > 1
    real = f"rank{'s' if several else ''} {', '.join(map(str, config.rank))}"
    own_links = (
        "modelled: real messages, at the pace of the modelled links"
        if config.is_paced
        else "measured: real messages of gloo"
    )
    lines = {
        "compute": f"measured: the script really runs as {real}",
        "communication": _communication(config),
        "links of the real rank": "" if config.mode == "backend" else own_links,
        "other ranks": _peers(config),
        "values": (
            f"assumed: every rank holds what {real} holds"
            if config.mode == "backend"
            else "assumed: emulated ranks send data of the right size that leaves sums as they are"
        ),
        "memory": "measured: of the processes of the real ranks"
        if several
        else f"measured: of the process that runs as {real}",
        "what if": "; ".join(map(str, config.what_if)),
    }
    return {what: line for what, line in lines.items() if line}


def _communication(config: EmulateConfig) -> str:
    model = config.communication_model
    if model == "none":
        return "assumed: takes no time"
    if model == "measured":
        return "measured: between emulated ranks as on the real rank's own link"
    if model == "cluster":
        how = "" if config.mode == "wire" else f", algorithm {config.algorithm}"
        return f"modelled: {_links(config)}{how}"
    return f"modelled: {model}"


def _links(config: EmulateConfig) -> str:
    if isinstance(config.cluster, Path):
        return f"cluster {config.cluster.name}"
    if isinstance(config.cluster, Mapping):
        return "a cluster"
    parts = [] if config.bandwidth is None else [format_bandwidth(config.bandwidth)]
    for name, seconds in (("latency", config.latency), ("overhead", config.overhead)):
        parts += [f"{name} {format_duration(seconds)}"] if seconds else []
    return f"every link {', '.join(parts)}" if parts else "links that cost nothing"


def _peers(config: EmulateConfig) -> str:
    if config.skew is None and config.compute_jitter is None:
        return "assumed: compute as fast as the real rank, and come when it comes"
    parts = [] if config.skew is None else [f"skew {config.skew}"]
    if config.compute_jitter == "measured":
        parts.append("compute jitter as measured on the real rank")
    elif config.compute_jitter is not None:
        parts.append(f"compute jitter {config.compute_jitter}")
    return f"assumed: {', '.join(parts)}"
