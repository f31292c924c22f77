"""What the host knows of tensors on a device that computes nothing.

Small tensors that come from the host keep their values, and so does what is computed from such
tensors alone: bucket indices of DDP, a learning rate on the device, the step count of an optimizer.
Everything else was never computed. What a router chooses, how many elements of a mask are true, and
any number that the script reads are assumed by a rule with a name; each is counted, with the line
that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only

from paracosm.emulation.device import known
from paracosm.emulation.device.assumptions import (
    CLASSES,
    FINITE,
    FLAG,
    LOSS,
    NUMBER,
    Assumptions,
)
from paracosm.emulation.device.choices import CHOOSERS, Router
from paracosm.graphs.capture.calls import ALLOCATE

MOST_KNOWN = 4096  # numbers of a tensor whose value is kept
MOST_COUNTED = 1 << 20  # whole numbers or truth values of one
MOST_CHOSEN = 1 << 25  # of one that follows from what a router chooses


class Values:
    """The values of fake tensors."""

    def __init__(
        self,
        assume: Callable[[str], None],  # counts an assumption, by the name of its rule
        refuse: Callable[[str], Exception],
        rules: Assumptions,
        seed: int,
    ) -> None:
        self.assume, self._refuse, self.rules = assume, refuse, rules
        self._router = Router(rules.routing, seed)

    def known(self, tensor: Any) -> Tensor | None:
        """Return the value of a fake tensor, on the host; None where nobody knows it."""
        with _disable_current_modes():
            return known.value_of(tensor)

    def origin(self, tensor: Any) -> str:
        """Return the rule by which a known value was assumed; "" if it was computed."""
        mirror = known.mirror_of(tensor)
        return "" if mirror is None else mirror.origin

    def keep(self, tensor: Any, value: Tensor, origin: str = "") -> None:
        """Let a fake tensor have a value from now on; a large one is not kept."""
        with _disable_current_modes():
            if value.shape == tensor.shape:
                known.write(tensor, value, origin, _most(tensor, origin))
            else:
                known.forget(tensor, MOST_COUNTED)

    def forget(self, tensors: Sequence[Any]) -> None:
        """Let fake tensors, and what views of them share with these, have no value any more."""
        if any(known.mirror_of(tensor) is not None for tensor in tensors):
            with _disable_current_modes():
                for tensor in tensors:
                    known.forget(tensor, MOST_COUNTED)

    def follow(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        outputs: Sequence[Any],  # fake tensors
        mutated: Sequence[Any],
    ) -> None:
        """Compute on the host what an op does to known values, or forget what it overwrites."""
        name = str(func.overloadpacket)
        if name in _KEEP_THEIRS or name in ALLOCATE or func.is_view:
            return  # a view shares what is known of its storage
        flat = tree_flatten((args, kwargs))[0]
        inputs = [value for value in flat if isinstance(value, FakeTensor)]
        written = mutated if name in _OVERWRITES or func._overloadname.endswith("out") else ()
        read = [tensor for tensor in inputs if all(tensor is not other for other in written)]
        if name not in _SPECIAL and (
            not inputs or any(known.mirror_of(tensor) is None for tensor in read)
        ):
            self.forget(mutated)  # as almost always
            return
        with _disable_current_modes(), torch.no_grad():
            if not self._followed(func, name, args, kwargs, outputs, mutated, read):
                for tensor in mutated:
                    known.forget(tensor, MOST_COUNTED)

    def _followed(
        self,
        func: Any,
        name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        outputs: Sequence[Any],
        mutated: Sequence[Any],
        read: Sequence[Any],  # the inputs whose values matter
    ) -> bool:
        if name in _CONSTANTS:
            return _fill(_CONSTANTS[name], args, kwargs, [*mutated, *outputs])
        if name in CHOOSERS and outputs and known.mirror_of(read[0]) is None:
            return self._chosen(name, args, kwargs, outputs)
        if name in _COMPARES:
            truth = _finite(name, args)
            if truth is not None:
                known.fill(outputs[0], torch.tensor(truth), FINITE, MOST_COUNTED)
                return True
        if name in _COUNTS and read[0].dtype == torch.bool:
            self.mask(read[0])
        if torch.Tag.nondeterministic_seeded in func.tags:
            return False
        if any(known.mirror_of(tensor) is None for tensor in read):
            return False
        if read and all(known.fill_of(tensor) is not None for tensor in read):
            is_alike = torch.Tag.pointwise in func.tags or name in _ONE_OF_MANY
            if is_alike and self._filled(func, args, kwargs, outputs, read):
                return True
        values = [known.value_of(tensor) for tensor in read]
        if any(value is None for value in values):
            return False
        origins = [self.origin(tensor) for tensor in read]
        origin = next(filter(None, origins), "")
        if name in ("aten.eq", "aten.ne") and _compares_with_data(read, origins):
            origin = CLASSES
        if any(tensor.numel() > _most(tensor, origin) for tensor in (*read, *outputs)):
            return False
        return _computed(func, name, args, kwargs, outputs, mutated, origin)

    def _filled(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        outputs: Sequence[Any],
        read: Sequence[Any],
    ) -> bool:
        """Do for one number what an op does for all elements alike."""
        origin = next(filter(None, map(self.origin, read)), "")
        try:
            result = _on_host(func, args, kwargs, lambda tensor: _one(tensor).clone())
        except Exception:  # one number has no dimension along which to reduce
            return False
        results = [tensor for tensor in tree_flatten(result)[0] if isinstance(tensor, Tensor)]
        if len(results) != len(outputs):
            return False
        for output, value in zip(outputs, results, strict=True):
            known.fill(output, value, origin, MOST_COUNTED)
        return True

    def _chosen(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Sequence[Any]
    ) -> bool:
        indices = outputs[CHOOSERS[name]] if CHOOSERS[name] < len(outputs) else None
        if indices is None or indices.dtype != torch.int64 or args[0].numel() > MOST_CHOSEN * 256:
            return False
        if indices.numel() > MOST_CHOSEN:
            return False
        value = self._router.choose(name, args, kwargs, indices)
        if value is not None:
            known.write(indices, value, self.rules.experts, MOST_CHOSEN)
        return value is not None

    def mask(self, tensor: Any) -> tuple[int, Tensor | None]:
        """Return how many elements of a mask are true, and its value if that can be kept.

        One that was never computed gets a value by the rule, and keeps it.
        """
        with _disable_current_modes():
            value = known.value_of(tensor)
            if value is None:
                density, size = self.rules.density, tensor.numel()
                if density in (0, 1):
                    number = torch.tensor(bool(density))
                    known.fill(tensor, number.to(tensor.dtype), self.rules.masks, MOST_COUNTED)
                    return round(density * size), known.value_of(tensor)
                count = int(size * density + 0.5)
                if size > MOST_CHOSEN:
                    return count, None
                places = torch.arange(size + 1, dtype=torch.float64) * density + 0.5
                value = places.floor().diff().to(tensor.dtype).reshape(tensor.shape)
                known.write(tensor, value, self.rules.masks, MOST_CHOSEN)
                return count, value
            return int(torch.count_nonzero(value)), value

    def depend_on(self, tensor: Any) -> None:
        """Count that the size of a result follows from a tensor, where its value was assumed."""
        origin = self.origin(tensor)
        if origin:
            self.assume(origin)

    def read(self, tensor: Any) -> Tensor:
        """Return the value that the host reads: the tensor's own, or an assumed one."""
        value = self.known(tensor)
        if value is not None:
            self.depend_on(tensor)
            with _disable_current_modes():
                return value.clone()
        is_flag = tensor.dtype == torch.bool
        if is_flag:
            self.assume(FLAG)
        else:
            self.assume(LOSS if tensor.requires_grad else NUMBER)
        with _disable_current_modes():
            return torch.full(tensor.shape, not is_flag, dtype=tensor.dtype)

    def assume_no_overflow(self) -> None:
        self.assume(FINITE)

    def refused(self, what: str) -> Exception:
        """Return the error of something that needs values, recorded with the line that asked."""
        return self._refuse(what)


