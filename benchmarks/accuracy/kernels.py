"""What attention and matrix products reach on tensor cores, from kernels that others timed alone.

    python benchmarks/accuracy/kernels.py [FOLDER] [--write FILE]

FOLDER has `attention.csv` and `gemm.csv`, each row with its source; without it, the folder `stacks`
of the one that PARACOSM_DATA names. Attention on AMD is in `attention_of_amd.csv`, and more
products in `gemm_added.csv`, beside this file. The forms are those of
`paracosm.cluster.hardware.kernels`: a kernel of attention has a rate for each device and width of a
head, and numbers that all devices share, for the backward pass, a causal mask and short sequences;
products have a rate for each device and type of number. No whole training step sets any of them.
`--write` writes the table that is part of the package, `paracosm/cluster/hardware/kernels.yaml`.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from printing import folder_of, print_table
from scipy.optimize import least_squares

from paracosm.cluster.hardware.catalogue import find_hardware
from paracosm.cluster.hardware.kernels import (
    AttentionKernel,
    ProductKernel,
    attention_seconds,
    product_seconds,
)
from paracosm.errors import InputError

ADDED = Path(__file__).with_name("gemm_added.csv")
OF_AMD = Path(__file__).with_name("attention_of_amd.csv")
OUTLIER = 0.05  # of a logarithm, from which on a residual counts less than its square
LEVEL = 0.9
TOKENS = (
    16_384  # of a batch of FlashAttention's figures, whose heads have a width of 2,048 together
)
WIDTH = 2048

KERNELS = {
    "FlashAttention-1": "flash-1",
    "FlashAttention Triton": "flash-1-triton",
    "FlashAttention-2": "flash-2",
    "FlashAttention-2 (TE)": "flash-2",
    "PyTorch SDPA flash (FA2)": "flash-2",
    "FlashAttention-3": "flash-3",
    "FlashAttention-3 3.0.0": "flash-3",
    "FlashAttention-4 (CuTe)": "flash-4",
    "FlashAttention-4 4.0.0b22": "flash-4",
    "cuDNN": "cudnn",
    "cuDNN (TE FusedAttention)": "cudnn",
    "cuDNN SDPA": "cudnn",
    "Triton": "triton",
    "xformers": "memory-efficient",
    "PyTorch SDPA (AOTriton)": "aotriton",
    "Composable Kernel": "ck",
    "AITER": "aiter",
}
"""Names of the table, by the kernels of the measurements."""

DEVICES = {
    "A100": "a100-sxm-80gb",
    "A100-SXM-80GB": "a100-sxm-80gb",
    "NVIDIA A100 SXM": "a100-sxm-80gb",
    "NVIDIA A100 PCIe": "a100-pcie-80gb",
    "H100": "h100-sxm",
    "H100-SXM-80GB": "h100-sxm",
    "H100-SXM-80GB (HBM3)": "h100-sxm",
    "H800-SXM (H100 die, full clocks)": "h100-sxm",
    "NVIDIA H100 SXM": "h100-sxm",
    "H100-PCIe": "h100-pcie",
    "H100 (Meta dev server, 500 W)": "h100-sxm-96gb",
    "H100 (Meta, 500 W; not named)": "h100-sxm-96gb",
    "H100 500 W": "h100-sxm-96gb",
    "H200": "h200-sxm",
    "H200-SXM": "h200-sxm",
    "NVIDIA H200 SXM": "h200-sxm",
    "NVIDIA GH200 SXM": "gh200",
    "B200": "b200-sxm",
    "B200 750 W": "b200-sxm-750w",
    "B200 (peak taken as 2500)": "b200-sxm",
    "B200 (sm100; not named)": "b200-sxm",
    "B200 1000 W": "b200-sxm",
    "NVIDIA B200 SXM": "b200-sxm",
    "B300-SXM6": "b300-sxm",
    "NVIDIA B300 SXM": "b300-sxm",
    "NVIDIA GB200 SXM": "gb200",
    "GB300": "gb300",
    "AMD MI300X": "mi300x",
    "AMD MI325X": "mi325x",
    "AMD MI355X": "mi355x",
    "MI355X (gfx950)": "mi355x",
    "TPU v6e (not named in the line)": "tpu-v6e",
    "TPU v7x, one of two devices of a chip": "tpu-v7x",
}
"""Devices of the catalogue, by the GPUs of the measurements; rows of others are left out."""

PRODUCTS = ("gemm", "gemm dense", "gemm NN", "gemm NT", "gemm TN")
LINEAR = "linear fwd+bwd (3 gemms and casts)"
STREAMED = 0.83  # of the bandwidth, by element-wise ops (efficiencies.yaml, an H100)
FEWEST_ROWS = 256  # of a product in training: fewer are those of inference
FEWEST_OF_TPU = 4096  # of one that says nothing of a launch, which is another thing on a TPU
OLDER = 1.02
BEST = "matmul, best shape found (MAMF)"


@dataclass(frozen=True)
class Sample:
    """A timed kernel."""

    kernel: str  # of the table
    device: str  # of the catalogue
    seconds: float
    flops: float
    # attention: queries, keys, width; of each product, or of a group's: rows, columns, inner
    sizes: tuple[tuple[int, int, int], ...]
    what: str  # which pass of attention; how numbers of a product are scaled
    causal: bool = False
    source: str = ""
    best: bool = False  # whether it is the best of many shapes
    moved: float = 0.0  # bytes that are cast beside the products
    groups: int = 1  # that one kernel multiplies, each with its own matrix


def main() -> int:
    """Print what is found of each kernel, with its errors; write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of attention.csv and gemm.csv")
    parser.add_argument("--write", type=Path, help="the table of the package")
    parsed = parser.parse_args()
    folder = folder_of(parsed, "stacks", "timed kernels")
    if folder is None:
        return 2
    try:
        timed = [*read_attention(folder / "attention.csv"), *read_attention(OF_AMD)]
        attention = fitted_attention(timed)
        products = fitted_products([*read_products(folder / "gemm.csv"), *read_products(ADDED)])
        together = read_products(folder / "gemm.csv", grouped=True)
        products |= fitted_products(together, fixed=products["bfloat16"].fixed)
    except InputError as error:
        print(error)
        return 2
    print_table(
        ("attention", "rows", "Tflop/s, long, no mask, forward", "backward", "causal", "90 %"),
        (
            (
                name,
                str(kernel.ops),
                ", ".join(
                    f"{device} {width}: {rate:.0f}"
                    for device, rates in kernel.rates.items()
                    for width, rate in rates.items()
                ),
                f"{kernel.backward:.2f}",
                f"{kernel.causal:.2f}",
                f"x {math.exp(kernel.spread):.2f}",
            )
            for name, kernel in attention.items()
        ),
        left=1,
    )
    print()
    print_table(
        ("products", "rows", "Tflop/s of large ones", "fixed", "90 %"),
        (
            (
                name,
                str(kernel.ops),
                ", ".join(f"{device}: {rate:.0f}" for device, rate in kernel.rates.items()),
                f"{kernel.fixed * 1e6:.1f} us",
                f"x {math.exp(kernel.spread):.2f}",
            )
            for name, kernel in products.items()
        ),
        left=1,
    )
    if parsed.write is not None:
        content = {
            "attention": {name: each.model_dump(mode="json") for name, each in attention.items()},
            "products": {
                name: product.model_dump(mode="json") for name, product in products.items()
            },
        }
        text = yaml.safe_dump(content, sort_keys=False, width=110)
        parsed.write.write_text(f"# Written by benchmarks/accuracy/kernels.py\n{text}")
    return 0


