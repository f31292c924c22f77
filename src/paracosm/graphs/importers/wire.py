"""Protobuf messages as plain mappings, read without protobuf.

The wanted fields are given by number; all others are skipped unread, so that the weights of a model
of many gigabytes cost nothing. (Protocol Buffers, Encoding: a field is number * 8 + wire type, then
a varint, 8 bytes, a length and that many bytes, or 4 bytes.)
"""

import struct
from collections.abc import Mapping
from typing import Any, NoReturn

from paracosm.errors import InputError

Message = dict[str, Any]
Schema = Mapping[str, Mapping[int, tuple[str, str]]]
"""Messages by name; of each, number -> (name, kind). A kind is "int", "bool", "float", "double",
"string", "bytes", "short" (bytes, left empty where they are many), "size" (how many bytes it has),
or a message's name; "*" behind it says that it is repeated, and "map:" before it that it is a map
from strings."""

_DEPTH = 64
"""Messages within messages: more are no file that any framework wrote."""

_SHORT = 1 << 15
"""Bytes: 4,096 numbers of 64 bits."""

_EMPTY: Mapping[str, Any] = {
    "int": 0,
    "size": 0,
    "bool": False,
    "float": 0.0,
    "double": 0.0,
    "string": "",
    "bytes": b"",
    "short": b"",
}
_WIRE = {"int": 0, "bool": 0, "float": 5, "double": 1}
_FIXED = {"float": ("<f", 4), "double": ("<d", 8)}


def schema(text: str) -> Schema:
    """Return the messages of lines "Message = number field kind, ..." and their rests."""
    messages: dict[str, dict[int, tuple[str, str]]] = {}
    for line in text.strip().split("\n"):
        name, begins, listed = line.rpartition(" = ")
        if begins:
            fields = messages[name.strip()] = {}
        for entry in filter(None, listed.strip().split(",")):
            number, field, kind = entry.split()
            fields[int(number)] = (field, kind)
    return messages


def decode(data: bytes, name: str, schema: Schema, where: str) -> Message:
    """Decode `data` as the message `name`, with every field of the schema.

    Missing fields are empty: 0, "", [], {}, or None for a message.

    Raises:
        InputError: cut off or damaged, with the byte and the field.
    """
    return _Reader(memoryview(data), schema, where).message(name, 0, len(data), 0)


class _Reader:
    def __init__(self, data: memoryview, schema: Schema, where: str) -> None:
        self.data, self.schema, self.where = data, schema, where

    def message(self, name: str, at: int, end: int, depth: int) -> Message:
        if depth > _DEPTH:
            self.broken(at, f"{name} is nested in {_DEPTH} others")
        return self.fields(self.schema[name], name, at, end, depth)

    def fields(
        self, fields: Mapping[int, tuple[str, str]], name: str, at: int, end: int, depth: int
    ) -> Message:
        found: Message = {field: _empty(kind) for field, kind in fields.values()}
        while at < end:
            start = at
            tag, at = self.varint(at, end, name)
            number, wire = tag >> 3, tag & 7
            if number == 0:
                self.broken(start, f"{name} has a field 0")
            if number not in fields:
                at = self.passed(wire, at, end, name)
                continue
            field, kind = fields[number]
            label, repeated = f"{name}.{field}", kind.endswith("*")
            plain = kind.removesuffix("*").removeprefix("map:")
            if wire != _WIRE.get(plain, 2) and not (wire == 2 and repeated):
                self.broken(at, f"{label} has the wire type {wire}")
            stop, values = end, []
            if wire == 2:
                stop, at = self.length(at, end, label)
            if plain not in _WIRE:
                at, values = stop, [self.piece(kind.removesuffix("*"), at, stop, label, depth)]
            elif wire != 2:
                value, at = self.scalar(plain, at, end, label)
                values = [value]
            while plain in _WIRE and wire == 2 and at < stop:
                value, at = self.scalar(plain, at, stop, label)
                values.append(value)
            if kind.startswith("map:"):
                found[field] |= values[0]
            elif repeated:
                found[field] += values
            else:
                found[field] = values[0]
        return found

    def piece(self, kind: str, at: int, stop: int, label: str, depth: int) -> Any:
        if kind == "size":
            return stop - at
        if kind == "short" and stop - at > _SHORT:
            return b""
        if kind in ("bytes", "short"):
            return bytes(self.data[at:stop])
        if kind == "string":
            try:
                return str(self.data[at:stop], "utf-8")
            except UnicodeDecodeError:
                self.broken(at, f"{label} is not text")
        if kind.startswith("map:"):  # an entry is a message of key and value
            kind = kind.removeprefix("map:")
            entry = self.fields({1: ("key", "string"), 2: ("value", kind)}, label, at, stop, depth)
            empty = entry["value"] is None
            value = self.message(kind, stop, stop, depth + 1) if empty else entry["value"]
            return {entry["key"]: value}
        return self.message(kind, at, stop, depth + 1)

    def scalar(self, kind: str, at: int, end: int, label: str) -> tuple[Any, int]:
        if kind in _FIXED:
            form, size = _FIXED[kind]
            if at + size > end:
                self.broken(at, f"{label} is cut off")
            return struct.unpack_from(form, self.data, at)[0], at + size
        value, at = self.varint(at, end, label)
        if kind == "bool":
            return value != 0, at
        return value - (1 << 64) if value >= 1 << 63 else value, at

    def varint(self, at: int, end: int, label: str) -> tuple[int, int]:
        value = shift = 0
        while at < end and shift < 70:
            byte = self.data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & ((1 << 64) - 1), at
            shift += 7
        raise self.error(at, f"a number of {label} does not end")

    def length(self, at: int, end: int, label: str) -> tuple[int, int]:
        size, at = self.varint(at, end, label)
        if size > end - at:
            self.broken(at, f"{label} has {size:,} bytes, and {end - at:,} are left")
        return at + size, at

    def passed(self, wire: int, at: int, end: int, label: str) -> int:
        if wire == 0:
            return self.varint(at, end, label)[1]
        if wire == 2:
            return self.length(at, end, label)[0]
        if wire not in (1, 5):
            self.broken(at, f"{label} has a field of the wire type {wire}")
        after = at + (8 if wire == 1 else 4)
        if after > end:
            self.broken(at, f"a field of {label} is cut off")
        return after

    def broken(self, at: int, why: str) -> NoReturn:
        raise self.error(at, why)

    def error(self, at: int, why: str) -> InputError:
        return InputError(f"{self.where}: cut off or damaged at byte {at:,}: {why}")


def _empty(kind: str) -> Any:
    if kind.endswith("*"):
        return []
    return {} if kind.startswith("map:") else _EMPTY.get(kind)
