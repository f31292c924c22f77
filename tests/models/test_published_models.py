"""The built-in models against what was published of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from paracosm.errors import InputError
from paracosm.models import MODELS, built_in
from paracosm.models.language import Llama, LlamaAttention

# torchvision's documentation for images; the papers, and the weights that they published, for text.
PUBLISHED = {
    "vgg11": 132_863_336,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "vgg19-bn": 143_678_248,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "bert-base": 109_514_298,
    "llama-7b": 6_738_415_616,
    "llama-70b": 68_976_648_192,
}
# Thousands of multiply-adds of a forward pass at 224 pixels, as torchvision documents them.
MULTIPLY_ADDS = {"vgg19": 19.63e9, "resnet18": 1.81e9, "resnet50": 4.09e9, "resnet152": 11.51e9}


def build(name: str) -> nn.Module:
    """Make a model as its paper has it, without memory for its parameters."""
    model = MODELS[name]
    with torch.device("meta"):
        return model.make(model.shape, model.classes or None)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_many_as_published(name: str) -> None:
    assert sum(p.numel() for p in build(name).parameters()) == PUBLISHED[name]


def test_only_our_own_models_have_no_published_number() -> None:
    assert MODELS.keys() - PUBLISHED.keys() == {"gpt-small", "mlp", "paper-cnn", "resnet20"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "resnet152" else ())
        for name in MULTIPLY_ADDS
    ],
)
def test_multiply_adds_are_as_many_as_published(name: str) -> None:
    with FlopCounterMode(display=False) as counter:
        build(name)(torch.empty(1, 3, 224, 224, device="meta"))
    assert counter.get_total_flops() / 2 == pytest.approx(MULTIPLY_ADDS[name], rel=0.005)


@pytest.mark.parametrize("name", [n for n, model in MODELS.items() if model.kind == "images"])
def test_images_of_32_pixels_are_classified(name: str) -> None:
    logits = build(name)(torch.empty(2, 3, 32, 32, device="meta"))
    assert logits.shape == (2, MODELS[name].classes)


def test_a_longer_sequence_gets_positions() -> None:
    from paracosm.models.language import gpt2

    with torch.device("meta"):
        assert gpt2((2048,)).wpe.num_embeddings == 2048


def test_grouped_queries_share_keys_and_values() -> None:
    """Attention with 2 groups of heads equals that of 4 whose keys and values come in pairs."""
    torch.manual_seed(0)
    shared, full = LlamaAttention(32, heads=4, groups=2), LlamaAttention(32, heads=4, groups=4)
    for mine, theirs in ((full.wk, shared.wk), (full.wv, shared.wv)):
        paired = theirs.weight.unflatten(0, (2, 8)).repeat_interleave(2, dim=0).flatten(0, 1)
        mine.weight = nn.Parameter(paired)
    full.wq, full.wo = shared.wq, shared.wo
    rotation = torch.ones(6, 8), torch.zeros(6, 8)
    x = torch.randn(3, 6, 32)
    torch.testing.assert_close(shared(x, rotation), full(x, rotation))


def test_rotary_positions_see_distances_alone() -> None:
    """Scores of a query and a key depend on how far apart they are, not on where."""
    from paracosm.models.language import _rotated, _rotations

    torch.manual_seed(0)
    cosine, sine = _rotations(context=20, width=8)
    query, key = torch.randn(8), torch.randn(8)

    def score(at: int, other: int) -> torch.Tensor:
        return _rotated(query, cosine[at], sine[at]) @ _rotated(key, cosine[other], sine[other])

    torch.testing.assert_close(score(3, 1), score(19, 17), rtol=1e-4, atol=1e-5)
    assert not torch.isclose(score(3, 1), score(9, 1), rtol=1e-2)


def test_tokens_see_only_those_before_them() -> None:
    torch.manual_seed(0)
    model = Llama(2, width=16, inner=32, heads=2, groups=1, context=6, vocabulary=10)
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    other = torch.tensor([[1, 2, 3, 4, 5, 9]])
    torch.testing.assert_close(model(tokens)[:, :5], model(other)[:, :5])


def test_models_are_made_under_fake_tensors_without_memory() -> None:
    with FakeTensorMode():
        module = MODELS["llama-7b"].make((16,), None)
    assert sum(p.numel() for p in module.parameters()) == PUBLISHED["llama-7b"]


def test_an_unknown_model_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match='unknown model "resnet51": did you mean "resnet50"'):
        built_in("resnet51")
