"""The time of attention and of matrix products on tensor cores, from kernels that were timed alone.

Attention without a mask, over sequences of s tokens, runs at a rate of

    R s / (s + h)

which grows with the sequence until blocks of queries no longer differ in what there is to start and
to end; R is of a kernel, a device and a width of heads, h of the kernel, one for each pass, without
a mask and with a causal one. A causal mask leaves half of the work, and the backward pass has 2.5
times that of the forward pass (Dao, "FlashAttention-2", 2023, section 4.1).

A product of an m x k with a k x n matrix takes

    fixed + max(2 m n k / (R q), bytes read / bandwidth) + bytes written / bandwidth

where q is the share of multiprocessors that have a tile to compute, of the tile size that fits best
(NVIDIA, "Matrix Multiplication Background User's Guide", tile and wave quantization).

`kernels.yaml` has the numbers and their sources, written by `benchmarks/accuracy/kernels.py`. A
device without any reaches the same share of its peak as those of its family, or all others; of what
its products reach, where these were timed: what keeps a card below its peak, its limit of power
above all, does so in all kernels (of the attention that an H100 SXM has, an H100 PCIe reached 0.60
and 0.65, and one of 500 W 0.69 and 0.95; of its products 0.59 and 0.78, of its peak 0.76 and 1).
"""

import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from paracosm.cluster.hardware.catalogue import Device, load_catalogue
from paracosm.data_files import read_yaml
from paracosm.validation import validated

Tflops = Annotated[float, Field(gt=0, allow_inf_nan=False)]

SUSTAINED = 0.9
"""Share of its rate that a kernel keeps in a training run, where a device is at its power limit all
the time and lowers its clock; timed alone it runs for milliseconds. On an A100 that ran at 1,200 of
1,410 MHz under load FlashAttention-2 kept 0.88 to 0.93 of its rate, 0.9 in the mean (six timings,
github.com/liangan1/GPU_travel, performance/flash-attn/README.md). A TPU has one clock, by which
its peak is reckoned (Jouppi et al., "TPU v4", ISCA 2023, table 4: 1,050 MHz x 2 cores x 4 units of
128 x 128 x 2 operations are the 275 Tflop/s), and keeps all of it."""

UNMEASURED = math.log(1.2)
"""Half-width of the interval (of the logarithm) that is added for a device of a family of which
another was timed; twice that for a device of another family."""

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.97), (128, 64, 0.85), (64, 64, 0.7))
"""Rows and columns of the tiles that libraries choose from, and what each reaches of the largest's
rate where all are full."""


class _Kernel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    fixed: float = Field(ge=0, description="seconds of a kernel, whatever its size")
    spread: float = Field(ge=0, description="half-width of the 90 % interval of its logarithm")
    ops: int = Field(ge=0, description="timings that it is from")
    source: str = Field(description="who measured")


class AttentionKernel(_Kernel):
    """A kernel of attention."""

    rates: dict[str, dict[int, Tflops]] = Field(
        description="Tflop/s of long sequences without a mask, forward, by device and head width"
    )
    backward: float = Field(gt=0, description="rate of the backward pass over the forward pass's")
    causal: float = Field(gt=0, description="rate with a causal mask over that without")
    half: float = Field(gt=0, description="tokens at which half of the rate is reached")
    half_causal: float = Field(gt=0)
    half_backward: float = Field(gt=0)
    half_backward_causal: float = Field(gt=0)


class ProductKernel(_Kernel):
    """Products of one type of number."""

    rates: dict[str, Tflops] = Field(description="Tflop/s of large products, by device")


