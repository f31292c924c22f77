"""MLCommons Chakra execution traces: read and written, as protobuf and as JSON."""

from paracosm.graphs.chakra.from_chakra import read_chakra
from paracosm.graphs.chakra.to_chakra import write_chakra

__all__ = ["read_chakra", "write_chakra"]
