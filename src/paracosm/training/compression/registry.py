"""All codecs by name, and the reading of one from a string such as `topk(0.01)`."""

from __future__ import annotations

from collections.abc import Mapping

from paracosm.training.compression.casts import BF16, FP16
from paracosm.training.compression.codec import Codec
from paracosm.training.compression.one_bit import OneBit
from paracosm.training.compression.powersgd import PowerSGD
from paracosm.training.compression.qsgd import QSGD
from paracosm.training.compression.randomk import RandomK
from paracosm.training.compression.signsgd import SignSGD
from paracosm.training.compression.topk import TopK
from paracosm.training.named import parse_named

CODECS: Mapping[str, type[Codec]] = {
    codec.name: codec for codec in (TopK, RandomK, QSGD, SignSGD, OneBit, PowerSGD, FP16, BF16)
}


def parse_codec(text: str) -> Codec:
    """Read a codec with its parameters: `topk(0.01)`, `topk(0.01, feedback=false)`, `fp16`.

    An InputError names the codec or parameter that is not known, with the nearest one, or the value
    that a parameter cannot have.
    """
    return parse_named(text, "codec", CODECS)
