"""Software stacks: the kernels that a framework runs on a device, and what it fuses."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from paracosm.cluster.hardware.catalogue import (
    Catalogue,
    Device,
    Hardware,
    copy_to_user_folder,
    load_catalogue,
    read_hardware_file,
    user_files,
)
from paracosm.cluster.hardware.efficiency import OP_CLASSES
from paracosm.cluster.hardware.kernels import AttentionKernel, ProductKernel, load_kernels
from paracosm.data_files import read_packaged_yaml
from paracosm.errors import InputError, unknown
from paracosm.quantities import Bandwidth, Duration
from paracosm.validation import validated

OTHER = "other"
"""The key of devices of all other generations."""

GENERATIONS: Mapping[str, tuple[str, ...]] = {
    "mxfp8": ("blackwell", "cdna4"),
}
"""Generations of devices that multiply numbers so scaled; others are multiplied wherever there is
float8."""


class MeasuredClass(BaseModel):
    """Ops of one class, timed with a stack on a device."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    time: float = Field(gt=0, allow_inf_nan=False, description="over what is predicted without it")
    spread: float = Field(ge=0, description="half-width of the 90 % interval of its logarithm")
    ops: int = Field(ge=1, description="distinct ops that it is from")


class MeasuredLink(BaseModel):
    """What collectives between the devices of a node were measured to get."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    bandwidth: Annotated[Bandwidth, Field(gt=0, allow_inf_nan=False)] = Field(
        description="one way, as 300 GB/s"
    )
    latency: Annotated[Duration, Field(ge=0, allow_inf_nan=False)] = Field(description="of a step")


class Measured(BaseModel):
    """What was measured with a stack on one device."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    ops: dict[str, MeasuredClass] = Field({}, description="by class of ops")
    inner: MeasuredLink | None = Field(None, description="the link between devices of a node")


class Stack(BaseModel):
    """A framework with its kernels."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    title: str = Field(max_length=200, description="its full name")
    since: str = Field(pattern=r"^\d{4}-\d\d$", description="month of its versions, 2024-11")
    recipe: Literal["compiled", "eager", "transformer-engine"] = Field(
        description="whether a transformer's element-wise ops are fused"
    )
    attention: dict[str, str] = Field(
        min_length=1, description="kernels by generation of device, or other"
    )
    float8: Literal["delayed", "tensorwise", "rowwise", "blockwise", "mxfp8"] = Field(
        description="how numbers of one byte are scaled where nothing says"
    )
    context: Literal["ring", "gather", "ulysses", "pieces", "pieces-ring"] = Field(
        "ring",
        description="how ranks that share a sequence exchange keys and values where nothing says",
    )
    loss: Literal["separate", "returned", "in place", "fused", "chunked"] = Field(
        "separate",
        description="what a loss holds of logits, as `graphs.transformer.Transformer` has it",
    )
    weights: Literal["copies", "buffers", "single"] = Field(
        "single",
        description="what is held of parameters, as `graphs.transformer.Transformer` has it",
    )
    grouped: bool = Field(
        True,
        description="whether one kernel multiplies the matrices of all experts of a rank, or a "
        "product each, side by side",
    )
    unfused: tuple[str, ...] = Field(
        (),
        description="generations of devices on which attention of keys and values of unequal "
        "widths writes its scores",
    )
    common: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="half-width of the 90 % interval of what kernels that were timed on a device "
        "err by in common; without it, that of ops by their classes",
    )
    whole_iterations: bool = Field(
        False,
        description="whether what products and attention reach is from whole iterations of it "
        "where its devices have such efficiencies",
    )
    also: dict[str, str] = Field(
        {}, description="other names of it: software that runs as it does, by what says so"
    )
    measured: dict[str, Measured] = Field(
        {}, description="by device: of a stack that was measured, which runs on no other"
    )
    source: str = Field(min_length=1, max_length=800, description="what says so")

    @model_validator(mode="after")
    def _of_known_kernels(self) -> Self:
        known = load_kernels().attention
        for name in self.attention.values():
            if name not in known:
                raise InputError(f"attention: {unknown('kernel', name, known)}")
        return self

    def ops_on(self, name: str) -> Mapping[str, MeasuredClass]:
        """Return what was measured of classes of ops on a device; nothing of a packaged stack.

        Raises:
            InputError: the stack was measured on other devices alone.
        """
        if self.measured and name not in self.measured:
            raise InputError(
                f"stack: {self.title} was measured on {', '.join(self.measured)}: it has nothing "
                f"on {name}"
            )
        return self.measured[name].ops if self.measured else {}

    def on(self, hardware: Hardware) -> Hardware:
        """Return hardware with the link that was measured with the stack, if there is one.

        Raises:
            InputError: it was, and the catalogue has no node of the hardware.
        """
        measured = self.measured.get(hardware.name)
        if measured is None or measured.inner is None:
            return hardware
        if hardware.inner is None:
            raise InputError(
                f"stack: {self.title} has a link between devices of a node, and the catalogue has "
                f"no node of several {hardware.name}"
            )
        link = {"usable": measured.inner.bandwidth, "latency": measured.inner.latency}
        return replace(hardware, inner=hardware.inner.model_copy(update=link))

    def attention_on(self, device: Device) -> AttentionKernel:
        """Return the kernel of attention on a device.

        Raises:
            InputError: the stack has none there.
        """
        generation = device.generation or OTHER
        name = self.attention.get(generation) or self.attention.get(OTHER)
        if name is None:
            raise InputError(
                f"stack: {self.title} has no attention on {device.title}: it has "
                f"{', '.join(self.attention)}"
            )
        return load_kernels().attention[name]


def products_of(
    dtype: str, scaling: str, device: Device, grouped: Literal["", "rows", "weights"] = ""
) -> ProductKernel | None:
    """Return the products of a type of number; None for types that tensor cores do not multiply.

    `grouped` ones are those of one kernel, where it was timed, that has a matrix for each of
    several groups of "rows", or makes one for each: the gradients of "weights".

    Raises:
        InputError: the device does not multiply numbers that are scaled so.
    """
    products = load_kernels().products

    def named(name: str) -> ProductKernel | None:
        weights = products.get(f"{name} grouped weights") if grouped == "weights" else None
        together = products.get(f"{name} grouped") if grouped else None
        return weights or together or products.get(name)

    if dtype in ("bfloat16", "float16"):
        return named("bfloat16")
    if dtype != "float8":
        return None
    device.peak("float8")
    fits = GENERATIONS.get(scaling)
    if fits is not None and device.generation not in fits:
        raise InputError(
            f"float8={scaling}: {device.title} does not multiply numbers scaled so: write "
            "float8=tensorwise, or leave it to the stack"
        )
    name = scaling if scaling in products else f"float8 {scaling}"
    return named(name) or named("float8 tensorwise")


def find_stack(name: str) -> Stack:
    """Return the stack of a name, or of software that runs as it does; the user's own, too.

    Raises:
        InputError: a name that is unknown, with the nearest; a file that cannot be used.
    """
    stacks = dict(load_stacks())
    stacks |= {other: stack for stack in load_stacks().values() for other in stack.also}
    if name not in stacks:
        raise InputError(f"stack: {unknown('stack', name, stacks)}")
    return stacks[name]


def load_stacks() -> Mapping[str, Stack]:
    """Return all stacks, the user's own behind those of the package."""
    stacks = dict(_built_in())
    for path in user_files():
        stacks |= stacks_of(path)
    return stacks


