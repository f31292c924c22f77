"""The options of a capture, all of which are in the graph's provenance."""

from dataclasses import dataclass

from paracosm.cluster.worker_counts import MOST_NODES
from paracosm.errors import InputError, unknown
from paracosm.models.optimizers import parse_optimizer
from paracosm.models.registry import built_in_of, canonical, written
from paracosm.units import parse_whole

_LARGEST = 2**63 - 1  # size of a tensor, in PyTorch

DTYPES = ("float32", "float64", "bfloat16", "float16")

PARALLEL = ("none", "fsdp2", "tensor", "fsdp2+tensor")
"""How the ranks share the model: not at all; sharded parameters, gathered layer by layer; each
layer split between the ranks; split within groups of `tensor_ranks`, sharded across them."""


@dataclass(frozen=True)
class CaptureOptions:
    """One training step of one rank.

    Attributes:
        model: one of `models.MODELS`, with its parameters, or the user's own
            `package.module:factory` or `file.py:factory`.
        batch: examples of this rank.
        shape: of one example; None for the model's default.
        classes: of a model of images or vectors; None for the model's own, 10 where the images
            are smaller than 64 pixels (as those of CIFAR-10).
        dtype: of parameters and activations, one of `DTYPES`.
        optimizer: one of `models.OPTIMIZERS`, with its options: `sgd(momentum=0.9)`.
        foreach: whether the optimizer handles all parameters in one op (PyTorch's default on CUDA).
        dropout: whether dropout layers drop; otherwise their probability is set to 0.
        train: forward, backward and optimizer; otherwise a forward pass in evaluation mode, without
            gradients, loss and optimizer.
        ranks: of the job.
        parallel: one of `PARALLEL`.
        tensor_ranks: ranks in a group of "fsdp2+tensor"; 1 otherwise.
        device: "cpu", or "cuda" where PyTorch has it.

    Raises:
        InputError: a value that cannot be.
    """

    model: str
    batch: int = 1
    shape: tuple[int, ...] | None = None
    classes: int | None = None
    dtype: str = "float32"
    optimizer: str = "sgd"
    foreach: bool = False
    dropout: bool = False
    train: bool = True
    ranks: int = 1
    parallel: str = "none"
    tensor_ranks: int = 1
    device: str = "cpu"

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", canonical(self.model))
        for value, what, most in (
            (self.batch, "batch", _LARGEST),
            (1 if self.classes is None else self.classes, "classes", _LARGEST),
            (self.ranks, "ranks", MOST_NODES),
            (self.tensor_ranks, "tensor ranks", MOST_NODES),
        ):
            if value < 1:
                raise InputError(f"{what}: {value}, but at least 1 is needed")
            if value > most:
                raise InputError(f"{what}: at most {most:,}, not {str(value)[:40]}")
        if self.shape is not None and min(self.shape, default=1) < 1:
            raise InputError(f"shape: {written(self.shape)}, but sizes of 1 or more are needed")
        if max(self.shape or (1,)) > _LARGEST:
            raise InputError(f"shape: a size is at most {_LARGEST:,}")
        if (model := built_in_of(self.model)) is not None:
            model.check(self.shape, self.classes)
        if self.shape == ():
            raise InputError("shape: nothing, but sizes of 1 or more are needed")
        optimizer = parse_optimizer(self.optimizer)
        object.__setattr__(self, "optimizer", "none" if optimizer is None else str(optimizer))
        for kind, name, valid in (
            ("dtype", self.dtype, DTYPES),
            ("way to share the model", self.parallel, PARALLEL),
        ):
            if name not in valid:
                raise unknown(kind, name, valid)
        if self.device not in ("cpu", "cuda"):
            raise unknown("device", self.device, ("cpu", "cuda"))
        _check_ranks(self)

    def __str__(self) -> str:
        """The name for display: "resnet50, batch 64, 3x32x32"."""
        shape = f", {written(self.shape)}" if self.shape is not None else ""
        return f"{self.model}, batch {self.batch}{shape}"


MOST_ELEMENTS = 1_000_000_000
"""Examples, classes, or elements along one dimension."""


def parse_shape(text: str) -> tuple[int, ...]:
    """Read sizes such as "3x32x32".

    Raises:
        InputError: it is none.
    """
    sizes = [parse_whole(size.strip(), MOST_ELEMENTS) for size in text.lower().split("x")]
    if None in sizes:
        raise InputError(f"write sizes such as 3x32x32, not {text}")
    return tuple(size for size in sizes if size is not None)


def _check_ranks(options: CaptureOptions) -> None:
    if options.parallel == "none":
        if options.ranks > 1:
            raise InputError(
                f"ranks: {options.ranks} ranks need a way to share the model "
                f"({', '.join(PARALLEL[1:])}): add --parallel"
            )
    elif options.ranks == 1:
        raise InputError(f"parallel: {options.parallel} needs 2 ranks or more")
    if options.parallel != "fsdp2+tensor":
        if options.tensor_ranks > 1:
            raise InputError("tensor ranks: only fsdp2+tensor has groups of them")
    elif options.tensor_ranks == 1 or options.ranks % options.tensor_ranks:
        raise InputError(
            f"tensor ranks: {options.ranks} ranks are not groups of {options.tensor_ranks}: give "
            "2 or more that divide them"
        )
    if options.parallel == "tensor" and options.foreach:
        raise InputError("foreach: PyTorch refuses split and whole parameters in one op")
