"""What Python itself asks of tensors on the device: their text, their numbers, their memory."""

from __future__ import annotations

import copy
import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from paracosm.emulation.device.state import Device


def answer_for_tensors(device: Device, refuse: Callable[[str], Exception]) -> None:
    """Let tensors on the device answer scripts as those of a GPU, or of a CPU, do."""
    on_device: Callable[[Any], bool] = lambda tensor: (
        isinstance(tensor, FakeTensor) and tensor.fake_device.type == device.kind
    )
    on_host = device.values.read if device.kind == "cpu" else lambda tensor: tensor.cpu()
    _show_values(on_device, on_host)
    if device.kind == "cpu":
        fakes: Any = FakeTensor
        fakes.numpy = lambda tensor, *, force=False: on_host(tensor).numpy()
    _move_data()
    _like_plain_ones()
    _copy_deeply(on_device)
    _without_pinning()
    _refuse_addresses(on_device, refuse)


def _show_values(on_device: Callable[[Any], bool], on_host: Callable[[Any], Tensor]) -> None:
    """Copy to the host what is printed or listed, as on a GPU; there it has an assumed value."""
    tensors: Any = Tensor
    fakes: Any = FakeTensor
    text, numbers = tensors.__repr__, tensors.tolist

    def formatted(tensor: Any, spec: str) -> str:
        if on_device(tensor):
            value = tensor.item() if tensor.dim() == 0 else on_host(tensor.detach())
            return format(value, spec)
        return object.__format__(tensor, spec)

    def shown(tensor: Any, *, tensor_contents: Any = None) -> str:
        asking = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0]
        if not on_device(tensor) or asking == "torch":
            return str(text(tensor, tensor_contents=tensor_contents))
        value = text(on_host(tensor.detach()))
        return f"{value[:-1]}, device='{tensor.device}')"

    def listed(tensor: Any) -> Any:
        return numbers(on_host(tensor.detach()) if on_device(tensor) else tensor)

    fakes.__format__, fakes.__repr__, fakes.__str__ = formatted, shown, shown
    fakes.tolist = listed


def _move_data() -> None:
    """Let `tensor.data = tensor.to("cuda")`, as FSDP2 has it, make a tensor of the device's kind.

    A real tensor and a fake one are of different classes, so they are swapped.
    """
    tensors: Any = Tensor
    held: Any = torch._C.TensorBase.__dict__["data"]
    swap: Any = torch.utils.swap_tensors

    def get(tensor: Any) -> Any:
        return held.__get__(tensor)

    def put(tensor: Any, value: Any) -> None:
        if isinstance(tensor, FakeTensor) == isinstance(value, FakeTensor):
            held.__set__(tensor, value)
            return
        made: Any = value.detach()
        if isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(made, requires_grad=tensor.requires_grad)
        else:
            made.requires_grad_(tensor.requires_grad)
        swap(tensor, made)

    tensors.data = property(get, put)


def _like_plain_ones() -> None:
    """Let optimizers and modules take fake tensors as they take those that they stand for."""
    # Foreach kernels are for tensors of known classes.
    utilities = importlib.import_module("torch.utils._foreach_utils")
    optimizers = importlib.import_module("torch.optim.optimizer")
    for module in (utilities, optimizers):
        known = getattr(module, "_foreach_supported_types", None)
        if isinstance(known, list) and FakeTensor not in known:
            known.append(FakeTensor)
    # Parameters keep their identity, and ties, as modules are moved or converted.
    torch.__future__.set_swap_module_params_on_conversion(True)


def _copy_deeply(on_device: Callable[[Any], bool]) -> None:
    """Copy a tensor on the device by an op of it, where PyTorch copies the storage."""
    fakes: Any = FakeTensor
    plain = fakes.__deepcopy__

    def copied(tensor: Any, memo: dict[int, Any]) -> Any:
        if not (on_device(tensor) and tensor.is_leaf):
            return plain(tensor, memo)
        if id(tensor) in memo:
            return memo[id(tensor)]
        made = tensor.detach().clone()
        if isinstance(tensor, torch.nn.Parameter):
            made = torch.nn.Parameter(made, tensor.requires_grad)
        else:
            made.requires_grad_(tensor.requires_grad)
        if tensor.grad is not None:
            made.grad = copy.deepcopy(tensor.grad, memo)
        memo[id(tensor)] = made
        return made

    fakes.__deepcopy__ = copied


def _without_pinning() -> None:
    """Pinned memory is memory: copies from it are recorded with what the script says of them."""
    tensors: Any = Tensor
    tensors.pin_memory = lambda tensor, device=None: tensor
    tensors.is_pinned = lambda tensor, device=None: True
    tensors.record_stream = lambda tensor, stream: None


def _refuse_addresses(on_device: Callable[[Any], bool], refuse: Callable[[str], Exception]) -> None:
    """Refuse the address of what is nowhere, for which kernels of the script's own would ask."""
    tensors: Any = Tensor
    address = tensors.data_ptr

    def data_ptr(tensor: Any) -> int:
        asking = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0]
        if on_device(tensor) and asking != "torch":
            raise refuse("the address of a tensor, as a kernel of your own or Triton's takes it,")
        if on_device(tensor):  # PyTorch asks whether tensors are the same
            return int(tensor.untyped_storage()._cdata + tensor.storage_offset() * tensor.itemsize)
        return int(address(tensor))

    fakes: Any = FakeTensor
    fakes.data_ptr = data_ptr
