"""Graphs as files: Arrow, one row for every node, read by any Arrow library (docs/graph.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from paracosm.errors import InputError
from paracosm.files import replacing
from paracosm.graphs.assemble import assemble
from paracosm.graphs.graph import Graph

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["load_graph", "save_graph"]

_MAGIC = b"ARROW1"


def save_graph(graph: Graph, path: str | Path) -> None:
    """Write `graph` as an Arrow file in place of what is there; it appears when it is complete.

    Raises:
        InputError: the file cannot be written.
    """
    import pyarrow as pa

    from paracosm.graphs.table import table_of

    table = table_of(graph)
    compression = "zstd" if pa.Codec.is_available("zstd") else None
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (
        replacing(path) as beside,
        pa.OSFile(str(beside), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=options) as writer,
    ):
        writer.write_table(table)


def load_graph(path: str | Path) -> Graph:
    """Read a graph: its rows may stand in any order, among columns that are not ours.

    The graph that was saved comes back to the bit, with distinct ops, names and groups numbered in
    the order in which its nodes have them, as `build_graph` numbers them.

    Raises:
        InputError: not a graph, not the whole of it, a newer one, or one that is not sound.
    """
    from paracosm.graphs.table import columns_of

    where = str(path)
    return assemble(columns_of(_read(Path(path)), where), where)


def _read(path: Path) -> pa.Table:
    import pyarrow as pa

    try:
        with path.open("rb") as file:
            begins = file.read(len(_MAGIC))
        if begins != _MAGIC:
            raise InputError(f"{path}: not a graph file: paracosm graph capture writes one")
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
            table = reader.read_all()
            table.validate(full=True)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder, not a graph file") from None
    # pyarrow reads names of columns only when they are asked for.
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        raise InputError(
            f"{path}: the file is cut off or damaged: copy or capture it again"
        ) from None
    return table
