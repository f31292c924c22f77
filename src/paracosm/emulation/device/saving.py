"""Checkpoints of tensors on a device that is not there: stand-ins, which have all but the numbers.

`torch.save` writes the shape, type and device of such a tensor, and its value where that is known.
`torch.load` in an emulated script makes them again, where `map_location` says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from paracosm.emulation.device.values import Values


class _Location(threading.local):
    wanted: Any = None  # what `torch.load` was told under way


_location = _Location()
_values: list[Values] = []  # of the device of this process


def save_stand_ins(values: Values, copied: Callable[[Tensor], None]) -> None:
    """Let tensors on the device be pickled; `copied` is told of each that the host copies."""
    _values[:] = [values]
    fakes: Any = FakeTensor

    def reduce(tensor: Any, protocol: int) -> Any:
        copied(tensor)
        value = values.known(tensor)
        arguments = (
            tuple(tensor.size()),
            tuple(tensor.stride()),
            tensor.dtype,
            str(tensor.device),
            tensor.requires_grad,
            isinstance(tensor, torch.nn.Parameter),
            None if value is None else value.tolist(),
        )
        return stand_in, arguments

    fakes.__reduce_ex__ = reduce
    serialization: Any = torch.serialization
    serialization.add_safe_globals([stand_in])
    load = serialization.load

    @wraps(load)
    def loaded(f: Any, map_location: Any = None, *arguments: Any, **options: Any) -> Any:
        before, _location.wanted = _location.wanted, map_location
        moved: dict[int, tuple[Any, torch.device]] = {}  # of storages, by their address

        def placed(storage: Any, location: str) -> Any:
            if callable(map_location):
                return map_location(storage, location)
            where = _placed(location)
            if where.type == "cuda":
                moved[storage._cdata] = storage, where
            return storage

        try:
            result = load(f, placed, *arguments, **options)
        finally:
            _location.wanted = before
        return _moved(result, moved) if moved else result

    pytorch: Any = torch
    pytorch.load = serialization.load = loaded


def stand_in(
    size: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype,
    device: str,
    requires_grad: bool,
    is_parameter: bool,
    value: Any,  # as `Tensor.tolist` has it
) -> Tensor:
    """Return a tensor like one that was saved.

    Raises:
        NotImplementedError: this is no emulated script.
    """
    if not _values:
        raise NotImplementedError(
            "a checkpoint of a script whose device was not there: its numbers were never computed"
        )
    where = _placed(device)
    if where.type == "cpu" and value is None:
        tensor = torch.ones(size, dtype=dtype)
    elif value is not None and where.type != "meta":
        tensor = torch.tensor(value, dtype=dtype).to(where)
    else:
        tensor = torch.empty_strided(size, stride, dtype=dtype, device=where)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _moved(result: Any, moved: Mapping[int, tuple[Any, torch.device]]) -> Any:
    """Move tensors of the host to the device, in containers and modules."""
    done: dict[int, Any] = {}

    def to_device(tensor: Any) -> Any:
        key = id(tensor)
        if key not in done and not isinstance(tensor, FakeTensor):
            _, where = moved.get(tensor.untyped_storage()._cdata, (None, tensor.device))
            done[key] = tensor, tensor.detach().to(where).requires_grad_(tensor.requires_grad)
            if isinstance(tensor, torch.nn.Parameter):
                done[key] = tensor, torch.nn.Parameter(done[key][1], tensor.requires_grad)
        return done.get(key, (None, tensor))[1]

    def in_module(module: torch.nn.Module) -> torch.nn.Module:
        for part in module.modules():
            for held in (part._parameters, part._buffers):
                for name, tensor in held.items():
                    held[name] = None if tensor is None else to_device(tensor)
        return module

    result = tree_map_only(torch.nn.Module, in_module, result)
    return tree_map_only(Tensor, to_device, result)


def _placed(device: str) -> torch.device:
    wanted: Any = _location.wanted
    if isinstance(wanted, dict):
        wanted = next((to for held, to in wanted.items() if str(held) == device), device)
    elif callable(wanted):
        storage: Any = torch.UntypedStorage(0)  # type: ignore[no-untyped-call]
        moved = wanted(storage, device)
        return torch.device(device) if moved is None else moved.device
    where = torch.device(device if wanted is None else wanted)
    if str(where) == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return where
