"""The time of attention and of products on tensor cores: hand calculations and laws."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster.hardware import find_hardware, load_catalogue
from paracosm.cluster.hardware.catalogue import Device
from paracosm.cluster.hardware.kernels import (
    AttentionKernel,
    ProductKernel,
    attention_seconds,
    kernel_spread,
    load_kernels,
    product_seconds,
    sustained,
)

KNOWN = {"spread": 0.1, "ops": 3, "source": "nobody"}
FLASH = AttentionKernel(
    rates={"h100-sxm": {64: 300, 128: 400}, "a100-sxm-80gb": {128: 156}},
    backward=0.5,
    causal=0.9,
    half=100,
    half_causal=500,
    half_backward=300,
    half_backward_causal=1000,
    fixed=5e-6,
    **KNOWN,
)
PRODUCTS = ProductKernel(rates={"h100-sxm": 700}, fixed=5e-6, **KNOWN)


def device(name: str) -> tuple[str, Device]:
    return name, find_hardware(name).device


def attention(
    name: str = "h100-sxm",
    sizes: tuple[int, int, int] = (1000, 1000, 128),
    *,
    causal: bool = False,
    backward: bool = False,
) -> float:
    return attention_seconds(FLASH, device(name), sizes, 1e12, causal=causal, backward=backward)


def test_attention_is_slower_on_short_sequences_under_a_mask_and_backward() -> None:
    assert attention() == pytest.approx(5e-6 + 1 / (400 * 1000 / 1100))
    assert attention(causal=True) == pytest.approx(5e-6 + 1 / (400 * 0.9 * 1000 / 1500))
    assert attention(backward=True) == pytest.approx(5e-6 + 1 / (400 * 0.5 * 1000 / 1300))
    both = 5e-6 + 1 / (400 * 0.5 * 0.9 * 1000 / 2000)
    assert attention(causal=True, backward=True) == pytest.approx(both)
    assert attention(sizes=(1000, 1000, 64)) == pytest.approx(5e-6 + 1 / (300 * 1000 / 1100))
    # The nearest width that was timed, and the shorter of queries and keys.
    assert attention(sizes=(1000, 1000, 256)) == attention()
    assert attention(sizes=(250, 1000, 128)) == pytest.approx(5e-6 + 1 / (400 * 250 / 350))


def test_attention_that_nobody_timed_follows_the_products_of_the_device() -> None:
    rates = load_kernels().products["bfloat16"].rates
    assert attention("h200-sxm") == pytest.approx(attention("h100-sxm"))  # as much power, same peak
    slower = rates["a100-sxm-80gb"] / rates["a100-pcie-80gb"]
    of_a100 = attention("a100-sxm-80gb") - 5e-6
    assert attention("a100-pcie-80gb") == pytest.approx(5e-6 + slower * of_a100)
    # No products of its family either: the mean of all, of 400 of 989.5 and 156 of 312.
    share = math.sqrt(400 / 989.5 * 156 / 312)
    of_l40s = 5e-6 + 1e12 / (share * 362e12 * 1000 / 1100)
    assert attention("l40s") == pytest.approx(of_l40s)
    near = kernel_spread(FLASH, device("h200-sxm"))
    far = kernel_spread(FLASH, device("l40s"))
    assert near == (pytest.approx(0.1 + math.log(1.2)), "other devices")
    assert kernel_spread(FLASH, device("h100-sxm")) == (0.1, "timed")
    assert far == (pytest.approx(0.1 + 2 * math.log(1.2)), "other devices")


@pytest.mark.parametrize(
    ("power", "nearest"), [(500, "b200-sxm-750w"), (750, "b200-sxm-750w"), (1000, "b200-sxm")]
)
def test_products_are_slower_where_a_device_may_draw_less(power: float, nearest: str) -> None:
    _, b200 = device("b200-sxm")
    kernel = load_kernels().products["bfloat16"]
    sizes, bytes_moved = (1, 16384, 16384, 16384), {"read": 0.0, "written": 0.0}
    known = product_seconds(kernel, device(nearest), sizes, **bytes_moved) - kernel.fixed
    other = "of mine", b200.model_copy(update={"power": power})
    limited = product_seconds(kernel, other, sizes, **bytes_moved) - kernel.fixed
    less = power / (device(nearest)[1].power or math.nan)
    assert known / limited == pytest.approx(less**0.65)


def test_a_product_waits_for_its_last_wave_of_tiles_and_for_what_it_writes() -> None:
    """On 132 multiprocessors: 132 x 256 rows and 128 columns are one full wave of 256 x 128 tiles.
    A row more is a second wave of them, or of smaller tiles three waves that are fuller."""

    def seconds(rows: int, read: float = 0.0, written: float = 0.0) -> float:
        sizes = (1, rows, 128, 8192)
        return product_seconds(PRODUCTS, device("h100-sxm"), sizes, read=read, written=written)

    work = 2 * 128 * 8192 / 700e12  # of a row, at the full rate
    full = 132 * 256
    assert seconds(full) == pytest.approx(5e-6 + full * work)
    # Tiles of 128 x 64: 530 tiles of which 132 at once, 5 waves, each reaching 0.85.
    smaller = 5 * 132 * 128 * 64 / 0.85 / 128
    assert seconds(full + 1) == pytest.approx(5e-6 + smaller * work)
    assert seconds(full, written=3.35e9) == pytest.approx(5e-6 + full * work + 1e-3)
    assert seconds(full, read=3.35e9) == pytest.approx(5e-6 + 1e-3)  # hides the products
    half = product_seconds(
        PRODUCTS, device("h100-sxm"), (1, full, 128, 8192), read=0, written=0, clock=0.5
    )
    assert half == pytest.approx(5e-6 + 2 * full * work)


@given(
    st.sampled_from(sorted(load_catalogue().devices)),
    st.tuples(st.integers(1, 64), *[st.integers(1, 20_000)] * 3),
)
def test_no_product_is_faster_than_the_rate_of_its_device(
    name: str, sizes: tuple[int, int, int, int]
) -> None:
    batch, rows, columns, inner = sizes
    for kernel in load_kernels().products.values():
        least = product_seconds(kernel, device(name), sizes, read=0, written=0)
        more = product_seconds(kernel, device(name), sizes, read=1e9, written=1e9)
        twice = product_seconds(
            kernel, device(name), (batch, rows, columns, 2 * inner), read=0, written=0
        )
        assert kernel.fixed < least <= more
        assert least < twice <= 2 * least


@given(
    st.sampled_from(sorted(load_catalogue().devices)),
    st.integers(1, 100_000),
    st.sampled_from([32, 64, 96, 128, 256]),
    st.booleans(),
    st.booleans(),
)
def test_the_rate_of_attention_grows_with_the_sequence(
    name: str, tokens: int, width: int, causal: bool, backward: bool
) -> None:
    for kernel in load_kernels().attention.values():
        times = [
            attention_seconds(
                *(kernel, device(name), (length, length, width), 1e12),
                causal=causal,
                backward=backward,
            )
            for length in (tokens, 2 * tokens)
        ]
        assert kernel.fixed < times[1] <= times[0]


def test_rates_of_the_table_are_below_the_peaks() -> None:
    kernels, known = load_kernels(), load_catalogue().devices
    for kernel in kernels.attention.values():
        for name, rates in kernel.rates.items():
            assert max(rates.values()) < known[name].peak_tflops["bfloat16"], name
            assert max(rates.values()) * kernel.backward * kernel.causal < 1.05 * max(
                rates.values()
            )
    for numbers, products in kernels.products.items():
        kind = {"bfloat16": "bfloat16", "nvfp4": "float4"}.get(numbers.split()[0], "float8")
        for name, rate in products.rates.items():
            assert 0.24 < rate / known[name].peak_tflops[kind] <= 1, (numbers, name)


@pytest.mark.parametrize(
    ("name", "share"),
    [("a100-sxm-80gb", 0.9), ("h100-sxm", 0.9), ("b200-sxm", 1237 / 1437.5), ("tpu-v5e", 1)],
)
def test_the_share_of_its_rate_that_a_kernel_keeps_is_that_of_the_generation(
    name: str, share: float
) -> None:
    """B200: 1,237 Tflop/s of the mean of 1,425 and 1,450; a TPU has one clock."""
    assert sustained(find_hardware(name).device) == pytest.approx(share, abs=0.005)
