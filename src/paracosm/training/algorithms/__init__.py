"""`registry.py` lists the algorithms, `algorithm.py` says what one is made of."""
