"""What the host knows of tensors on a device that computes nothing.

A small tensor that comes from the host keeps its value, and so does what is computed from such
tensors alone: bucket indices of DDP, a learning rate on the device, the step count of an optimizer.
Everything else was never computed. A script that reads it gets a value by a rule with a name; each
is counted, with the line that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only

from paracosm.emulation.rank.call_site import call_site

MOST_KNOWN = 4096  # elements of a tensor whose value is kept
_PATIENCE = 20_000  # times that one line may read an assumed value in one iteration

_NO_OVERFLOW = "no gradient overflows, no value is NaN"
_NUMBER = "a number that was read is 1"
_FLAG = "a truth value that was read is false"


class _Cell:
    """What all views of one known tensor share: whether it still has its value."""

    stale = False


class Values:
    """The values of fake tensors, kept at these themselves: weak references would forbid swaps."""

    def __init__(
        self,
        assume: Callable[[str, str], int],  # counts an assumption made at a line of the script
        refuse: Callable[[str], Exception],
    ) -> None:
        self._assume = assume
        self._refuse = refuse

    def known(self, tensor: Any) -> Tensor | None:
        """Return the value of a fake tensor, on the host; None where nobody knows it."""
        held = getattr(tensor, "_paracosm_value", None)
        if held is None:
            return None
        value, cell = held
        return None if cell.stale else value

    def keep(self, tensor: Any, value: Tensor) -> None:
        """Let a fake tensor have a value from now on; a large one is not kept."""
        if value.numel() <= MOST_KNOWN and value.shape == tensor.shape:
            tensor._paracosm_value = value, _Cell()
        else:
            self.forget([tensor])

    def forget(self, tensors: Sequence[Any]) -> None:
        """Let fake tensors, and all views of them, have no value any more."""
        for tensor in tensors:
            held = getattr(tensor, "_paracosm_value", None)
            if held is not None:
                held[1].stale = True

    def follow(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        outputs: Sequence[Any],  # fake tensors
        mutated: Sequence[Any],
        is_view: bool,
    ) -> None:
        """Compute on the host what an op does to known values, or forget what it overwrites."""
        flat = tree_flatten((args, kwargs))[0]
        inputs = [each for each in flat if isinstance(each, FakeTensor)]
        name = str(func.overloadpacket)
        if name in _KEEP_THEIRS:
            return
        fresh = [each for each in outputs if all(each is not other for other in mutated)]
        small = all(each.numel() <= MOST_KNOWN for each in (*inputs, *outputs))
        follows = (
            bool(inputs) and all(self.known(each) is not None for each in inputs)
            if name not in _WITHOUT_INPUTS
            else True
        )
        if not (small and follows) or torch.Tag.nondeterministic_seeded in func.tags:
            self.forget(mutated)
            return
        try:
            values = self._computed(func, args, kwargs)
        except Exception:  # an op that the host lacks, or that the CPU refuses
            self.forget(mutated)
            return
        results = [each for each in tree_flatten(values)[0] if isinstance(each, Tensor)]
        if len(results) != len(outputs):
            return
        source: Any = inputs[0] if is_view and inputs else None
        cell = None if source is None else source._paracosm_value[1]
        for output, value in zip(outputs, results, strict=True):
            if any(output is each for each in fresh) and value.shape == output.shape:
                output._paracosm_value = value, cell or _Cell()

    def _computed(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        def of(tensor: Any) -> Tensor:
            value = self.known(tensor)
            if value is None:  # its value does not matter to such an op
                return torch.empty(tensor.shape, dtype=tensor.dtype)
            return value

        with _disable_current_modes(), torch.no_grad():
            host_args = tree_map_only(FakeTensor, of, args)
            host_kwargs = tree_map_only(FakeTensor, of, dict(kwargs))
            if host_kwargs.get("device") is not None:
                host_kwargs["device"] = torch.device("cpu")
            return func(*host_args, **host_kwargs)

    def read(self, tensor: Any) -> Tensor:
        """Return the value that the host reads: the tensor's own, or an assumed one."""
        value = self.known(tensor)
        if value is not None:
            return value.clone()
        if tensor.dtype == torch.bool:
            self._assumed(_FLAG)
            number: bool | int = False
        else:
            self._assumed(_NUMBER)
            number = 1
        with _disable_current_modes():
            return torch.full(tensor.shape, number, dtype=tensor.dtype)

    def assume_no_overflow(self) -> None:
        self._assumed(_NO_OVERFLOW)

    def refused(self, what: str) -> Exception:
        """Return the error of something that needs values, recorded with the line that asked."""
        return self._refuse(what)

    def _assumed(self, text: str) -> None:
        site = call_site()
        if self._assume(text, site) > _PATIENCE:
            raise self._refuse(
                "a loop that waits until a value changes, which nobody computes: it has read the "
                f"same one {_PATIENCE:,} times"
            )


# They change what the host knows in no way that it can see: the scale stays, as without overflow.
_KEEP_THEIRS = frozenset(
    {"aten._amp_update_scale_", "aten._amp_foreach_non_finite_check_and_unscale_"}
)

# Their results follow from the arguments that are no tensors.
_WITHOUT_INPUTS = frozenset(
    f"aten.{name}"
    for name in (
        *("full", "zeros", "ones", "arange", "scalar_tensor", "eye", "linspace", "full_like"),
        *("zeros_like", "ones_like", "new_zeros", "new_ones", "new_full", "zero_", "fill_"),
    )
)