class Kernels(BaseModel):
    """Timed kernels by name; products by type of number and how it is scaled."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    attention: dict[str, AttentionKernel]
    products: dict[str, ProductKernel]


Named = tuple[str, Device]
"""A device with its name in the catalogue."""


def attention_seconds(
    kernel: AttentionKernel,
    device: Named,
    sizes: tuple[int, int, int],  # queries and keys of an example, width of a head
    flops: float,
    *,
    causal: bool,
    backward: bool,
    clock: float = 1.0,
) -> float:
    """Return how long attention takes, at a share of the clock at which its kernel was timed."""
    queries, keys, width = sizes
    rate = clock * _rate_of_width(kernel, device, width)[0]
    if backward:
        rate *= kernel.backward
        half = kernel.half_backward_causal if causal else kernel.half_backward
    else:
        half = kernel.half_causal if causal else kernel.half
    if causal:
        rate *= kernel.causal
    tokens = min(queries, keys)
    return kernel.fixed + flops / (rate * tokens / (tokens + half))


def product_seconds(
    kernel: ProductKernel,
    device: Named,
    sizes: tuple[int, int, int, int],  # products at once, rows, columns, inner
    *,
    read: float,
    written: float,
    clock: float = 1.0,
) -> float:
    """Return how long a matrix product takes, at a share of the clock at which they were timed;
    `read` and `written` are bytes."""
    batch, rows, columns, inner = sizes
    rate = clock * _rate(kernel.rates, device)[0]
    bandwidth = device[1].memory_bandwidth
    busy = _busy(batch, rows, columns, device[1].processors)
    computing = 2.0 * batch * rows * columns * inner / (rate * busy)
    return kernel.fixed + max(computing, read / bandwidth) + written / bandwidth


def kernel_spread(kernel: AttentionKernel | ProductKernel, device: Named) -> tuple[float, str]:
    """Return the half-width of the interval of a kernel on a device, and how its rate is known:
    "measured" there, or on "other devices"."""
    if isinstance(kernel, ProductKernel):
        _, apart = _rate(kernel.rates, device)
    else:
        _, apart = _rate_of_width(kernel, device, next(iter(next(iter(kernel.rates.values())))))
    return kernel.spread + apart * UNMEASURED, "other devices" if apart else "measured"


def _rate_of_width(kernel: AttentionKernel, device: Named, width: int) -> tuple[float, int]:
    def nearest(rates: Mapping[int, float]) -> float:
        return rates[min(rates, key=lambda known: (abs(math.log(known / width)), known))]

    return _rate({name: nearest(rates) for name, rates in kernel.rates.items()}, device)


def _rate(rates: Mapping[str, float], device: Named) -> tuple[float, int]:
    """Return flop/s on a device, and how far it is from one that was timed: 0, 1 or 2."""
    name, datasheet = device
    if name in rates:
        return rates[name] * 1e12, 0
    known = load_catalogue().devices
    own = _peak(datasheet)
    family = {
        other: rate
        for other, rate in rates.items()
        if known[other].generation == datasheet.generation and datasheet.generation is not None
    }
    products = load_kernels().products["bfloat16"].rates
    timed = {other: rate for other, rate in family.items() if other in products}
    if name in products and timed:
        ratio = fmean(math.log(rate / products[other]) for other, rate in timed.items())
        return products[name] * 1e12 * math.exp(ratio), 1
    shares = [rate * 1e12 / _peak(known[other]) for other, rate in (family or rates).items()]
    return own * math.exp(fmean(math.log(share) for share in shares)), 1 if family else 2


def _peak(device: Device) -> float:
    """Return the peak on tensor cores, in half precision, or the fastest that there is."""
    for dtype in ("bfloat16", "float16"):
        if dtype in device.peak_tflops:
            return device.peak(dtype)
    return max(device.peak_tflops.values()) * 1e12


def _busy(batch: int, rows: int, columns: int, processors: int | None) -> float:
    """Return the share of a device's rate that tiles leave: some are partly empty, and in the last
    wave some multiprocessors have none."""
    if processors is None:
        return 1.0
    return max(_shares(batch, rows, columns, processors))


def _shares(batch: int, rows: int, columns: int, processors: int) -> Iterable[float]:
    for height, width, reached in TILES:
        tiles = batch * math.ceil(rows / height) * math.ceil(columns / width)
        waves = math.ceil(tiles / processors)
        yield reached * batch * rows * columns / (waves * processors * height * width)


@cache
def load_kernels() -> Kernels:
    path = Path(__file__).with_name("kernels.yaml")
    return validated(Kernels, read_yaml(path, "table of kernels"), str(path))
