"""Recomputation (Chen et al. 2016): activations are dropped, and computed again when needed.

    compute | forward 0 | forward 1 | forward 1 | backward 1 | forward 0 | backward 0 |
                                      ^ again                  ^ again

The forward pass keeps what one layer hands to the next one. Before its backward pass each layer is
computed again from that, so that one layer's activations are there at a time.
"""

from __future__ import annotations

from paracosm.jobs.strategies.layers import is_numbered
from paracosm.jobs.strategies.stage import Stage

__all__ = ["recomputed_layers"]


def recomputed_layers(stage: Stage) -> frozenset[int]:
    """Return the layers of a stage that are computed again.

    They are those with a number ("h.0"), of which a model has many; without any, all layers. What
    comes before and after them (embedding, head, loss) is kept.
    """
    plan = stage.plan
    if not plan.strategy.recompute or not stage.part.backward:
        return frozenset()
    names = plan.layers.names
    some = any(is_numbered(name) for name in names)
    here = {layer for layer, _ in plan.sections(stage.part.forward)}
    with_backward = {layer for layer, _ in plan.sections(stage.part.backward)}
    return frozenset(
        layer for layer in here & with_backward if not some or is_numbered(names[layer])
    )
