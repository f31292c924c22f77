"""Chakra files in, Chakra files out."""

from __future__ import annotations

from pathlib import Path

from paracosm.errors import InputError
from paracosm.graphs.chakra.foreign import graph_of_others
from paracosm.graphs.chakra.inward import graph_of, is_ours
from paracosm.graphs.chakra.outward import trace_of
from paracosm.graphs.chakra.protobuf import read_protobuf, write_protobuf
from paracosm.graphs.chakra.text import read_json, write_json
from paracosm.graphs.contents import contents
from paracosm.graphs.graph import Graph

__all__ = ["read_chakra", "write_chakra"]


def read_chakra(path: str | Path, drop_missing: bool = False, data_only: bool = False) -> Graph:
    """Read one rank's Chakra trace, .et or JSON, either of them gzipped or not.

    A trace that `write_chakra` wrote gives the graph that it was; for others see
    `chakra.foreign`.

    Args:
        path: the file; .json is read as JSON, any other as .et.
        drop_missing: leave out dependencies on nodes that are not there, instead of refusing.
        data_only: leave out control dependencies.

    Raises:
        InputError: no trace, not the whole of it, or one that is not sound.
        MissingExtraError: .et without protobuf.
    """
    path, where = Path(path), str(path)
    data = contents(path)
    name = path.name.lower().removesuffix(".gz")
    read = read_json if name.endswith(".json") else read_protobuf
    trace = read(data, where)
    if is_ours(trace):
        return graph_of(trace, where)
    return graph_of_others(trace, where, drop_missing, data_only)


def write_chakra(graph: Graph, path: str | Path) -> None:
    """Write `graph` as a Chakra trace: .et (protobuf) or .json, by the name.

    Raises:
        InputError: another name; the file cannot be written.
        MissingExtraError: .et without protobuf.
    """
    writers = {".et": write_protobuf, ".json": write_json}
    suffix = Path(path).suffix.lower()
    if suffix not in writers:
        raise InputError(f"{path}: a Chakra trace is named .et or .json")
    writers[suffix](trace_of(graph), path)