def read_attention(file: Path) -> list[Sample]:
    """Return the timed kernels of attention on devices of the catalogue.

    Raises:
        InputError: a column that is missing, or a value that is no number.
    """
    found = []
    for where, row in _rows(file):
        kernel, device = KERNELS.get(row["kernel"]), DEVICES.get(row["gpu"])
        if kernel is None or device is None or "script" in row["pass"]:
            continue
        try:
            sequence, keys, width = (int(row[key]) for key in ("seq_q", "seq_kv", "head_dim"))
            batch = int(row["batch"]) if row["batch"] else TOKENS // sequence
            heads = int(row["heads"]) if row["heads"] else WIDTH // width
            rate, causal = float(row["tflops"]) * 1e12, row["causal"] == "1"
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
        forward = 4.0 * batch * heads * sequence * keys * width * (0.5 if causal else 1)
        flops = forward * {"fwd": 1, "bwd": 2.5, "fwd+bwd": 3.5}[row["pass"]]
        found.append(
            Sample(
                *(kernel, device, flops / rate, forward, ((sequence, keys, width),)),
                *(row["pass"], causal, row["source"].partition(":")[0]),
            )
        )
    return found


def read_products(file: Path, *, grouped: bool = False) -> list[Sample]:
    """Return the timed products on devices of the catalogue, without what casts numbers for them:
    those of one matrix, or `grouped` ones of several.

    Raises:
        InputError: a column that is missing, or a value that is no number.
    """
    found = []
    for where, row in _rows(file):
        device, scaling = DEVICES.get(row["gpu"]), _scaling(row["dtype"], row["scaling"])
        if device is None or scaling is None or bool(row["groups"]) != grouped:
            continue
        if row["includes_quantization"] == "yes" and row["op"] != LINEAR:
            continue
        try:
            groups = int(row["groups"] or 1)
            sizes = _grouped(row, groups) if grouped else _products(row)
            rate = float(row["tflops"]) * 1e12
        except ValueError as error:
            raise InputError(f"{where}: {error}") from None
        if not sizes or (device.startswith("tpu") and sizes[0][0] < FEWEST_OF_TPU):
            continue
        flops = groups * sum(2.0 * rows * columns * inner for rows, columns, inner in sizes)
        kernel = f"{scaling} grouped" if grouped else scaling
        kernel += " weights" if grouped and "wgrad" in row["op"] else ""
        found.append(
            Sample(
                *(kernel, device, flops / rate, flops, sizes, scaling),
                groups=groups,
                source=row["source"].partition(":")[0],
                best=row["op"] == BEST,
                moved=_cast_bytes(row, sizes[0]) if row["op"] == LINEAR else 0.0,
            )
        )
    return found


