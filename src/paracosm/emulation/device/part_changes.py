"""What-ifs about parts of what all ranks do: kernels, copies, the host, computing that is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paracosm.cluster.changes import Change
from paracosm.emulation.device.durations import DeviceDurations
from paracosm.emulation.device.program import HostCosts
from paracosm.emulation.device.recording import Recording
from paracosm.errors import unknown


def with_changed_parts(
    recordings: Sequence[Recording],
    durations: Sequence[DeviceDurations],
    host: HostCosts,
    changes: Sequence[Change],
) -> tuple[list[DeviceDurations], HostCosts]:
    """Return durations of ops and costs of the host after changes of parts.

    A kernel's pattern is about names of ops ("aten.mm.default"), and about their classes
    ("product", "attention").

    Raises:
        InputError: a change without effect, since nothing has such a name, or takes any time.
    """
    changed = list(durations)
    for change in changes:
        if change.what == "host":
            if not (host.op or host.collective):
                raise change.error("has no effect: the host takes no time (--launch)")
            host = replace(
                host,
                op=host.op * change.factor,
                collective=host.collective * change.factor,
                in_optimizer=None
                if host.in_optimizer is None
                else host.in_optimizer * change.factor,
            )
            continue
        meant = [
            np.array(
                [
                    _is_meant(change, op.name, kind)
                    for op, kind in zip(recording.ops, times.classes, strict=True)
                ],
                dtype=np.bool_,
            )
            for recording, times in zip(recordings, changed, strict=True)
        ]
        if not any(
            (times.seconds[each] > 0).any() for times, each in zip(changed, meant, strict=True)
        ):
            if change.what != "kernel":
                raise change.error(f"has no effect: the script has no {change.what}")
            known = sorted({kind for times in changed for kind in times.classes} - {"copy"})
            raise change.error(str(unknown("kernel", change.pattern, known)))
        changed = [
            replace(times, seconds=np.where(each, times.seconds * change.factor, times.seconds))
            for times, each in zip(changed, meant, strict=True)
        ]
    return changed, host


def _is_meant(change: Change, name: str, kind: str) -> bool:
    if change.what == "copies" or kind == "copy":
        return change.what == "copies" and kind == "copy"
    return change.what == "compute" or change.means(name) or change.means(kind)


def check_collectives(recordings: Sequence[Recording], changes: Sequence[Change]) -> None:
    """Refuse changes of collectives that a script does not have."""
    kinds = {call.kind for recording in recordings for call in recording.calls}
    for change in changes:
        if not kinds & set(change.kinds):
            has = ", ".join(sorted(kinds)) or "no collectives"
            raise change.error(f"has no effect: the script has {has}")
