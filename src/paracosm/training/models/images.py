"""What networks of convolutions expect of their inputs."""

from __future__ import annotations

from paracosm.errors import InputError

__all__ = ["image_shape"]


def image_shape(model: str, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return an input's shape as (channels, height, width).

    Raises:
        InputError: the inputs are no images.
    """
    if len(input_shape) != 3:
        raise InputError(
            f'the model "{model}" takes images of shape (channels, height, width), '
            f"not inputs of shape {input_shape}"
        )
    channels, height, width = input_shape
    return channels, height, width