def _products(row: dict[str, str]) -> tuple[tuple[int, int, int], ...]:
    """Return rows, columns and inner size of each product of a row; none of one that is other work.

    Raises:
        ValueError: a size that is no number.
    """
    if row["op"] in (*PRODUCTS, BEST) or (row["op"].startswith("fprop") and row["m"]):
        rows, columns, inner = (int(float(row[key])) for key in "mnk")
        return ((rows, columns, inner),)
    if row["op"] == LINEAR:
        rows, columns, inner = (int(float(row[key])) for key in "mnk")
        return (rows, columns, inner), (rows, inner, columns), (columns, inner, rows)
    of_layer = re.fullmatch(
        r"sum of the 4 (\w+) gemms of a layer \(hidden (\d+), ffn (\d+), (\d+) tokens\)", row["op"]
    )
    if of_layer is None:
        return ()
    width, inner, tokens = map(int, of_layer.groups()[1:])
    layer = ((3 * width, width), (width, width), (inner, width), (width, inner))  # outputs, inputs
    if of_layer[1] == "fprop":
        return tuple((tokens, outputs, inputs) for outputs, inputs in layer)
    if of_layer[1] == "dgrad":
        return tuple((tokens, inputs, outputs) for outputs, inputs in layer)
    return tuple((outputs, inputs, tokens) for outputs, inputs in layer)


