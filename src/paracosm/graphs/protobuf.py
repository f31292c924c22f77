"""Protobuf messages, described at run time by the few fields that are read or written.

A description has one line, or several, for each message:

    Node = 1 name string, 2 input string*, 5 attr map:Value
    Value = 3 kind.number int64, 4 kind.text string

Of every field it gives number, name and type: one of protobuf's own types, or another message of
the description. "*" behind a type says that the field is repeated, "map:" before it that it is a
map from strings, and "kind." before a name that at most one of the fields of `kind` is set. The
parser skips all other fields.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from paracosm.errors import InputError, require

SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
"""Protobuf's own types of fields."""


@cache
def message_classes(package: str, description: str, purpose: str) -> Mapping[str, Any]:
    """Return the classes of the messages of a description, by name.

    Raises:
        MissingExtraError: protobuf, which this `purpose` needs, is not installed.
    """
    factory = require("google.protobuf.message_factory", "protobuf", purpose)
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    described: Any = None
    for line in description.strip().split("\n"):
        name, begins_message, fields = line.rpartition(" = ")
        if begins_message:
            described = file.message_type.add(name=name.strip())
        for field in filter(None, map(str.strip, fields.split(","))):
            _add_field(described, package, *field.split())
    pool = DescriptorPool()
    pool.Add(file)
    return {
        message.name: factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{package}.{message.name}")
        )
        for message in file.message_type
    }


def _add_field(described: Any, package: str, number: str, name: str, kind: str) -> None:
    oneof, _, name = name.rpartition(".")
    is_map, is_repeated = kind.startswith("map:"), kind.endswith("*")
    kind = kind.removeprefix("map:").removesuffix("*")
    field = described.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if is_map or is_repeated else field.LABEL_OPTIONAL
    if is_map:
        entry = described.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add_field(entry, package, "1", "key", "string")
        _add_field(entry, package, "2", "value", kind)
        kind = f"{described.name}.{entry.name}"
    if kind in SCALARS:
        field.type = field.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{package}.{kind}"
    if oneof:
        names = [known.name for known in described.oneof_decl]
        if oneof not in names:
            described.oneof_decl.add(name=oneof)
            names.append(oneof)
        field.oneof_index = names.index(oneof)


def parse_message(message_class: Any, data: bytes, where: str) -> Any:
    """Return the message that `data` holds.

    Raises:
        InputError: the data are cut off or damaged.
    """
    from google.protobuf.message import DecodeError

    try:
        return message_class.FromString(data)
    except DecodeError:
        name = message_class.DESCRIPTOR.name
        raise InputError(f"{where}: cut off or damaged: its bytes are no {name}") from None
