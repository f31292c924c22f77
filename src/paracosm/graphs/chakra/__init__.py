"""MLCommons Chakra execution traces: read and written, as protobuf and as JSON."""

from paracosm.graphs.chakra.convert import read_chakra, write_chakra

__all__ = ["read_chakra", "write_chakra"]
