"""The sizes of a decoder-only transformer, and those of well-known models."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from paracosm.data_files import read_packaged_yaml
from paracosm.errors import InputError, unknown

Recipe = Literal["megatron", "compiled", "eager"]
Loss = Literal["separate", "returned", "in place", "fused", "chunked"]
Weights = Literal["copies", "buffers", "single"]


@dataclass(frozen=True)
class Transformer:
    """A decoder, or an encoder: a norm before each half of a layer, attention, then a perceptron or
    experts.

    `recipe` defines the kernels and the precision. "megatron": those of Megatron-LM in 2021, in
    half precision, with attention that writes its scores, dropout, and gradients reduced in half
    precision. "compiled" and "eager": flash attention, no dropout, gradients reduced in single
    precision; element-wise ops are fused by a compiler, or separate.

    `loss` says what the loss holds of logits. "separate": a copy in single precision, the logarithm
    of its softmax, which the backward pass needs, and backward two gradients of that size
    (`torch.nn.functional.cross_entropy`, op by op). "returned": besides, the model returns logits,
    which are held with their copy until the loss is differentiated (Transformers). "in place": one
    copy in single precision, of which softmax and gradient take the place (Megatron's
    `vocab_parallel_cross_entropy`). "fused": the logits alone (compiled, or in Triton: what a
    kernel needs it computes again). "chunked": not even these, but those of some tokens at a time,
    as large as the residual stream, and its gradient (Liger's `fused_linear_cross_entropy`).

    `weights` says what is held of parameters. "copies": in half precision, and master weights in
    single (DeepSpeed). "buffers": besides, gradients have one buffer that is there from the
    beginning on (Megatron-Core, `param_and_grad_buffer.py`). "single": in single precision, cast
    when they are used, so that ranks that share them have them once (PyTorch's FSDP, MaxText).

    Raises:
        InputError: a size that is not positive; sizes that do not divide each other; experts
            without a choice of them; a model that is none of the recipe's.
    """

    layers: int
    width: int  # of the residual stream ("hidden size")
    heads: int  # of attention
    sequence: int  # tokens of an example
    vocabulary: int = 50_257
    kv_heads: int = 0  # of keys and values; as many as `heads` where it is 0
    head: int = 0  # width of a head; `width` over `heads` where it is 0
    inner: int = 0  # width of the perceptron, or of an expert; four times `width` where it is 0
    gated: bool = False  # whether the perceptron has a gate (SwiGLU): three matrices, not two
    rotary: bool = False  # positions by rotating queries and keys, not from a table
    rms: bool = False  # norms by the root mean square, not layer norms
    bias: bool = True  # of linear maps and norms
    tied: bool = True  # whether the head's weights are the embedding's
    fused_qkv: bool = True  # whether one product makes queries, keys and values
    experts: int = 0  # in each layer; 0 for a perceptron
    active: int = 0  # experts that a token goes to
    shared: int = 0  # experts besides that every token goes to
    causal: bool = True  # whether tokens attend only to those before; an encoder's attend to all
    scored: float = 1.0  # share of tokens that the head predicts: of BERT's those that are masked
    # rank of the adapters of attention's projections, where those alone are trained, and all other
    # weights are frozen (Hu et al., "LoRA", 2021); 0 where all weights are trained
    adapter: int = 0
    recipe: Recipe = "megatron"
    loss: Loss | Literal[""] = ""  # "in place" of recipe megatron, else "separate"
    weights: Weights = "copies"

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "sequence", "vocabulary"):
            if getattr(self, name) < 1:
                raise InputError(
                    f"transformer: {name} must be 1 or more, not {getattr(self, name)}"
                )
        if self.width % self.heads and not self.head:
            raise InputError(
                f"transformer: {self.heads} heads do not divide a width of {self.width}"
            )
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "inner", self.inner or 4 * self.width)
        usual = "in place" if self.recipe == "megatron" else "separate"
        object.__setattr__(self, "loss", self.loss or usual)
        if self.heads % self.kv_heads:
            raise InputError(
                f"transformer: {self.kv_heads} heads of keys do not divide {self.heads} heads"
            )
        if self.experts and not 1 <= self.active <= self.experts:
            raise InputError(
                f"transformer: active must be 1 to {self.experts} experts, not {self.active}"
            )
        if not 0 <= self.adapter <= self.width:
            raise InputError(
                f"transformer: adapters have a rank of 1 to {self.width:,}, not {self.adapter:,}"
            )
        if not 0 < self.scored <= 1:
            raise InputError(f"transformer: scored must be above 0, to 1, not {self.scored}")
        modern = self.gated or self.rotary or self.rms or self.experts or not self.tied
        modern = modern or self.adapter or not self.causal or self.scored < 1
        if self.recipe == "megatron" and (
            modern or not self.bias or not self.fused_qkv or self.kv_heads != self.heads
        ):
            raise InputError(
                "transformer: recipe megatron is of GPT alone: layer norms, biases, a table of "
                "positions, a perceptron without a gate; recipe compiled takes all others"
            )

    @property
    def head_width(self) -> int:
        return self.head or self.width // self.heads

    @property
    def matrices(self) -> int:
        """Matrices of a perceptron or an expert."""
        return 3 if self.gated else 2

    @property
    def attention_parameters(self) -> int:
        """Of one layer: queries, keys, values, output, their biases."""
        queries = self.heads * self.head_width
        rows = queries + 2 * self.kv_heads * self.head_width
        biases = rows + self.width if self.bias else 0
        return self.width * (rows + queries) + biases

    @property
    def expert_parameters(self) -> int:
        """Of one expert, or of the perceptron."""
        biases = (self.matrices - 1) * self.inner + self.width if self.bias else 0
        return self.matrices * self.width * self.inner + biases

    @property
    def norm_parameters(self) -> int:
        return self.width if self.rms or not self.bias else 2 * self.width

    @property
    def layer_parameters(self) -> int:
        """Of one layer; of a GPT 12 h^2 weights, 9 h biases, two layer norms of 2 h."""
        router = self.experts * self.width
        count = (self.experts + self.shared) or 1
        inner = router + count * self.expert_parameters
        return self.attention_parameters + inner + 2 * self.norm_parameters

    @property
    def parameters(self) -> int:
        """Of the model; a head that shares the embedding's weights has none of its own."""
        tables = self.vocabulary * (1 if self.tied else 2) + (0 if self.rotary else self.sequence)
        return self.layers * self.layer_parameters + tables * self.width + self.norm_parameters

    def padded_vocabulary(self, tensor: int) -> int:
        """Return the rows of the embedding on `tensor` ranks together: with Megatron a multiple of
        128 on each (`make-vocab-size-divisible-by`), else as many on each."""
        multiple = (128 if self.recipe == "megatron" else 1) * tensor
        return -(-self.vocabulary // multiple) * multiple

    def split(self, tensor: int) -> None:
        """Raise InputError unless `tensor` ranks can share each layer."""
        if tensor < 1 or self.heads % tensor:
            best = nearest_divisor(self.heads, tensor)
            raise InputError(
                f"tensor={tensor} ranks do not divide {self.heads} heads; {best} would"
            )

    def cut(self, stages: int) -> None:
        """Raise InputError unless `stages` of a pipeline can have as many layers each."""
        if stages < 1 or self.layers % stages:
            best = nearest_divisor(self.layers, stages)
            raise InputError(f"{stages} stages do not divide {self.layers} layers; {best} would")


def nearest_divisor(number: int, wanted: int) -> int:
    """Return the divisor of a number that is nearest to the desired one."""
    fitting = [count for count in range(1, number + 1) if number % count == 0]
    return min(fitting, key=lambda count: abs(count - wanted))


def architecture(name: str, sequence: int | None = None) -> Transformer:
    """Return the sizes of a model of `ARCHITECTURES`, with examples of so many tokens.

    Raises:
        InputError: a name that is unknown, with the nearest; no token.
    """
    if name not in ARCHITECTURES:
        raise unknown("transformer", name, ARCHITECTURES)
    found = ARCHITECTURES[name]
    return found if sequence is None else replace(found, sequence=sequence)


ARCHITECTURES: Mapping[str, Transformer] = {
    name: Transformer(**(family["common"] | own))
    for family in read_packaged_yaml(Path(__file__).with_name("architectures.yaml"))
    for name, own in family["models"].items()
}
"""Name -> sizes, of `architectures.yaml`."""
