"""What a device's memory holds besides tensors, against published measurements."""

from __future__ import annotations

import pytest

from paracosm.cluster.hardware.device_memory import (
    communicator_bytes,
    verdict_of,
    verdict_sentence,
)

GIB = 1 << 30


def test_an_all_to_all_takes_what_was_measured() -> None:
    """github.com/NVIDIA/nccl/issues/1685: from 1.06 to 4.34 GB on 8 H100, by 32 channels to each of
    7 peers; more machines add none of these."""
    assert communicator_bytes(8, all_to_all=True) == pytest.approx(4.34e9 - 1.06e9, rel=0.01)
    assert communicator_bytes(64, all_to_all=True) == communicator_bytes(8, all_to_all=True)


def test_a_ring_takes_as_much_whatever_its_length() -> None:
    assert communicator_bytes(1) == 0
    assert communicator_bytes(2) == communicator_bytes(1024) == 24 * 14 << 20


@pytest.mark.parametrize(
    ("total", "retries", "is_full", "verdict"),
    [
        (73 * GIB, 0, False, "fits"),
        (74 * GIB, 0, False, "tight"),  # above 92 % of 80 GiB
        (60 * GIB, 3, False, "tight"),
        (60 * GIB, 3, True, "does not fit"),
    ],
)
def test_a_verdict_has_three_words(total: int, retries: int, is_full: bool, verdict: str) -> None:
    assert verdict_of(total, 80 * GIB, retries, is_full=is_full) == verdict


def test_a_sentence_says_what_happens_then() -> None:
    size = 80 * GIB
    assert verdict_sentence("fits", size // 2, size, 0, "worker0") == ""
    said = verdict_sentence("does not fit", 2 * size, size, 0, "worker3")
    assert said == "Does not fit: needs 171.8 GB of 85.9 GB on worker3."
    assert "gives back what is unused 3 times an iteration" in verdict_sentence(
        "tight", size, size, 3, ""
    )
