"""What limits a traced job, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.prediction.traces.outcome import Outcome

__all__ = ["bottleneck_of"]


def bottleneck_of(outcome: Outcome, ranks: Sequence[int]) -> str:
    """Return what takes the largest part of the ranks' time, and how large it is."""
    total = sum(each.total for each in outcome.breakdowns)
    if not total:
        return "Nothing takes time."
    parts = {
        name: sum(getattr(each, name) for each in outcome.breakdowns) / total
        for name in ("compute", "exposed_communication", "waiting", "host")
    }
    name = max(parts, key=lambda part: parts[part])
    share = f"{parts[name]:.0%}"
    loading = sum(each.data_loading for each in outcome.breakdowns) / total
    many = "the ranks'" if len(ranks) > 1 else "the"
    if name == "compute":
        return f"Computation: it takes {share} of {many} time."
    if name == "exposed_communication":
        return f"Communication: {share} of {many} time is exposed."
    if name == "waiting" and outcome.straggler is not None:
        return (
            f"Waiting for other ranks: {share} of {many} time, for rank {outcome.straggler.rank} "
            "most often."
        )
    if name == "host" and loading > parts["host"] / 2:
        return f"Data loading: the training loop waits {loading:.0%} of {many} time for data."
    return f"The host: for {share} of {many} time the device has nothing to do."