def stacks_of(path: Path) -> Mapping[str, Stack]:
    """Return the stacks of a file of the catalogue's form.

    Raises:
        InputError: one lacks a source, names an unknown kernel or device, or has a name that is
            taken.
    """
    return _checked(read_hardware_file(path).stacks, str(path))


def add_to_catalogue(path: Path, *, force: bool = False) -> tuple[Path, Catalogue]:
    """Copy a file with hardware or stacks into the user's folder; return its path and content.

    Raises:
        InputError: it cannot be used; a name of it is taken; a file of its name is there already.
    """
    stacks_of(path)
    return copy_to_user_folder(path, force=force)


def _checked(entries: Mapping[str, Any], where: str) -> Mapping[str, Stack]:
    stacks, devices = {}, load_catalogue().devices
    taken = {*_built_in(), *(other for stack in _built_in().values() for other in stack.also)}
    for name, entry in entries.items():
        if name in taken:
            raise InputError(f"{where}: stacks.{name}: there is one of that name: name it else")
        if isinstance(entry, dict) and not entry.get("source"):
            raise InputError(
                f"{where}: stacks.{name}: no source: say which document or measurement it is from"
            )
        stacks[name] = validated(Stack, entry, f"{where}: stacks.{name}")
        for device, measured in stacks[name].measured.items():
            if device not in devices:
                problem = unknown("device", device, devices)
                raise InputError(f"{where}: stacks.{name}.measured: {problem}")
            for op_class in measured.ops:
                if op_class not in OP_CLASSES or op_class.startswith("tensor "):
                    known = [
                        op_class for op_class in OP_CLASSES if not op_class.startswith("tensor ")
                    ]
                    problem = unknown("class of ops", op_class, known)
                    raise InputError(f"{where}: stacks.{name}.measured.{device}.ops: {problem}")
    return stacks


@cache
def _built_in() -> Mapping[str, Stack]:
    path = Path(__file__).with_name("stacks.yaml")
    entries = read_packaged_yaml(path)
    return {name: validated(Stack, entry, f"{path}: {name}") for name, entry in entries.items()}
