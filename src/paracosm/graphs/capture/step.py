"""One training step, for real tensors and fake ones; and rank 0 of a job that shares its model."""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from paracosm.errors import InputError, unknown
from paracosm.factory import describe_error, is_reference
from paracosm.graphs.capture.options import CaptureOptions
from paracosm.models.build import build_workload
from paracosm.models.optimizers import parse_optimizer
from paracosm.models.registry import Workload, built_in_of

RATE = 1e-4  # of learning: it changes parameters but little


def _ignore_phase(phase: str) -> None:
    """Hear that a phase begins."""


class TrainingStep:
    """Forward, backward and optimizer of a workload; or its forward pass alone.

    In evaluation mode the step is a forward pass without gradients, and has no optimizer.
    """

    def __init__(self, workload: Workload, optimizer: Optimizer | None) -> None:
        self.workload = workload
        self.optimizer = optimizer

    def drop_gradients(self) -> None:
        self.workload.module.zero_grad(set_to_none=True)

    def run(self, enter: Callable[[str], None] = _ignore_phase) -> None:
        """Run it once; `enter` is called with the name of each phase that begins."""
        work = self.workload
        if not work.module.training:
            enter("forward")
            with torch.no_grad():
                work.module(*work.inputs)
            return
        self.drop_gradients()
        enter("forward")
        loss = work.loss(work.module(*work.inputs))
        enter("backward")
        loss.backward()  # type: ignore[no-untyped-call]
        if self.optimizer is not None:
            enter("optimizer")
            self.optimizer.step()


def try_out(step: TrainingStep, options: CaptureOptions) -> None:
    """Run the step once, which creates the optimizer's state and shows that the model runs."""
    try:
        step.run()
    except InputError:
        raise
    except Exception as error:
        way_out = _on_token_ids(step.workload, options)
        raise InputError(
            f"{options}: the model failed: {describe_error(error)}{way_out}"
        ) from error


def _on_token_ids(work: Workload, options: CaptureOptions) -> str:
    """Return how a user's model gets token ids, if it has an embedding and got random numbers."""
    has_embedding = any(isinstance(part, nn.Embedding) for part in work.module.modules())
    numbers = [
        part for part in work.inputs if isinstance(part, Tensor) and part.is_floating_point()
    ]
    if not (is_reference(options.model) and has_embedding and numbers):
        return ""
    factory = options.model.rpartition(":")[2]
    return (
        f"; for a model of token ids: def {factory}(batch, shape={options.shape}): ... return "
        "module, torch.randint(vocabulary, (batch, *shape))"
    )


def make_step(
    options: CaptureOptions,
    device: str,
    share: Callable[[nn.Module], None] = lambda module: None,
    made_by: Callable[[Callable[[], Workload]], Workload] = lambda make: make(),
) -> TrainingStep:
    """Make the workload on `device`, let the ranks `share` its module, and add the optimizer.

    `made_by` is called with the function that makes the workload.

    Raises:
        InputError: the model cannot be made.
    """
    try:
        with torch.device(device):
            workload = made_by(functools.partial(load_workload, options))
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{options}: the model cannot be made: {describe_error(error)}") from error
    share(workload.module)
    parameters = [p for p in workload.module.parameters() if p.requires_grad]
    if not options.train:
        return TrainingStep(workload, None)
    if not parameters:
        raise InputError(f"{options}: the model has no parameters to train")
    optimizer = parse_optimizer(options.optimizer)
    if optimizer is None:
        return TrainingStep(workload, None)
    return TrainingStep(workload, optimizer.make(parameters, RATE, options.foreach))


def resolved(options: CaptureOptions) -> dict[str, Any]:
    """Return all options by name, with the defaults of the model filled in."""
    shape, classes = options.shape, options.classes
    if (model := built_in_of(options.model)) is not None:
        shape, classes = model.filled(shape, classes)
    return {**vars(options), "shape": shape and list(shape), "classes": classes}


