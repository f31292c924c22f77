"""RunMetadata written by hand: a step of one worker and its servers, in protobuf's binary form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

__all__ = ["WORKER", "Op", "graph", "op", "plain_step", "receive", "run_metadata", "server"]

WORKER = "/job:worker/replica:0/task:0/device:CPU:0"
START = 1_700_000_000_000_000


@dataclass(frozen=True)
class Op:
    """One record; times in microseconds from the step's begin, end None where none was traced."""

    device: str
    name: str
    label: str
    begin: float
    end: float | None
    size: int | None = None


def server(task: int = 0) -> str:
    return f"/job:ps/replica:0/task:{task}/device:CPU:0"


def op(device: str, name: str, kind: str, inputs: str, begin: float, end: float | None) -> Op:
    return Op(device, name, f"{name} = {kind}({inputs})", begin, end)


def receive(source: str, target: str, tensor: str, size: int, begin: float, end: float) -> Op:
    told = f"[{size}B] [1.0Mb/s] {tensor} from {source} to {target}"
    return Op(target, "RecvTensor", told, begin, end, size)


def plain_step() -> list[Op]:
    """Return a step in which a weight of 4000 bytes comes down, and its gradient goes up.

    The worker needs 100 us for x, 1000 us for y of x and the weight, 500 us for its gradient.
    """
    down, up = "edge_7_w/read", "edge_9_gradients/y"
    return [
        op(WORKER, "_SOURCE", "NoOp", "", 0, 1),
        op(WORKER, "x", "RandomUniform", "", 10, 110),
        op(server(), "w", "VariableV2", "", 50, 52),
        op(server(), "w/read", "Identity", "w", 60, 62),
        receive(server(), WORKER, down, 4000, 64, 400),
        op(WORKER, "y", "MatMul", "x, w/read_S3", 410, 1410),
        op(WORKER, "gradients/y", "MatMul", "x, y, ^x", 1420, 1920),
        receive(WORKER, server(), up, 4000, 1925, 2300),
        op(server(), "update", "ApplyGradientDescent", "w, gradients/y_S5", 2310, 2360),
    ]


def run_metadata(ops: Sequence[Op], *, after: float = 0.0, graphs: Sequence[bytes] = ()) -> bytes:
    """Return a RunMetadata of records; `after` is microseconds from the first step's begin."""
    devices = list(dict.fromkeys(each.device for each in ops))
    stats = b"".join(
        piece(1, piece(1, device) + b"".join(
            piece(2, _node(replace(each, begin=each.begin + after,
                                   end=None if each.end is None else each.end + after)))
            for each in ops if each.device == device))
        for device in devices
    )  # fmt: skip
    return piece(1, stats) + b"".join(piece(3, graph) for graph in graphs)


def graph(device: str, nodes: Iterable[tuple[str, str, str, str]]) -> bytes:
    """Return a GraphDef of nodes: name, op, inputs, the tensor of _Send and _Recv or ""."""
    return b"".join(
        piece(1, piece(1, name) + piece(2, kind)
              + b"".join(piece(3, each) for each in inputs.split()) + piece(4, device)
              + (piece(5, piece(1, "tensor_name") + piece(2, piece(2, tensor))) if tensor else b""))
        for name, kind, inputs, tensor in nodes
    )  # fmt: skip


def _node(each: Op) -> bytes:
    begin, content = START * 1000 + round(each.begin * 1000), piece(1, each.name)
    length = 0 if each.end is None else round((each.end - each.begin) * 1000)
    if each.name == "RecvTensor":
        content += number(2, begin // 1000) + number(5, length // 1000)
    else:
        content += number(13, begin) + number(16, length)
    if each.size is not None:
        content += piece(7, piece(3, piece(4, number(1, each.size))))
    return content + piece(8, each.label)


def varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def piece(field: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(data)) + data
