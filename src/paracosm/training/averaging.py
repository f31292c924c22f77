"""A moving average of the parameters, which evaluations look at."""

from __future__ import annotations

from typing import Any


class MovingAverage:
    """The exponential moving average of what updates make of the parameters.

    average <- decay average + (1 - decay) theta after each update of the run; the first sets it to
    theta, so that nothing has to be corrected for a bias towards a start at 0. It is what
    `torch.optim.swa_utils.AveragedModel` keeps with `get_ema_multi_avg_fn(decay)`. Polyak,
    Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992, has the plain mean.
    """

    def __init__(self, decay: float) -> None:
        self.value: Any = None  # in the form of the parameters; None before the first update
        self._decay = decay
        self._saved: Any = None

    def update(self, parameters: Any) -> None:
        """Take in the parameters after an update; they are never changed in place."""
        import torch

        old, weight = self.value, 1 - self._decay
        if old is None:
            self.value = parameters
        elif isinstance(parameters, tuple):
            pairs = zip(old, parameters, strict=True)
            self.value = tuple(torch.lerp(each, new, weight) for each, new in pairs)
        else:
            self.value = torch.lerp(old, parameters, weight)

    def save(self) -> None:
        """Note the average as it is, with a checkpoint of the parameters."""
        self._saved = self.value

    def restore(self) -> None:
        """Go back to the average of the newest checkpoint."""
        self.value = self._saved