def _most(tensor: Any, origin: str) -> int:
    """Return the elements up to which a value is kept, and computed with."""
    if origin:
        return MOST_CHOSEN
    is_whole = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    return MOST_COUNTED if is_whole else MOST_KNOWN


def _is_fake(value: Any) -> bool:
    return isinstance(value, FakeTensor)


def _fill(
    number: float | int | str, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any
) -> bool:
    """Fill what an op makes or overwrites with one number: its own, or that of an argument."""
    if isinstance(number, str):
        place = int(number)
        given = args[place] if len(args) > place else kwargs.get("fill_value", kwargs.get("value"))
        if isinstance(given, FakeTensor):
            value = known.value_of(given)
            if value is None:
                return False
        elif given is None:
            return False
        else:
            value = torch.as_tensor(given)
    else:
        value = torch.tensor(number)
    for output in outputs:
        known.fill(output, value.reshape(()), "", MOST_COUNTED)
    return True


def _finite(name: str, args: Sequence[Any]) -> bool | None:
    """Return what a check for NaN or infinity finds in numbers that nobody computed."""
    tensor = args[0]
    if not isinstance(tensor, FakeTensor) or known.mirror_of(tensor) is not None:
        return None
    other = args[1] if len(args) > 1 else None
    if name in ("aten.isnan", "aten.isinf"):
        return False
    if other is tensor or (isinstance(other, float) and other in (float("inf"), float("-inf"))):
        return (name == "aten.eq") == (other is tensor)
    return None


