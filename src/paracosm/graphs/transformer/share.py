"""One rank's part of a transformer: of its heads and matrices, of a sequence, of its experts."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from paracosm.errors import InputError
from paracosm.expression import parse_expression
from paracosm.graphs.transformer.architecture import Transformer, nearest_divisor
from paracosm.graphs.transformer.ops import HALF
from paracosm.rng import SimulationStream, generator

SCALINGS = ("tensorwise", "rowwise", "delayed", "blockwise", "mxfp8")
"""How numbers of one byte are scaled. By the largest of their tensor, or of a row (torchao); of the
tensor in earlier steps, of blocks of 128 x 128 and 1 x 128, or of 32 numbers (Transformer Engine;
the last is the Open Compute Project's microscaling)."""

STATES = ("float32", "bfloat16")
"""What the optimizer keeps: weights, gradients and moments in single precision, for weights in half
precision that ranks compute with; or all of them in bfloat16, with no other copy of the weights
("bf16-true" of Lightning and LitGPT; `torch_dtype=torch.bfloat16` of Transformers)."""

CONTEXT_FORMS = ("ring", "gather", "ulysses", "pieces", "pieces-ring")
"""How ranks that share a sequence exchange keys and values: `context.py` says who does which."""


@dataclass(frozen=True)
class Split:
    """How ranks divide a transformer; each number is one of ranks.

    Experts' loads are drawn anew for every layer: `routing` is "uniform"; "zipf(1.2)", in
    proportion to 1 / rank^1.2 of the experts in a random order; "dirichlet(0.5)", the smaller the
    more uneven; or measured loads, "40+30+20+10", one for each expert. An expert takes at most
    `capacity` times its even share of tokens, and drops the others; all of them if it is 0.
    """

    tensor: int = 1  # that share each layer
    sequence: bool = False  # whether they share norms and sums as well, along the sequence
    context: int = 1  # that share each sequence
    expert: int = 1  # that share the experts of each layer, and send tokens to each other
    routing: str = "uniform"
    capacity: float = 0.0
    # whether gathers and sums along the sequence overlap with the products that they feed or follow
    overlap: bool = False
    float8: str = ""  # how numbers of one byte of linear maps are scaled, one of `SCALINGS`, if any
    context_form: str = CONTEXT_FORMS[0]  # one of those
    states: str = STATES[0]  # one of those
    expert_tensor: int = 0  # that share each expert; those that share layers where it is 0
    seed: int = 0  # of the loads

    @property
    def of_an_expert(self) -> int:
        """Ranks that share each expert."""
        return self.expert_tensor or self.tensor

    @property
    def shares_experts(self) -> bool:
        """Whether experts are on other ranks than what else is of a layer."""
        return self.expert > 1 or self.of_an_expert != self.tensor


@dataclass(frozen=True)
class Share:
    """The sizes on one rank, in tokens and bytes.

    Raises:
        InputError: ranks that do not divide what they share; a split of what the model has not.
    """

    model: Transformer
    micro_batch: int  # examples
    split: Split

    def __post_init__(self) -> None:
        model, split = self.model, self.split
        model.split(split.tensor)
        if self.micro_batch < 1:
            raise InputError(f"micro_batch must be 1 or more, not {self.micro_batch}")
        if model.recipe == "megatron" and self.in_half_precision:
            raise InputError(
                "strategy: states=bfloat16: recipe megatron keeps float32; recipe compiled has both"
            )
        if model.recipe == "megatron" and (split.context > 1 or split.float8):
            feature = "context ranks need" if split.context > 1 else "float8 needs"
            raise InputError(
                f"transformer: {feature} flash attention: recipe compiled, not megatron"
            )
        if split.context > 1 and not model.causal:
            raise InputError(
                f"strategy: cp={split.context} divides sequences of a decoder, under its mask: an "
                "encoder takes cp=1"
            )
        chunks = 2 * split.context  # each rank has an early and a late one: as much to do as others
        if split.context > 1 and model.sequence % chunks:
            near = max(round(model.sequence / chunks), 1) * chunks
            raise InputError(
                f"strategy: cp={split.context}: a sequence of {model.sequence:,} tokens has no "
                f"{chunks} equal parts; {near:,} has"
            )
        if split.context_form == "ulysses" and self.heads % split.context:
            fits = nearest_divisor(self.heads, split.context)
            raise InputError(
                f"strategy: cp_form=ulysses: cp={split.context} does not divide {self.heads} heads "
                f"of a rank: cp={fits} does, or cp_form=ring"
            )
        if (split.expert > 1) and (not model.experts or model.experts % split.expert):
            sizes = [n for n in range(1, model.experts + 1) if model.experts % n == 0]
            near = min(sizes, key=lambda n: abs(n - split.expert), default=0)
            has = f"{model.experts} experts: ep={near} fits" if near else "no experts"
            raise InputError(f"strategy: ep={split.expert}, but the model has {has}")
        if split.of_an_expert != split.tensor and not model.experts:
            raise InputError(f"strategy: etp={split.of_an_expert}, but the model has no experts")
        if split.context > 1 and 0 < model.chunk < model.sequence:
            raise InputError(
                f"strategy: cp={split.context}: tokens attend to chunks of {model.chunk:,} of "
                f"{model.sequence:,}: only cp=1 is known, or sequences of {model.chunk:,}"
            )

    def of_layer(self, number: int) -> "Share":
        """Return the share of a layer; equal ones for equal layers."""
        model, split = self.model.of_layer(number), self.split
        if not model.experts and split.shares_experts:
            split = replace(split, expert=1, expert_tensor=0, routing="uniform", capacity=0.0)
        return replace(self, model=model, split=split)

    @property
    def tokens(self) -> int:
        return self.micro_batch * self.model.sequence // self.split.context

    @property
    def scored_tokens(self) -> int:
        """Tokens of which the head says what they are."""
        return max(round(self.tokens * self.model.scored), 1)

    @property
    def stream(self) -> int:
        """Bytes of the residual stream of these tokens."""
        return HALF * self.tokens * self.model.width

    @property
    def local(self) -> int:
        """Its bytes if the ranks that share layers divide it along the sequence."""
        return self.stream // (self.split.tensor if self.split.sequence else 1)

    @property
    def heads(self) -> int:
        return self.model.heads // self.split.tensor

    @property
    def kv_heads(self) -> int:
        return max(self.model.kv_heads // self.split.tensor, 1)

    @property
    def inner(self) -> int:
        return -(-self.model.inner // self.split.tensor)

    @property
    def parts(self) -> int:
        """Ranks that send tokens to experts each for its own part of a sequence."""
        return self.split.tensor if self.split.sequence else 1

    @property
    def gathered(self) -> int:
        """Ranks that gather tokens where an expert that they share is."""
        each_has_all = self.split.tensor > 1 and not self.split.sequence
        return 1 if each_has_all else self.split.of_an_expert

    @property
    def group_of_an_expert(self) -> str:
        return "tensor" if self.split.of_an_expert == self.split.tensor else "expert_tensor"

    @property
    def expert_inner(self) -> int:
        return -(-self.model.inner // self.split.of_an_expert)

    @property
    def vocabulary(self) -> int:
        return self.model.padded_vocabulary(self.split.tensor) // self.split.tensor

    @property
    def casts_once(self) -> bool:
        """Whether a tensor is read once to be cast to numbers of one byte, in both of the layouts
        that products take it in, as Transformer Engine does; also by experts."""
        return self.split.float8 in ("delayed", "blockwise", "mxfp8")

    @property
    def gradient(self) -> int:
        """Bytes of the gradient of a number, as it is reduced."""
        return HALF if self.model.recipe == "megatron" or self.in_half_precision else 4

    @property
    def in_half_precision(self) -> bool:
        """Whether the optimizer keeps nothing in single precision."""
        return self.split.states == "bfloat16"

    def routed_tokens(self, layer: int) -> tuple[int, int]:
        """Return the choices of experts by the tokens that a rank sends, and those that it works
        on, where the busiest rank has the most."""
        model, split = self.model, self.split
        chosen = self.tokens * model.active / self.parts
        most, _, dropped = routed(model, split, layer)
        return round(chosen * (1 - dropped)), round(chosen * self.gathered * split.expert * most)


@lru_cache(maxsize=4096)
def routed(model: Transformer, split: Split, layer: int) -> tuple[float, float, float]:
    """Return the shares of all choices of the busiest rank and expert, and of dropped ones.

    Tokens choose `active` experts each. Those beyond an expert's capacity are dropped (Lepikhin
    et al., "GShard", 2020, section 2.2; Fedus et al., "Switch Transformers", 2021, equation 3).
    """
    load = expert_loads(split.routing, model.experts, split.seed, layer)
    kept = np.minimum(load, split.capacity / model.experts) if split.capacity else load
    of_ranks = kept.reshape(split.expert, -1).sum(axis=1)
    return float(of_ranks.max()), float(kept.max()), max(1.0 - float(kept.sum()), 0.0)


def describe_routing(model: Transformer, split: Split) -> str:
    """Return how uneven experts' loads are and what is dropped, on average over layers."""
    is_routed = np.array([routed(model, split, layer) for layer in range(model.layers)])
    most, _, dropped = is_routed.mean(axis=0)
    return (
        f"{split.routing}: the busiest of {split.expert} ranks has {most * split.expert:.2f} times "
        f"the mean to do, {dropped:.1%} of tokens' choices are dropped"
    )


def expert_loads(text: str, count: int, seed: int, layer: int) -> np.ndarray:
    """Return the shares of all choices of each of `count` experts, by a routing of `Split`.

    Raises:
        InputError: the text is no routing, or not one of so many experts.
    """
    if "+" in text:
        return _measured(text, count)
    name, values, named = parse_expression(text, "routing")
    try:
        (value,) = map(float, values or ["nan"])
    except ValueError:
        value = -1.0
    if named or name not in ("uniform", "zipf", "dirichlet") or (name == "uniform") == bool(values):
        raise InputError(
            f'routing "{text}": write uniform, zipf(1.2), dirichlet(0.5), or measured loads 3+2+1'
        )
    if name == "uniform":
        return np.full(count, 1 / count)
    if not 0 < value < 100:
        raise InputError(f'routing "{text}": the number must be above 0 and below 100')
    random = generator(seed, SimulationStream.ROUTING, layer)
    if name == "dirichlet":
        return np.asarray(random.dirichlet(np.full(count, value)))
    weights = np.arange(1, count + 1, dtype=np.float64) ** -value
    return np.asarray(random.permutation(weights / weights.sum()))


def _measured(text: str, count: int) -> np.ndarray:
    try:
        loads = np.array([float(part) for part in text.split("+")])
    except ValueError:
        raise InputError(f'routing "{text}": loads are numbers with + between') from None
    if len(loads) != count or not (np.isfinite(loads).all() and (loads >= 0).all() and loads.sum()):
        raise InputError(
            f'routing "{text}": {len(loads)} loads for {count} experts: give one of 0 or more each'
        )
    return np.asarray(loads / loads.sum())
