"""The messages of Chakra's protobuf files, described at run time; nothing is generated.

Field names, numbers and types are those of the format (MLCommons Chakra, schema 0.0.4); what later
versions add is skipped by the parser.
"""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["GLOBAL_METADATA", "NODE", "VALUES", "message"]

PACKAGE = "ChakraProtoMsg"
GLOBAL_METADATA = "GlobalMetadata"
NODE = "Node"

VALUES = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
"""Types of an attribute's value; each may also be a list."""

Field = tuple[str, int, str, bool]
"""Name, number, type or message, whether repeated."""


@cache
def message(name: str) -> Any:
    """Return the class of a message of the format.

    Raises:
        MissingExtraError: protobuf is not installed.
    """
    from paracosm.errors import require

    purpose = "reading and writing Chakra's .et files"
    factory = require("google.protobuf.message_factory", "chakra", purpose)
    return factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    file = FileDescriptorProto(name="chakra.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _messages().items():
        described = file.message_type.add(name=name)
        for field in fields:
            _add(described, *field)
    attribute = next(each for each in file.message_type if each.name == "AttributeProto")
    attribute.oneof_decl.add(name="value")
    for described_field in attribute.field:
        if described_field.number > 2:
            described_field.oneof_index = 0
    pool = DescriptorPool()
    pool.Add(file)
    return pool


def _messages() -> dict[str, list[Field]]:
    lists = {kind: f"{kind.capitalize()}List" for kind in VALUES}
    values: list[Field] = []
    for index, kind in enumerate(VALUES):
        values.append((f"{kind}_val", 3 + 2 * index, kind, False))
        values.append((f"{kind}_list", 4 + 2 * index, lists[kind], False))
    texts = ("string", False)
    return {
        **{name: [("values", 1, kind, True)] for kind, name in lists.items()},
        "AttributeProto": [("name", 1, *texts), ("doc_string", 2, *texts), *values],
        "IOInfo": [("values", 1, *texts), ("shapes", 2, *texts), ("types", 3, *texts)],
        GLOBAL_METADATA: [("version", 1, *texts), ("attr", 2, "AttributeProto", True)],
        NODE: [
            ("id", 1, "uint64", False),
            ("name", 2, *texts),
            # An enumeration in the format: the same bytes, and numbers of later versions stay.
            ("type", 3, "int32", False),
            ("ctrl_deps", 4, "uint64", True),
            ("data_deps", 5, "uint64", True),
            ("start_time_micros", 6, "uint64", False),
            ("duration_micros", 7, "uint64", False),
            ("inputs", 8, "IOInfo", False),
            ("outputs", 9, "IOInfo", False),
            ("attr", 10, "AttributeProto", True),
        ],
    }


def _add(described: Any, name: str, number: int, kind: str, repeated: bool) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Descriptor

    field = described.field.add(name=name, number=number)
    field.label = Descriptor.LABEL_REPEATED if repeated else Descriptor.LABEL_OPTIONAL
    if kind in VALUES:
        field.type = Descriptor.Type.Value(f"TYPE_{kind.upper()}")
    else:
        field.type = Descriptor.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
