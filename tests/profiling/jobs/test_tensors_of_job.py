"""Which op of a job profile reads or updates which tensor."""

from __future__ import annotations

import numpy as np
import pytest
from small_job_profile import small_job_profile

from paracosm.errors import InputError
from paracosm.profiling.jobs.job_profile import tensors_of


def test_ops_read_and_update_the_tensors_that_their_names_end_with() -> None:
    profile = small_job_profile(names=("pull/0.weight", "forward", "loss", "push/0.weight", "u"))
    with pytest.raises(InputError, match="has no op update/0"):
        tensors_of(profile)
    names = ("pull/0.weight", "update/0.weight", "loss", "push/0.weight", "update/0.weight")
    tensors, of = tensors_of(small_job_profile(names=names))  # the second op is the worker's
    assert tensors == ("0.weight",)
    assert of.tolist() == [0, -1, -1, -1, 0]


def test_tensors_are_in_the_order_of_their_pulls() -> None:
    profile = small_job_profile()
    both = {
        name: np.concatenate([getattr(profile, name)] * 2, axis=-1)
        for name in ("resource", "server", "size", "begin", "end")
    }
    names = ("pull/b", "f", "g", "push/b", "update/b", "pull/a", "h", "i", "push/a", "update/a")
    tensors, of = tensors_of(small_job_profile(names=names, kinds=("",) * 10, **both))
    assert tensors == ("b", "a")
    assert of.tolist() == [0, -1, -1, -1, 0, 1, -1, -1, -1, 1]


def test_a_profile_of_other_ops_has_no_tensors() -> None:
    with pytest.raises(InputError, match="the ops pull/NAME"):
        tensors_of(small_job_profile())
