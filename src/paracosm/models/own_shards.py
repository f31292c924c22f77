"""Shards of the user's own: a function that returns index arrays, or a file of client ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Ints
from paracosm.errors import InputError
from paracosm.factory import call_factory, describe_error
from paracosm.files import open_file
from paracosm.tables import read_csv, read_parquet

if TYPE_CHECKING:
    from paracosm.models.data_sets import DataSet

ID_FILES = (".parquet", ".csv", ".npy", ".npz")
_COLUMN = "client"


def is_id_file(scheme: str) -> bool:
    """Whether `--shards` names a file of client ids."""
    return scheme.strip().lower().endswith(ID_FILES)


def shards_of_function(
    reference: str, data: DataSet, clients: int, rng: np.random.Generator
) -> list[Ints]:
    """Return the examples of each client, as a function of the user's divides them.

    The function has those of the parameters `data` (the `DataSet`), `clients` and `rng` that it
    needs, and returns an array of indices of training examples for each client, in their order. An
    example may be in several of them, or in none.

    Raises:
        InputError: it fails, or what it returns is no such thing; the message names the client.
    """
    made, _ = call_factory("shards", reference, {"data": data, "clients": clients, "rng": rng})
    where = f'shards "{reference}"'
    if isinstance(made, Mapping):
        made = made.values()
    if not isinstance(made, Iterable) or isinstance(made, str | bytes):
        raise InputError(
            f"{where} returned {type(made).__name__}, not an array of indices for each client"
        )
    try:
        shards = [_indices(where, client, part, data) for client, part in enumerate(made)]
    except InputError:
        raise
    except Exception as error:  # a generator of the user's
        raise InputError(f"{where} failed: {describe_error(error)}") from error
    if len(shards) != clients:
        raise _wrong_number(where, "returned the shards of", len(shards), clients)
    return shards


def shards_of_ids(path: Path, examples: int, clients: int) -> list[Ints]:
    """Return the examples of each client, by the client ids of a file: one for each example.

    A Parquet or CSV file has them in the column "client", or in its only one; a NumPy file in a
    vector. Clients are numbered in the order of their ids: numbers by size, texts as Python sorts.

    Raises:
        InputError: the file cannot be read, an example has no id, there are not as many ids as
            examples, or not as many clients as asked for.
    """
    ids = _read(path)
    if ids.ndim != 1:
        raise InputError(f"{path}: client ids are one vector, not of shape {ids.shape}")
    if len(ids) != examples:
        raise InputError(
            f"{path}: it has {len(ids):,} client ids, and the data set {examples:,} training "
            "examples: give each example one"
        )
    names, numbers = np.unique(ids, return_inverse=True)
    if len(names) != clients:
        error = _wrong_number(str(path), "it has", len(names), clients)
        is_counted = ids.dtype.kind in "iu" and names[0] >= 0 and names[-1] < clients
        if not is_counted:
            raise error
        lacking = np.setdiff1d(np.arange(clients), names)
        raise InputError(f"{error}; client {lacking[0]} has no examples")
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.cumsum(np.bincount(numbers))[:-1])


def check_disjoint(scheme: str, shards: Iterable[Ints], examples: int) -> None:
    """Raise InputError if two clients have an example in common, or one client has it twice.

    The privacy loss of an example is counted by client, once for each minibatch.
    """
    owner = np.full(examples, -1)
    for client, shard in enumerate(shards):
        numbers, counts = np.unique(shard, return_counts=True)
        taken = np.flatnonzero(owner[numbers] >= 0)
        if counts.max() > 1:
            who, which = f"client {client} has", f"{numbers[counts.argmax()]} twice"
        elif len(taken):
            which = str(numbers[taken[0]])
            who = f"clients {owner[numbers[taken[0]]]} and {client} both have"
        else:
            owner[numbers] = client
            continue
        raise InputError(
            f'privacy: with shards "{scheme}" {who} example {which}, whose privacy loss is counted '
            "by client, once: make the shards disjoint"
        )


def _wrong_number(where: str, what: str, found: int, clients: int) -> InputError:
    return InputError(
        f"{where}: {what} {found:,} clients, not {clients:,}: give --clients {found} (or as many "
        "--workers)"
    )


def _indices(where: str, client: int, part: Any, data: DataSet) -> Ints:
    shard = np.asarray(part)
    if shard.size == 0:
        raise InputError(f"{where}: client {client} has no examples")
    if shard.ndim != 1 or shard.dtype.kind not in "iu":
        raise InputError(
            f"{where}: client {client} has {shard.dtype} of shape {shard.shape}, not a vector of "
            "indices"
        )
    examples = len(data.train_x)
    strange = np.flatnonzero((shard < 0) | (shard >= examples))
    if len(strange):
        raise InputError(
            f"{where}: client {client} has example {shard[strange[0]]}, and training examples are "
            f"0 to {examples - 1}"
        )
    return shard.astype(np.int64)


def _read(path: Path) -> npt.NDArray[Any]:
    suffix = path.suffix.lower()
    ids = _of_numpy(path) if suffix in (".npy", ".npz") else _of_table(path)
    if ids.dtype.kind == "f":
        lacking = np.flatnonzero(~np.isfinite(ids))
        if len(lacking):
            raise InputError(f"{path}: example {lacking[0]} has no client id")
    elif ids.dtype.kind not in "iuUSb":
        raise InputError(f"{path}: client ids are numbers or texts, not {ids.dtype}")
    return ids


def _of_numpy(path: Path) -> npt.NDArray[Any]:
    with open_file(path, "file of client ids") as file:
        try:
            arrays = np.load(file, allow_pickle=False)
            if isinstance(arrays, np.ndarray):
                return arrays
            name = _COLUMN if _COLUMN in arrays.files else None
            if name is None and len(arrays.files) == 1:
                name = arrays.files[0]
            if name is not None:
                return np.asarray(arrays[name])
            listed = ", ".join(arrays.files) or "none"
        except Exception as error:  # NumPy raises what it likes for what is none of its files
            raise InputError(
                f"{path}: no NumPy file of client ids: {describe_error(error)}"
            ) from None
    raise InputError(f'{path}: of its arrays ({listed}) call the one of client ids "{_COLUMN}"')


def _of_table(path: Path) -> npt.NDArray[Any]:
    import pyarrow

    if path.suffix.lower() == ".parquet":
        table = read_parquet(path, "table of client ids")
    else:
        table = read_csv(path, "table of client ids")
    columns = table.column_names
    if _COLUMN not in columns and len(columns) != 1:
        listed = ", ".join(columns) or "none"
        raise InputError(f"{path}: the column {_COLUMN} is missing: it has {listed}")
    column = table[_COLUMN if _COLUMN in columns else columns[0]]
    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    texts = column.to_pylist()
    lacking = next((place for place, text in enumerate(texts) if text is None or text == ""), None)
    if lacking is not None:
        raise InputError(f"{path}: example {lacking} has no client id")
    return np.array(texts)
