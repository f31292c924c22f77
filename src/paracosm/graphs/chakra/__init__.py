"""MLCommons Chakra execution traces: read and written, as protobuf and as JSON."""

from paracosm.graphs.chakra.convert import write_chakra

__all__ = ["write_chakra"]