def _compares_with_data(inputs: Sequence[Any], origins: Sequence[str]) -> bool:
    """Whether choices are compared with numbers from the host, as predictions are with labels."""
    if len(inputs) != 2 or bool(origins[0]) == bool(origins[1]):
        return False
    data = inputs[1] if origins[0] else inputs[0]
    return data.numel() > 1 and getattr(data.untyped_storage(), FROM_HOST, False)


def _computed(
    func: Any,
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    outputs: Sequence[Any],
    mutated: Sequence[Any],
    origin: str,
) -> bool:
    targets = {}
    for tensor in mutated:
        target = known.writable(tensor, _most(tensor, origin))
        if target is None:
            return False
        targets[id(tensor)] = target

    def value(tensor: Any) -> Tensor:
        if id(tensor) in targets:
            return targets[id(tensor)]
        held = known.value_of(tensor)
        assert held is not None
        if name == "aten.histc":
            return held.double()  # the CPU counts no whole numbers
        return held

    try:
        result = _on_host(func, args, kwargs, value)
    except Exception:  # an op that the host lacks, or that the CPU refuses
        return False
    results = [tensor for tensor in tree_flatten(result)[0] if isinstance(tensor, Tensor)]
    for tensor in mutated:
        known.settle(tensor, origin)
    if len(results) != len(outputs):
        return True
    inputs = filter(_is_fake, tree_flatten((args, kwargs))[0])
    shared = {tensor.untyped_storage()._cdata for tensor in inputs}
    for output, tensor in zip(outputs, results, strict=True):
        if output.untyped_storage()._cdata not in shared and tensor.shape == output.shape:
            known.write(output, tensor, origin, _most(output, origin))
    return True


def _on_host(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], value: Callable[[Any], Tensor]
) -> Any:
    host_args = tree_map_only(FakeTensor, value, args)
    host_kwargs = tree_map_only(FakeTensor, value, dict(kwargs))
    if host_kwargs.get("device") is not None:
        host_kwargs["device"] = torch.device("cpu")
    return func(*host_args, **host_kwargs)


def _one(tensor: Any) -> Tensor:
    number = known.fill_of(tensor)
    assert number is not None
    return number


FROM_HOST = "_paracosm_from_host"
"""The attribute of a storage whose numbers were copied from the host."""

# They change what the host knows in no way that it can see: the scale stays, as without overflow.
_KEEP_THEIRS = frozenset(
    {"aten._amp_update_scale_", "aten._amp_foreach_non_finite_check_and_unscale_"}
)

# What fills with one number: the number, or the place of the argument that is it.
_CONSTANTS: Mapping[str, float | int | str] = {
    **dict.fromkeys(("aten.zeros", "aten.zeros_like", "aten.new_zeros", "aten.zero_"), 0),
    **dict.fromkeys(("aten.ones", "aten.ones_like", "aten.new_ones"), 1),
    **dict.fromkeys(("aten.full", "aten.full_like", "aten.fill_"), "1"),
    "aten.new_full": "2",
    "aten.scalar_tensor": "0",
}
_RANGES = ("aten.arange", "aten.eye", "aten.linspace", "aten.tril_indices", "aten.triu_indices")
_OVERWRITES = frozenset({"aten.copy_", "aten._foreach_copy_"})
_COMPARES = frozenset({"aten.eq", "aten.ne", "aten.isnan", "aten.isinf"})
_COUNTS = frozenset({"aten.sum", "aten.count_nonzero"})

_SPECIAL = frozenset({*_CONSTANTS, *_RANGES, *_COMPARES, *_COUNTS, *CHOOSERS})
"""Ops that may have a known result of what is not known."""

# Of equal elements, their result is that of one of them.
_ONE_OF_MANY = frozenset(
    f"aten.{name}" for name in ("all", "any", "amax", "amin", "max", "min", "mean", "clone")
) | {"aten._to_copy"}
