"""Software stacks: the kernels that a framework runs on a device, and what it fuses."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from paracosm.cluster.hardware.catalogue import Device
from paracosm.cluster.hardware.kernels import AttentionKernel, ProductKernel, load_kernels
from paracosm.data_files import read_packaged_yaml
from paracosm.errors import InputError, unknown
from paracosm.validation import validated

OTHER = "other"
"""The key of devices of all other generations."""

GENERATIONS: Mapping[str, tuple[str, ...]] = {
    "mxfp8": ("blackwell", "cdna4"),
}
"""Generations of devices that multiply numbers so scaled; others are multiplied wherever there is
float8."""


class Stack(BaseModel):
    """A framework with its kernels."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = Field(max_length=200, description="its full name")
    since: str = Field(pattern=r"^\d{4}-\d\d$", description="month of its versions, 2024-11")
    recipe: Literal["compiled", "eager"] = Field(
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
    whole_iterations: bool = Field(
        False,
        description="whether what products and attention reach is from whole iterations of it "
        "where its devices have such efficiencies",
    )
    also: dict[str, str] = Field(
        {}, description="other names of it: software that runs as it does, by what says so"
    )
    source: str = Field(min_length=1, max_length=800, description="what says so")

    @model_validator(mode="after")
    def _of_known_kernels(self) -> Self:
        known = load_kernels().attention
        for name in self.attention.values():
            if name not in known:
                raise InputError(f"attention: {unknown('kernel', name, known)}")
        return self

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


def products_of(dtype: str, scaling: str, device: Device) -> ProductKernel | None:
    """Return the products of a type of number; None for types that tensor cores do not multiply.

    Raises:
        InputError: the device does not multiply numbers that are scaled so.
    """
    products = load_kernels().products
    if dtype in ("bfloat16", "float16"):
        return products["bfloat16"]
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
    return products.get(name) or products["float8 tensorwise"]


def find_stack(name: str) -> Stack:
    """Return the stack of a name, or of software that runs as it does.

    Raises:
        InputError: a name that is unknown, with the nearest.
    """
    stacks = dict(load_stacks())
    stacks |= {other: stack for stack in load_stacks().values() for other in stack.also}
    if name not in stacks:
        raise InputError(f"stack: {unknown('stack', name, stacks)}")
    return stacks[name]


@cache
def load_stacks() -> Mapping[str, Stack]:
    path = Path(__file__).with_name("stacks.yaml")
    entries = read_packaged_yaml(path)
    return {name: validated(Stack, entry, f"{path}: {name}") for name, entry in entries.items()}
