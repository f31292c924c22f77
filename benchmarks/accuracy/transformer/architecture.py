"""The sizes of a decoder-only transformer."""

from __future__ import annotations

from dataclasses import dataclass

from paracosm.errors import InputError

__all__ = ["Transformer"]


@dataclass(frozen=True)
class Transformer:
    """A GPT: learned positions, layer norm before each half, a head that shares the embedding.

    Args:
        layers: their number.
        width: of the residual stream ("hidden size").
        heads: of attention.
        sequence: tokens of an example.
        vocabulary: distinct tokens.

    Raises:
        InputError: a size that is not positive; heads that do not divide the width.
    """

    layers: int
    width: int
    heads: int
    sequence: int
    vocabulary: int = 50_257

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "sequence", "vocabulary"):
            if getattr(self, name) < 1:
                raise InputError(
                    f"transformer: {name} must be 1 or more, not {getattr(self, name)}"
                )
        if self.width % self.heads:
            raise InputError(
                f"transformer: {self.heads} heads do not divide a width of {self.width}"
            )

    @property
    def layer_parameters(self) -> int:
        """Of one layer: 12 h^2 weights, 9 h biases, two layer norms of 2 h."""
        return 12 * self.width**2 + 13 * self.width

    @property
    def parameters(self) -> int:
        """Of the model, the head's weights being the embedding's."""
        embeddings = (self.vocabulary + self.sequence) * self.width
        return self.layers * self.layer_parameters + embeddings + 2 * self.width

    def padded_vocabulary(self, tensor: int) -> int:
        """Return the rows of the embedding on `tensor` ranks: a multiple of 128 on each, as in
        Megatron-LM (`make-vocab-size-divisible-by`)."""
        multiple = 128 * tensor
        return -(-self.vocabulary // multiple) * multiple

    def split(self, tensor: int) -> None:
        """Raise InputError unless `tensor` ranks can share each layer."""
        if tensor < 1 or self.heads % tensor:
            near = [ranks for ranks in range(1, self.heads + 1) if self.heads % ranks == 0]
            best = min(near, key=lambda ranks: abs(ranks - tensor))
            raise InputError(
                f"tensor={tensor} ranks do not divide {self.heads} heads; {best} would"
            )

    def cut(self, stages: int) -> None:
        """Raise InputError unless `stages` of a pipeline can have as many layers each."""
        if stages < 1 or self.layers % stages:
            fitting = [count for count in range(1, self.layers + 1) if self.layers % count == 0]
            best = min(fitting, key=lambda count: abs(count - stages))
            raise InputError(f"{stages} stages do not divide {self.layers} layers; {best} would")
