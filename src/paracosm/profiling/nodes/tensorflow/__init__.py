"""What TensorFlow's receiver adds to a transfer, seen from a proxy between worker and server."""

from paracosm.profiling.nodes.tensorflow.measure import (
    Transfers,
    measure_transfers,
    overheads_of,
)

__all__ = ["Transfers", "measure_transfers", "overheads_of"]
