"""The sizes of a decoder-only transformer, and those of well-known models."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from paracosm.data_files import read_packaged_yaml
from paracosm.errors import InputError, unknown

Recipe = Literal["megatron", "compiled", "eager", "transformer-engine"]
Loss = Literal["separate", "returned", "in place", "fused", "chunked"]
Weights = Literal["copies", "buffers", "single"]


@dataclass(frozen=True)
class Transformer:
    """A decoder, or an encoder: a norm before each half of a layer, attention, then a perceptron or
    experts.

    With `latent` keys and values of all heads are made from so many numbers a token, and queries
    from `query_latent` (of the stream itself where that is 0); heads of queries and keys are wider
    than those of values by `rotary_head` numbers, which alone are rotated, and which all heads of
    keys share (multi-head latent attention: DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1).

    `recipe` defines the kernels and the precision. "megatron": those of Megatron-LM in 2021, in
    half precision, with attention that writes its scores, dropout, and gradients reduced in half
    precision. "compiled" and "eager": flash attention, no dropout, gradients reduced in single
    precision; element-wise ops are fused by a compiler, or separate. "transformer-engine": as
    compiled, but experts that every token goes to compute beside the exchanges of the others
    (Megatron-Core's `moe_shared_expert_overlap`).

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
    adapter_dropout: bool = False  # whether what adapters take goes through a dropout first
    dense_layers: int = 0  # at the beginning, with a perceptron in place of experts
    experts_every: int = 1  # of so many layers the last one has experts
    dense_inner: int = 0  # width of those perceptrons; that of an expert where it is 0
    head: int = 0  # width of a head; `width` over `heads` where it is 0
    latent: int = 0  # numbers of a token that keys and values are made from; 0 for the stream
    query_latent: int = 0
    rotary_head: int = 0
    chunk: int = 0  # tokens that attend to each other; 0 for all
    whole_every: int = 0  # of so many layers the last one attends to all; 0 for none
    # layers after the last one, each of which predicts one token more (DeepSeek-AI, "DeepSeek-V3",
    # 2024, section 2.2)
    predictions: int = 0
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
        if self.adapter_dropout and not self.adapter:
            raise InputError("transformer: adapter_dropout has no effect without adapter")
        if self.adapter and self.latent:
            raise InputError("transformer: adapters of latent attention are not known")
        if not 0 < self.scored <= 1:
            raise InputError(f"transformer: scored must be above 0, to 1, not {self.scored}")
        for name, other in (
            ("dense_layers", "experts"),
            ("dense_inner", "experts"),
            ("query_latent", "latent"),
            ("rotary_head", "latent"),
            ("whole_every", "chunk"),
        ):
            if getattr(self, name) and not getattr(self, other):
                raise InputError(f"transformer: {name} has no effect without {other}")
        if self.experts and not 0 <= self.dense_layers < self.layers:
            raise InputError(
                f"transformer: dense_layers must be 0 to {self.layers - 1}, not {self.dense_layers}"
            )
        if self.experts_every < 1 or (self.experts and self.experts_every > self.layers):
            raise InputError(
                f"transformer: experts_every must be 1 to {self.layers}, not {self.experts_every}"
            )
        if self.chunk and self.sequence % self.chunk and self.sequence > self.chunk:
            near = max(round(self.sequence / self.chunk), 1) * self.chunk
            raise InputError(
                f"transformer: chunks of {self.chunk:,} tokens do not divide a sequence of "
                f"{self.sequence:,}; {near:,} fits"
            )
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
    def key_width(self) -> int:
        """Of a head of queries and keys."""
        return self.head_width + self.rotary_head

    @property
    def is_fused(self) -> bool:
        """Whether element-wise ops are fused."""
        return self.recipe in ("compiled", "transformer-engine")

    @property
    def matrices(self) -> int:
        """Matrices of a perceptron or an expert."""
        return 3 if self.gated else 2

    @property
    def attention_parameters(self) -> int:
        """Of one layer: queries, keys, values, output, their biases."""
        values = self.heads * self.head_width
        if self.latent:
            keys = self.heads * (self.head_width + self.rotary_head)
            latents = self.latent + self.query_latent
            down = self.width * (latents + self.rotary_head)
            up = (self.query_latent or self.width) * keys + self.latent * 2 * values
            return down + latents + up + values * self.width
        rows = values + 2 * self.kv_heads * self.head_width
        biases = rows + self.width if self.bias else 0
        return self.width * (rows + values) + biases

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
        return self.attention_parameters + self._inner_parameters(self.experts)

    def _inner_parameters(self, experts: int) -> int:
        router = self.experts * self.width
        count = (experts + self.shared) or 1
        return router + count * self.expert_parameters + 2 * self.norm_parameters

    @property
    def parameters(self) -> int:
        """Of the model; a head that shares the embedding's weights has none of its own."""
        return self._parameters(lambda layer: layer.experts)

    @property
    def active_parameters(self) -> int:
        """Those that one token meets."""
        return self._parameters(lambda layer: layer.active)

    def _parameters(self, experts: Callable[["Transformer"], int]) -> int:
        tables = self.vocabulary * (1 if self.tied else 2) + (0 if self.rotary else self.sequence)
        kinds = [self.of_layer(number) for number in range(self.layers + self.predictions)]
        layers = sum(
            one.attention_parameters + one._inner_parameters(experts(one)) for one in kinds
        )
        return (
            layers
            + self.predictions * self.prediction_parameters
            + (tables * self.width + self.norm_parameters)
        )

    @property
    def prediction_parameters(self) -> int:
        """Of what joins the stream with the next token's embedding: a map, and two norms."""
        return 2 * self.width**2 + 2 * self.norm_parameters

    def of_layer(self, number: int) -> "Transformer":
        """Return a model all of whose layers are like this one; equal ones for equal layers."""
        number = min(number, self.layers - 1)
        is_dense = number < self.dense_layers or (number + 1) % self.experts_every
        is_whole = self.whole_every and not (number + 1) % self.whole_every
        return _layer(self, bool(self.experts and is_dense), bool(self.chunk and is_whole))

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


@lru_cache(maxsize=256)
def _layer(model: Transformer, is_dense: bool, is_whole: bool) -> Transformer:
    return replace(
        model,
        experts=0 if is_dense else model.experts,
        active=0 if is_dense else model.active,
        shared=0 if is_dense else model.shared,
        inner=(is_dense and model.dense_inner) or model.inner,
        chunk=0 if is_whole else model.chunk,
        dense_layers=0,
        experts_every=1,
        dense_inner=0,
        whole_every=0,
        predictions=0,
    )


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
    transformer = ARCHITECTURES[name]
    return transformer if sequence is None else replace(transformer, sequence=sequence)


ARCHITECTURES: Mapping[str, Transformer] = {
    name: Transformer(**(family["common"] | own))
    for family in read_packaged_yaml(Path(__file__).with_name("architectures.yaml"))
    for name, own in family["models"].items()
}
"""Name -> sizes, of `architectures.yaml`."""
