"""Messages made smaller: `codecs.py` has the codecs, `codec.py` says what one is made of."""