def _grouped(row: dict[str, str], groups: int) -> tuple[tuple[int, int, int], ...]:
    """Return rows, columns and inner size of a group's products; none of those of inference.

    Groups divide the rows; of gradients of weights ("wgrad") what is summed over.
    """
    rows, columns, inner = (int(float(row[key])) for key in "mnk")
    if "masked" in row["op"]:
        return ()
    if "wgrad" in row["op"]:
        return ((rows, columns, inner // groups),)
    own = rows // groups
    if "3 gemms" in row["op"]:
        return (own, columns, inner), (own, inner, columns), (columns, inner, own)
    return ((own, columns, inner),)


def _cast_bytes(row: dict[str, str], sizes: tuple[int, int, int]) -> float:
    """Return the bytes that a linear map's casts move, as `graphs.transformer.layer` has them.

    Transformer Engine reads a tensor once, of two bytes a number, and writes it twice, of one byte;
    torchao reads it to find its largest, and again to write it, once for each product that takes
    it, or once for both where it is a gradient.
    """
    if row["dtype"] == "bf16":
        return 0.0
    tokens, outputs, inputs = sizes
    given, gradient, weights = tokens * inputs, tokens * outputs, outputs * inputs
    if row["library"] == "Transformer Engine":
        return 4.0 * (given + gradient + weights)
    return 10.0 * (given + weights) + 6.0 * gradient


def _rows(file: Path) -> Iterable[tuple[str, dict[str, str]]]:
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        for row in reader:
            yield f"{file}, line {reader.line_num}", row


def _scaling(dtype: str, scaling: str) -> str | None:
    """Return the name in the table of how numbers are scaled; None for those of four bytes."""
    if dtype in ("bf16", "fp16"):
        return "bfloat16"
    if dtype.startswith("fp8"):
        words = ("rowwise", "blockwise", "tensorwise")
        return next((f"float8 {word}" for word in words if word in scaling), None)
    return {"mxfp8": "mxfp8", "nvfp4": "nvfp4"}.get(dtype)


def fitted_attention(samples: Sequence[Sample]) -> dict[str, AttentionKernel]:
    """Return each kernel with the least robust error of the logarithm of its times."""
    by_kernel = defaultdict(list)
    for sample in samples:
        by_kernel[sample.kernel].append(sample)
    return {name: _fit_attention(name, by_kernel[name]) for name in sorted(by_kernel)}


def _fit_attention(name: str, samples: Sequence[Sample]) -> AttentionKernel:
    places = sorted({(sample.device, sample.sizes[0][2]) for sample in samples})
    count = len(places)
    # Where nothing tells them apart, what is shared stays at a plain value: no difference between
    # passes, half of the rate at 200 tokens, a launch of 5 us.
    usual = np.log([1.0, 1.0, 200.0, 200.0, 200.0, 200.0, 5.0])

    def kernel(values: np.ndarray, spread: float = 0.0) -> AttentionKernel:
        rates: dict[str, dict[int, float]] = {}
        for (device, width), value in zip(places, np.exp(values[:count]), strict=True):
            rates.setdefault(device, {})[width] = float(f"{value:.4g}") if spread else float(value)
        shared = [
            float(f"{each:.3g}") if spread else float(each) for each in np.exp(values[count:])
        ]
        return AttentionKernel(
            rates=rates,
            backward=shared[0],
            causal=shared[1],
            half=shared[2],
            half_causal=shared[3],
            half_backward=shared[4],
            half_backward_causal=shared[5],
            fixed=shared[6] * 1e-6,
            spread=spread,
            ops=len(samples),
            source=", ".join(sorted({sample.source for sample in samples})),
        )

    def errors(values: np.ndarray) -> np.ndarray:
        trial = kernel(values)
        return np.array([math.log(_seconds(trial, sample) / sample.seconds) for sample in samples])

    def residuals(values: np.ndarray) -> np.ndarray:
        return np.concatenate([errors(values), 0.1 * (values[count:] - usual)])

    start = np.concatenate([np.log(np.full(count, 300.0)), usual])
    found = least_squares(residuals, start, loss="soft_l1", f_scale=OUTLIER).x
    return kernel(found, spread=round(_quantile(errors(found)), 3))


def _seconds(kernel: AttentionKernel, sample: Sample) -> float:
    device = find_hardware(sample.device).device
    ((queries, keys, width),) = sample.sizes

    def of_pass(*, backward: bool) -> float:
        return attention_seconds(
            kernel,
            (sample.device, device),
            (queries, keys, width),
            sample.flops * (2.5 if backward else 1),
            causal=sample.causal,
            backward=backward,
        )

    total = of_pass(backward=False) if "fwd" in sample.what else 0.0
    return total + (of_pass(backward=True) if "bwd" in sample.what else 0.0)


def fitted_products(
    samples: Sequence[Sample], fixed: float | None = None
) -> dict[str, ProductKernel]:
    """Return products by type of number, with a rate for each device, and what any takes.

    They have the least robust error of the logarithm of the times. The best of many shapes is no
    usual rate: where nothing else is known it counts by what usual shapes reach of it elsewhere.
    What any takes is `fixed` where it is known.
    """
    usual = [sample for sample in samples if not sample.best and sample.sizes[0][0] >= FEWEST_ROWS]
    places = sorted({(each.kernel, each.device) for each in usual})

    def any_takes(values: np.ndarray) -> float:
        return float(np.exp(values[-1])) * 1e-6 if fixed is None else fixed

    def errors(values: np.ndarray) -> np.ndarray:
        rates = dict(zip(places, np.exp(values[:-1]), strict=True))
        launch = any_takes(values)
        return np.array(
            [
                math.log(
                    _product_seconds(each, rates[each.kernel, each.device], launch) / each.seconds
                )
                for each in usual
            ]
        )

    start = np.log([*(find_hardware(d).device.peak(_dtype(s)) / 1.5e12 for s, d in places), 5.0])
    found = least_squares(errors, start, loss="soft_l1", f_scale=OUTLIER).x
    left = errors(found)
    rates = {
        (s, d): min(float(rate), find_hardware(d).device.peak(_dtype(s)) / 1e12)
        for (s, d), rate in zip(places, np.exp(found[:-1]), strict=True)
    }
    best = {
        (sample.kernel, sample.device): sample.flops / sample.seconds / 1e12
        for sample in samples
        if sample.best
    }
    # A best clearly below what is usual is of older software, and says nothing of shares.
    shares = {place: rates[place] / best[place] for place in best if place in rates}
    shares = {place: share for place, share in shares.items() if share < OLDER}
    rates |= {
        place: rate * _share(place, shares) for place, rate in best.items() if place not in rates
    }
    return {
        scaling: ProductKernel(
            rates={
                d: float(f"{rate:.4g}") for (s, d), rate in sorted(rates.items()) if s == scaling
            },
            fixed=float(f"{any_takes(found):.2g}"),
            spread=round(
                _quantile(
                    [e for e, each in zip(left, usual, strict=True) if each.kernel == scaling]
                )
                if any(s == scaling for s, _ in places)
                else _quantile(left),
                3,
            ),
            ops=sum(sample.kernel == scaling for sample in samples),
            source=", ".join(
                sorted({sample.source for sample in samples if sample.kernel == scaling})
            ),
        )
        for scaling in sorted({scaling for scaling, _ in rates})
    }


def _share(place: tuple[str, str], shares: Mapping[tuple[str, str], float]) -> float:
    """Return what usual shapes reach of the best: in the mean of devices of the same generation
    with the same numbers, or of all with the same numbers, or of all."""
    scaling, device = place
    generation = find_hardware(device).device.generation
    alike = {key: share for key, share in shares.items() if key[0] == scaling}
    near = {k: s for k, s in alike.items() if find_hardware(k[1]).device.generation == generation}
    return math.exp(float(np.mean(np.log(list((near or alike or shares).values())))))


def _product_seconds(sample: Sample, rate: float, fixed: float) -> float:
    kernel = ProductKernel(
        rates={sample.device: rate}, fixed=fixed, spread=0.0, ops=1, source=sample.source
    )
    size = {"bfloat16": 2.0, "nvfp4": 0.5}.get(sample.what, 1.0)
    device = sample.device, find_hardware(sample.device).device
    return sum(
        product_seconds(
            kernel,
            device,
            (sample.groups, rows, columns, inner),
            read=size * sample.groups * inner * (rows + columns),
            written=2.0 * sample.groups * rows * columns,
        )
        for rows, columns, inner in sample.sizes
    ) + sample.moved / (STREAMED * device[1].memory_bandwidth)


def _dtype(scaling: str) -> str:
    names = {"bfloat16": "bfloat16", "nvfp4": "float4"}
    return names.get(scaling.partition(" ")[0], "float8")


def _quantile(errors: Sequence[float] | np.ndarray) -> float:
    sizes = sorted(abs(float(error)) for error in errors)
    return sizes[min(math.ceil((len(sizes) + 1) * LEVEL), len(sizes)) - 1]


if __name__ == "__main__":
    sys.exit(main())
