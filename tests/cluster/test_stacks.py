"""Software stacks: what each runs on which device."""

import pytest

from paracosm.cluster.hardware import find_hardware, find_stack, load_catalogue, load_stacks
from paracosm.cluster.hardware.kernels import load_kernels
from paracosm.cluster.hardware.stacks import products_of
from paracosm.errors import InputError
from paracosm.graphs.transformer.share import CONTEXT_FORMS, SCALINGS


def test_every_stack_has_attention_everywhere() -> None:
    for stack in load_stacks().values():
        assert stack.float8 in SCALINGS
        assert stack.context in CONTEXT_FORMS
        for device in load_catalogue().devices.values():
            assert stack.attention_on(device) in load_kernels().attention.values()


def test_attention_depends_on_the_stack_and_the_device() -> None:
    h100, a100 = (find_hardware(name).device for name in ("h100-sxm", "a100-sxm-80gb"))
    kernels = load_kernels().attention
    assert find_stack("megatron-te").attention_on(h100) is kernels["cudnn"]
    assert find_stack("megatron-te").attention_on(a100) is kernels["flash-2"]
    assert find_stack("pytorch-compile").attention_on(h100) is kernels["flash-2"]


def test_software_that_runs_alike_is_one_stack_by_several_names() -> None:
    assert find_stack("torchtitan") is find_stack("litgpt") is find_stack("pytorch-compile")
    assert find_stack("nemo-2024") is find_stack("megatron-te")
    names = [name for stack in load_stacks().values() for name in stack.also]
    assert len(names) == len({*names})
    assert not {*names} & {*load_stacks()}


def test_a_name_that_is_no_stack_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r'stack: .*did you mean "megatron-te"'):
        find_stack("megatron-et")


def test_numbers_are_multiplied_by_their_kernels_where_the_device_has_them() -> None:
    h100, b200, a100 = (
        find_hardware(name).device for name in ("h100-sxm", "b200-sxm", "a100-sxm-80gb")
    )
    products = load_kernels().products
    assert products_of("bfloat16", "delayed", h100) is products["bfloat16"]
    assert products_of("float8", "rowwise", h100) is products["float8 rowwise"]
    assert products_of("float8", "delayed", h100) is products["float8 tensorwise"]
    assert products_of("float8", "mxfp8", b200) is products["mxfp8"]
    assert products_of("float32", "delayed", h100) is None
    with pytest.raises(InputError, match="float8=mxfp8: NVIDIA H100 SXM5 80 GB does not multiply"):
        products_of("float8", "mxfp8", h100)
    with pytest.raises(InputError, match="no peak for float8"):
        products_of("float8", "delayed", a100)
