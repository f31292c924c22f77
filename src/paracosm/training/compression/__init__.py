"""Messages made smaller: `codecs.py` has the codecs, `codec.py` says what one is made of."""

from paracosm.training.compression.codec import Codec
from paracosm.training.compression.codecs import CODECS, parse_codec
from paracosm.training.compression.messages import Compression, Message

__all__ = ["CODECS", "Codec", "Compression", "Message", "parse_codec"]
