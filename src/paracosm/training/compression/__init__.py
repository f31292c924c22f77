"""Messages made smaller: `registry.py` lists the codecs, `codec.py` says what one is made of."""

from paracosm.training.compression.codec import Codec
from paracosm.training.compression.messages import Compression, Message
from paracosm.training.compression.registry import CODECS, parse_codec

__all__ = ["CODECS", "Codec", "Compression", "Message", "parse_codec"]
