"""Protobuf messages written by hand, for models that no framework would write."""

from __future__ import annotations


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def piece(field: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(data)) + data


def onnx_tensor_type(name: str, *sizes: int | str, dtype: int = 1) -> bytes:
    """Return a ValueInfoProto."""
    dims = b"".join(
        piece(1, number(1, size) if isinstance(size, int) else piece(2, size)) for size in sizes
    )
    kind = piece(1, number(1, dtype) + piece(2, dims))
    return piece(1, name) + piece(2, kind)


def onnx_node(op: str, inputs: str, outputs: str) -> bytes:
    """Return a NodeProto; values are separated by blanks."""
    ends = b"".join(piece(1, value) for value in inputs.split())
    return ends + b"".join(piece(2, value) for value in outputs.split()) + piece(4, op)


def onnx_weight(name: str, *sizes: int) -> bytes:
    """Return a TensorProto of float32 without its values."""
    return b"".join(number(1, size) for size in sizes) + number(2, 1) + piece(8, name)


def onnx_model(
    *nodes: bytes, inputs: tuple[bytes, ...], outputs: tuple[bytes, ...],
    weights: tuple[bytes, ...] = (),
) -> bytes:  # fmt: skip
    graph = b"".join(piece(1, node) for node in nodes)
    graph += b"".join(piece(5, weight) for weight in weights)
    graph += b"".join(piece(11, each) for each in inputs)
    graph += b"".join(piece(12, each) for each in outputs)
    return number(1, 8) + piece(7, graph) + piece(8, number(2, 20))


def tensorflow_node(name: str, op: str, *inputs: str) -> bytes:
    """Return a NodeDef."""
    return piece(1, name) + piece(2, op) + b"".join(piece(3, each) for each in inputs)


def tensorflow_graph(*nodes: bytes) -> bytes:
    return b"".join(piece(1, node) for node in nodes)
