"""`registry.py` lists the algorithms, `algorithm.py` defines their interface."""
