"""What the calls of torch.distributed in a trace do, and among which ranks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from paracosm.graphs.importers.pytorch.trace import ObservedCall, ObservedTrace
from paracosm.timeline.kineto import collective_of

__all__ = ["groups_of", "kind_of", "ranks_of"]

_INIT = "## process_group:init ##"


def kind_of(call: ObservedCall) -> str:
    """Return what a collective is, "all_reduce"; as the trace names it where that is not known."""
    named = call.attributes.get("collective_name")
    values = call.inputs.values
    texts = [value for value in values if isinstance(value, str)] if not named else [named]
    name = str(texts[0]) if texts else "collective"
    return collective_of(name) or name


def groups_of(trace: ObservedTrace) -> dict[str, tuple[int, ...]]:
    """Return the ranks of the process groups that the trace describes, by name and by number.

    A group without a list of ranks is that of all.
    """
    groups: dict[str, tuple[int, ...]] = {}
    for call in trace.calls.values():
        if call.name != _INIT:
            continue
        for value in call.inputs.values:
            for found in _described(value):
                listed = found.get("ranks")
                listed = list(listed) if isinstance(listed, list | dict) else []
                ranks = [int(rank) for rank in listed if str(rank).isdecimal()]
                size = found.get("group_size")
                if not ranks and type(size) is int and 0 < size < 10_000_000:
                    ranks = list(range(size))
                for key in ("pg_name", "backend_id"):
                    if key in found:
                        groups[str(found[key])] = tuple(ranks)
    return groups


def _described(value: Any) -> list[dict[str, Any]]:
    try:
        found = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def ranks_of(call: ObservedCall, groups: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the ranks that a collective runs among; nothing where the trace does not say."""
    named = call.attributes.get("pg_name")
    if isinstance(named, str) and named in groups:
        return groups[named]
    values = call.inputs.values
    for value in values[2:3] + values[1:2]:
        key = str(value[0]) if isinstance(value, list) and value else str(value)
        if key in groups:
            return groups[key]
    return ()
