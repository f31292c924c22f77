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

`kernels.yaml` has the numbers and their sources, written by `benchmarks/accuracy/kernels.py`. On a
device where a kernel was not timed it reaches the same multiple of what products in half precision
reach as on those of its generation, or all others: clocks and power limits are in both. (Left out
one by one, that errs by 10 % in the mean for attention; the same share of the peak, by 16 %.) Where
no products of its generation were timed, it reaches the same share of the peak.
"""

import math
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from paracosm.cluster.hardware.catalogue import Device, load_catalogue
from paracosm.data_files import read_packaged_yaml
from paracosm.validation import validated

Tflops = Annotated[float, Field(gt=0, allow_inf_nan=False)]

SUSTAINED, SUSTAINED_BY_GENERATION = 0.9, {"blackwell": 0.86}
"""Share of its rate that a kernel keeps in a training run, where a device is at its power limit all
the time and lowers its clock; timed alone it runs for milliseconds.

On an A100 that ran at 1,200 of 1,410 MHz under load FlashAttention-2 kept 0.88 to 0.93 of its
rate, 0.9 in the mean (six timings, github.com/liangan1/GPU_travel, performance/flash-attn).
On a B200 whose clock fell from 1,965 to 1,580 MHz FlashAttention-4 fell from 1,425 and 1,450
Tflop/s in its first and second ten calls to 1,237 when 70 had run without a pause
(github.com/flashinfer-ai/flashinfer, pull request 2899)."""

OF_POWER = 0.65
"""Exponent by which the rate of products falls with the power limit. H100 of 700, 500 and 350 W
reach 756, 593 and 520 Tflop/s (the last for as many multiprocessors; `kernels.yaml`): exponents of
0.72 and 0.54. Above 700 W the rate hardly grows: a GH200 of 1,000 W reaches 788.
B200 of 750 W and GB300 of 1,400 W reach 1,197 and 1,896: 0.74."""

UNMEASURED = math.log(1.2)
"""Half-width of the interval (of the logarithm) that is added for a device of a family of which
another was timed; twice that for a device of another family."""

TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.97), (128, 64, 0.85), (64, 64, 0.7))
"""Rows and columns of the tiles that libraries choose from, and what each reaches of the largest's
rate where all are full."""


class _Kernel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

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

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

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


def sustained(device: Device) -> float:
    """Return the share of a kernel's rate that a device keeps under load.

    A TPU has one clock, by which its peak is reckoned, and keeps all of it (Jouppi et al., "TPU
    v4", ISCA 2023, table 4: 1,050 MHz x 2 cores x 4 units of 128 x 128 x 2 operations are the 275
    Tflop/s).
    """
    if device.kind != "gpu":
        return 1.0
    return SUSTAINED_BY_GENERATION.get(device.generation or "", SUSTAINED)


def kernel_spread(kernel: AttentionKernel | ProductKernel, device: Named) -> tuple[float, str]:
    """Return the half-width of the interval of a kernel on a device, and how its rate is known:
    "timed" there, or on "other devices"."""
    if isinstance(kernel, ProductKernel):
        _, apart = _rate(kernel.rates, device)
    else:
        _, apart = _rate_of_width(kernel, device, next(iter(next(iter(kernel.rates.values())))))
    return kernel.spread + apart * UNMEASURED, "other devices" if apart else "timed"


def _rate_of_width(kernel: AttentionKernel, device: Named, width: int) -> tuple[float, int]:
    def nearest(rates: Mapping[int, float]) -> float:
        return rates[min(rates, key=lambda known: (abs(math.log(known / width)), known))]

    return _rate({name: nearest(rates) for name, rates in kernel.rates.items()}, device)


def _rate(rates: Mapping[str, float], device: Named) -> tuple[float, int]:
    """Return flop/s on a device, and how far it is from one that was timed: 0, 1 or 2."""
    if device[0] in rates:
        return rates[device[0]] * 1e12, 0
    near, apart = _alike(rates, device[1])
    known = load_catalogue().devices
    _, products_apart = _alike(load_kernels().products["bfloat16"].rates, device[1])
    measure = _half_precision if products_apart < 2 else lambda named: _peak(named[1])
    ratios = [rates[other] * 1e12 / measure((other, known[other])) for other in near]
    return measure(device) * _mean(ratios), apart


def _half_precision(device: Named) -> float:
    """Return flop/s of large products in half precision.

    Where none was timed it is the share of the peak that devices of the same generation reach: of
    the one that may draw most nearly as much for its peak, less where this one may draw less.
    """
    rates = load_kernels().products["bfloat16"].rates
    name, datasheet = device
    if name in rates:
        return rates[name] * 1e12
    known = load_catalogue().devices
    near, apart = _alike(rates, datasheet)
    shares = {other: rates[other] * 1e12 / _peak(known[other]) for other in near}
    if apart == 1 and datasheet.power is not None:
        watts = {other: (known[other].power or 0.0) / _peak(known[other]) for other in near}
        ratios = {o: datasheet.power / _peak(datasheet) / w for o, w in watts.items() if w}
        if ratios:
            nearest = min(ratios, key=lambda other: (abs(math.log(ratios[other])), other))
            shares = {nearest: shares[nearest] * min(ratios[nearest], 1.0) ** OF_POWER}
    return _peak(datasheet) * _mean(shares.values())


def _alike(rates: Mapping[str, float], datasheet: Device) -> tuple[list[str], int]:
    """Return the timed devices of a device's generation, or all, and how far they are from it."""
    known = load_catalogue().devices
    generation = datasheet.generation
    near = [n for n in rates if generation is not None and known[n].generation == generation]
    return near or list(rates), 1 if near else 2


def _mean(values: Iterable[float]) -> float:
    return math.exp(fmean(math.log(value) for value in values))


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
    return validated(Kernels, read_packaged_yaml(path), str(path))