def load_workload(options: CaptureOptions) -> Workload:
    """Make the module and its inputs on the default device, in the mode of the options.

    Parameters get the dtype of the options by being created while it is PyTorch's default: fake
    ones cannot be converted in place.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, options.dtype))
    try:
        workload = build_workload(options.model, options.batch, options.shape, options.classes)
    finally:
        torch.set_default_dtype(before)
    workload.module.train(options.train)
    if not options.dropout:
        _without_dropout(workload.module)
    return workload


def _without_dropout(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        elif isinstance(part, nn.MultiheadAttention | nn.RNNBase):
            part.dropout = 0.0


@contextlib.contextmanager
def simulated_ranks(options: CaptureOptions) -> Iterator[Callable[[nn.Module], None]]:
    """Act as rank 0 in this context; yield the function that shares a module between the ranks."""
    if options.parallel == "none":
        yield lambda module: None
        return
    if dist.is_initialized():
        raise InputError("this process is a rank already: capture shared models in another one")
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=options.ranks, store=FakeStore())
    try:
        mesh = _mesh(options)
        yield lambda module: _share(module, mesh, options)
    finally:
        dist.destroy_process_group()


def _mesh(options: CaptureOptions) -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    shape = {
        "fsdp2": {"shards": options.ranks},
        "tensor": {"tensor": options.ranks},
        "fsdp2+tensor": {
            "shards": options.ranks // options.tensor_ranks,
            "tensor": options.tensor_ranks,
        },
    }[options.parallel]
    return init_device_mesh(options.device, tuple(shape.values()), mesh_dim_names=tuple(shape))


def _share(module: nn.Module, mesh: Any, options: CaptureOptions) -> None:
    if "tensor" in options.parallel:
        _split(module, mesh["tensor"], options)
    if "fsdp2" in options.parallel:
        _shard(module, mesh["shards"])


def _shard(module: nn.Module, mesh: Any) -> None:
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.distributed.fsdp import fully_shard

    # Where the module is split as well, this makes a mesh, and looks for rank 0 in it. What it does
    # with fake parameters is fake without the mode.
    with unset_fake_temporarily(), _first_piece_only():
        for block in _blocks(module):
            fully_shard(block, mesh=mesh)
        fully_shard(module, mesh=mesh)


@contextlib.contextmanager
def _first_piece_only() -> Iterator[None]:
    """Make FSDP2 cut only the piece of rank 0: all 1,024 pieces take a second per parameter."""
    where: Any = import_module("torch.distributed.fsdp._fully_shard._fsdp_param")
    cut = getattr(where, "_chunk_with_empty", None)
    if cut is None:
        yield
        return

    def cut_first(tensor: Tensor, pieces: int, dim: int) -> list[Tensor]:
        return [tensor.narrow(dim, 0, math.ceil(tensor.shape[dim] / pieces))]

    where._chunk_with_empty = cut_first
    try:
        yield
    finally:
        where._chunk_with_empty = cut


def _blocks(module: nn.Module) -> list[nn.Module]:
    """Return modules to be gathered together: items of lists of nested modules, else children."""
    blocks = [
        item
        for part in module.modules()
        if isinstance(part, nn.ModuleList | nn.Sequential)
        for item in part
        if any(True for _ in item.children())
    ]
    children = blocks or list(module.children())
    return [block for block in children if any(True for _ in block.parameters())]


def _split(module: nn.Module, mesh: Any, options: CaptureOptions) -> None:
    from torch.distributed.tensor.parallel import parallelize_module

    plan: Mapping[str, str] | None = getattr(module, "tensor_parallel", None)
    if not plan:
        raise InputError(
            f"{options.model}: the split of the model's layers is missing: give the module an "
            'attribute tensor_parallel, such as {"layers.*.up": "column", "layers.*.down": "row"}'
        )
    ranks = mesh.size()
    for what, number in getattr(module, "divisible_by_ranks", {}).items():
        if number % ranks:
            near = max(n for n in range(1, ranks + 1) if number % n == 0)
            raise InputError(
                f"{options.model}: its {number} {what} cannot be split between {ranks} ranks; "
                f"between {near} they can"
            )
    styles = _styles()
    for path, way in plan.items():
        if way not in styles:
            raise InputError(f"{options.model}: {path}: {unknown('way to split', way, styles)}")
    parallelize_module(module, mesh, {path: styles[way]() for path, way in plan.items()})


def _styles() -> Mapping[str, Callable[[], Any]]:
    """How a layer is split: by outputs, without communication; by inputs, with a sum; not at all.

    Imported on demand: it takes long, and most steps are of one rank.
    """
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

    class SharedInput(ParallelStyle):
        """The first input of a module goes to several split layers: its gradients are summed once.

        Otherwise each of those layers would have its share of the gradient summed over the ranks.
        """

        def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
            def replicated(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
                first, *rest = inputs
                if isinstance(first, Tensor) and not isinstance(first, DTensor):
                    first = DTensor.from_local(first, device_mesh, (Replicate(),), run_check=False)
                return first, *rest

            module.register_forward_pre_hook(replicated)
            return module

    return {"column": ColwiseParallel, "row": RowwiseParallel, "input": SharedInput}
