"""What Python itself asks of tensors on the device: their text, their numbers, their memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor


def answer_for_tensors(refuse: Callable[[str], Exception]) -> None:
    """Let tensors on the device answer scripts as those of a GPU do."""
    _show_values()
    _move_data()
    _without_pinning()
    _refuse_addresses(refuse)


def _on_device(tensor: Any) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"


def _show_values() -> None:
    """Copy to the host what is printed or listed, as on a GPU; there it has an assumed value."""
    tensors: Any = Tensor
    fakes: Any = FakeTensor
    text, numbers = tensors.__repr__, tensors.tolist

    def formatted(tensor: Any, spec: str) -> str:
        if _on_device(tensor):
            value = tensor.item() if tensor.dim() == 0 else tensor.detach().cpu()
            return format(value, spec)
        return object.__format__(tensor, spec)

    def shown(tensor: Any, *, tensor_contents: Any = None) -> str:
        asking = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0]
        if not _on_device(tensor) or asking == "torch":
            return str(text(tensor, tensor_contents=tensor_contents))
        value = text(tensor.detach().cpu())
        return f"{value[:-1]}, device='{tensor.device}')"

    def listed(tensor: Any) -> Any:
        return numbers(tensor.detach().cpu() if _on_device(tensor) else tensor)

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


def _without_pinning() -> None:
    """Pinned memory is memory: copies from it are recorded with what the script says of them."""
    tensors: Any = Tensor
    tensors.pin_memory = lambda tensor, device=None: tensor
    tensors.is_pinned = lambda tensor, device=None: True
    tensors.record_stream = lambda tensor, stream: None


def _refuse_addresses(refuse: Callable[[str], Exception]) -> None:
    """Refuse the address of what is nowhere, for which kernels of the script's own would ask."""
    tensors: Any = Tensor
    address = tensors.data_ptr

    def data_ptr(tensor: Any) -> int:
        asking = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0]
        if _on_device(tensor) and asking != "torch":
            raise refuse("the address of a tensor, as a kernel of your own or Triton's takes it,")
        return int(address(tensor))

    fakes: Any = FakeTensor
    fakes.data_ptr = data_ptr
