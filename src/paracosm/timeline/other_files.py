"""Files that are no traces, but are given for one: what they are, and what would be right."""

from pathlib import Path

from paracosm.errors import InputError
from paracosm.file_kinds import HEAD, kind_by_content
from paracosm.files import read_bytes

_RECORD = "record the program with torch.profiler and give what export_chrome_trace writes"
_GRAPHS = "it is not read: jaxpr_export.py writes graphs of JAX, RunMetadata has TensorFlow's"

_SUFFIXES = {
    ".nsys-rep": ("a report of Nsight Systems", _RECORD),
    ".qdrep": ("a report of Nsight Systems", _RECORD),
    ".qdstrm": ("a stream of Nsight Systems", _RECORD),
    ".ncu-rep": ("a report of Nsight Compute, which times kernels alone", _RECORD),
    ".pftrace": ("a trace of Perfetto in protobuf", "give the JSON that torch.profiler exported"),
    ".perfetto-trace": (
        "a trace of Perfetto in protobuf",
        "give the JSON that torch.profiler exported",
    ),
}

_RIGHT = {
    "a report of Nsight Compute, which times kernels alone": _RECORD,
    "an SQLite database, such as nsys export writes": _RECORD,
    "what torch.save wrote": "give a trace, not the model",
    "a program": "give the trace that it wrote",
}
"""What to give in place of a file of some kind; of the others a trace as JSON."""


def refuse_other_files(path: Path) -> None:
    """Raise InputError for a file that is empty, or something else than a trace or a graph.

    One that cannot be read is left to who reads it.
    """
    try:
        head = read_bytes(path, HEAD)
    except InputError:
        return
    if not head:
        raise InputError(f"{path}: the file is empty")
    kind = _SUFFIXES.get(path.suffix.lower()) or _by_content(head)
    if kind is not None:
        what, right = kind
        raise InputError(f"{path}: {what}: {right}")


def _by_content(head: bytes) -> tuple[str, str] | None:
    if kind := kind_by_content(head):
        what, way = kind
        if what == "packed with gzip":  # what is packed once, is unpacked
            what += " more than once"
        return what, way or _RIGHT.get(what, "give a trace as JSON")
    if _is_xplane(head):
        return "a profile of XLA (xplane.pb, of JAX or TensorFlow)", _GRAPHS
    return None


def _is_xplane(head: bytes) -> bool:
    """Whether bytes are an XSpace: planes first, which have a number or none and a path's name."""
    at = _length_at(head, 0, 0x0A)
    if at is None:
        return False
    if head[at : at + 1] == b"\x08":  # the plane's number
        at += 1
        while at < len(head) and head[at] >= 128:
            at += 1
        at += 1
    name = _length_at(head, at, 0x12)
    return name is not None and head[name : name + 1] == b"/"


def _length_at(head: bytes, at: int, tag: int) -> int | None:
    """Return where a field of this tag begins behind its length, or None."""
    if head[at : at + 1] != bytes([tag]):
        return None
    at += 1
    while at < len(head) and head[at] >= 128:
        at += 1
    return at + 1
