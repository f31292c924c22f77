"""The parameters of a model as one flat vector, partitioned over parameter servers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call

from paracosm.errors import InputError
from paracosm.models.build import class_axis
from paracosm.models.registry import Model

_BYTES = 4  # of a float32

Parameters = Tensor | tuple[Tensor, ...]
"""Of a model: one flat vector, or its tensors in the order of a layout. A gradient has the form of
the parameters that it was asked for at."""


@dataclass(frozen=True)
class ParameterLayout:
    """Where each trainable tensor of a module lies in one flat float32 vector.

    The tensors of one server, or of one fragment, are contiguous: `slices[s]` is what server `s`
    holds. Tensors that do not require a gradient are no parameters; they stay in the module.
    """

    names: tuple[str, ...]  # in the order of the flat vector
    shapes: tuple[torch.Size, ...]
    sizes: tuple[int, ...]  # elements of each tensor
    slices: tuple[slice, ...]  # of the flat vector, one for each server or fragment

    @classmethod
    def of(cls, module: nn.Module, servers: int = 1, fragments: int = 1) -> "ParameterLayout":
        """Lay out the trainable tensors of `module`, all of float32.

        They are divided among servers by size, or else into fragments by layer.
        """
        tensors = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not tensors:
            raise InputError("the model has no parameters to train")
        for name, tensor in tensors:
            if tensor.dtype != torch.float32:
                raise InputError(f'the model\'s parameter "{name}" is {tensor.dtype}, not float32')
            if tensor.is_meta or tensor.layout != torch.strided:
                storage = "on the meta device" if tensor.is_meta else tensor.layout
                raise InputError(f'the model\'s parameter "{name}" is {storage}: make it dense')
        if servers > len(tensors):
            raise InputError(
                f"{servers} servers for a model of {len(tensors)} tensors: "
                f"at most {len(tensors)} servers can hold one each"
            )
        if fragments > 1:
            parts = strided([name for name, _ in tensors], fragments)
        else:
            parts = partition([tensor.numel() for _, tensor in tensors], servers)
        ordered = [tensors[index] for part in parts for index in part]
        ends = accumulate(sum(tensors[index][1].numel() for index in part) for part in parts)
        return cls(
            names=tuple(name for name, _ in ordered),
            shapes=tuple(tensor.shape for _, tensor in ordered),
            sizes=tuple(tensor.numel() for _, tensor in ordered),
            slices=tuple(slice(begin, end) for begin, end in pairwise((0, *ends))),
        )

    @cached_property
    def size(self) -> int:
        return sum(self.sizes)

    @property
    def bytes_per_server(self) -> tuple[int, ...]:
        return tuple(_BYTES * (part.stop - part.start) for part in self.slices)

    @property
    def shapes_per_server(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The shapes of each server's tensors, in the order of the flat vector."""
        begins = list(accumulate(self.sizes, initial=0))
        return tuple(
            tuple(
                tuple(shape)
                for begin, shape in zip(begins, self.shapes, strict=False)
                if part.start <= begin < part.stop
            )
            for part in self.slices
        )

    def places_of(self, tensors: Sequence[str]) -> tuple[int, ...]:
        """Return the place of each of the named tensors; they are the model's, in any order."""
        place_of_name = {name: place for place, name in enumerate(self.names)}
        strange = next((name for name in tensors if name not in place_of_name), None)
        missing = next((name for name in self.names if name not in tensors), None)
        if strange is not None or missing is not None or len(tensors) != len(place_of_name):
            first = f'"{strange}" is not one' if strange else "they are not these"
            lacks = f'; they lack "{missing}"' if missing else ""
            raise InputError(
                f"the schedule's {len(tensors)} tensors are not the "
                f"{len(place_of_name)} parameters of the model: {first}{lacks}"
            )
        return tuple(place_of_name[name] for name in tensors)

    def tensors(self, parameters: Parameters) -> Sequence[Tensor]:
        """Return the tensors of either form: views, no copies."""
        return parameters if isinstance(parameters, tuple) else self._views(parameters)

    def stacks(self, rows: Tensor) -> list[Tensor]:
        """Return by tensor, [rows, ...], what the flat vectors of a matrix have: views."""
        count, parts = rows.shape[0], rows.split_with_sizes(self.sizes, 1)
        return [part.view(count, *shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def flat(self, parameters: Parameters) -> Tensor:
        """Return the flat vector of either form."""
        if not isinstance(parameters, tuple):
            return parameters
        return torch.cat([tensor.reshape(-1) for tensor in parameters])

    def in_form_of(self, parameters: Parameters, tensors: Sequence[Tensor]) -> Parameters:
        """Return tensors in the form that `parameters` have."""
        return tuple(tensors) if isinstance(parameters, tuple) else self.flat(tuple(tensors))

    def flatten(self, module: nn.Module) -> Tensor:
        """Return a copy of the module's parameters as a flat vector."""
        tensors = dict(module.named_parameters())
        return torch.cat([tensors[name].detach().reshape(-1) for name in self.names])

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the named tensors in a flat vector: views, no copies; works under `vmap`."""
        return dict(zip(self.names, self._views(flat), strict=True))

    def _views(self, flat: Tensor) -> list[Tensor]:
        parts = flat.split_with_sizes(self.sizes)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]


def partition(sizes: Sequence[int], servers: int) -> list[list[int]]:
    """Assign tensors to servers: the largest first, each to the lightest server.

    This is the greedy strategy of TensorFlow's parameter servers (`GreedyLoadBalancingStrategy`),
    fed in order of size (Graham's LPT rule). Ties go to the lower index. Return for each server the
    indices of its tensors, ascending.
    """
    if servers < 1:
        raise InputError(f"{servers} servers: at least one is needed")
    loads = [0] * servers
    parts: list[list[int]] = [[] for _ in range(servers)]
    for index in sorted(range(len(sizes)), key=lambda index: -sizes[index]):
        lightest = min(range(servers), key=loads.__getitem__)
        loads[lightest] += sizes[index]
        parts[lightest].append(index)
    return [sorted(part) for part in parts]


def strided(names: Sequence[str], fragments: int) -> list[list[int]]:
    """Assign tensors to fragments layer by layer in turn: layer l to fragment l modulo `fragments`.

    A layer is an entry of a list of modules, such as `h.3`, or a module beside those, such as an
    embedding; they count in the order of their tensors. Douillard et al., "Streaming DiLoCo with
    overlapping communication", 2025 (the strided pattern). Return for each fragment the indices of
    its tensors, ascending.

    Raises:
        InputError: there are fewer layers than fragments.
    """
    layers: dict[str, int] = {}
    places = [layers.setdefault(_layer(name), len(layers)) for name in names]
    if len(layers) < fragments:
        raise InputError(
            f"{fragments} fragments of a model of {len(layers)} layers ({', '.join(layers)}): "
            f"at most {len(layers)} fragments can have one each"
        )
    parts: list[list[int]] = [[] for _ in range(fragments)]
    for index, place in enumerate(places):
        parts[place % fragments].append(index)
    return parts


def _layer(name: str) -> str:
    """Return what holds a tensor: up to its name's first number, or all but the tensor's own."""
    words = name.split(".")
    number = next((place for place, word in enumerate(words) if word.isdecimal()), len(words) - 2)
    return ".".join(words[: max(number, 0) + 1])


_ELEMENTS = 2**20  # of inputs at a time: a convolution makes fifty times as many of them


def evaluate(
    model: Model,
    layout: ParameterLayout,
    parameters: Parameters,
    x: Tensor,
    y: Tensor,
    chunk: int = 2048,
    buffers: Mapping[str, Tensor] | None = None,
) -> tuple[float, float | None]:
    """Return the mean loss and the accuracy of the model at `parameters` on the examples.

    The model is in evaluation mode: no dropout, and batch normalisation by the running statistics
    of the gradients computed so far, or by those among the `buffers` by name. Where targets are no
    class labels (and outputs no scores), the accuracy is None. `chunk` are examples at a time;
    fewer where they are large.
    """
    tensors = dict(zip(layout.names, layout.tensors(parameters), strict=True))
    tensors |= buffers or {}
    labelled = not torch.is_floating_point(y)
    total, correct = 0.0, 0
    chunk = max(1, min(chunk, _ELEMENTS // max(1, x[0].numel())))
    model.module.eval()
    try:
        with torch.no_grad():
            for inputs, targets in zip(torch.split(x, chunk), torch.split(y, chunk), strict=True):
                labels = model.labels(targets)
                outputs = functional_call(model.module, tensors, (inputs,), labels)
                total += model.loss(outputs, targets).item() * len(inputs)
                scores = getattr(outputs, "logits", outputs)  # of Hugging Face's models
                # Models that take the labels of a sequence may shift them themselves.
                shifted = model.takes_labels and targets.ndim > 1
                axis = None
                if labelled and not shifted and isinstance(scores, Tensor):
                    axis = class_axis(scores, targets)
                labelled = axis is not None
                if axis is not None:
                    correct += int((scores.argmax(axis) == targets).sum())
    finally:
        model.module.train()
    return total / len(x), correct / y.numel() if labelled else None
