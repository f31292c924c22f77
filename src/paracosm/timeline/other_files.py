"""Files that are no traces, but are given for one: what they are, and what would be right."""

import re
from pathlib import Path

from paracosm.errors import InputError
from paracosm.files import read_bytes

HEAD = 1 << 16  # bytes by which a file is known
_RECORD = "record the program with torch.profiler and give what export_chrome_trace writes"
_GRAPHS = "it is not read: jaxpr_export.py writes graphs of JAX, RunMetadata has TensorFlow's"
_UNPACK = "unpack it and give the file that is in it"

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

_MAGIC = (
    (rb"NVR\0", "a report of Nsight Compute, which times kernels alone", _RECORD),
    (rb"PK\x03\x04.{0,400}?data\.pkl", "what torch.save wrote", "give a trace, not the model"),
    (rb"PK(\x03\x04|\x05\x06)", "a zip archive", _UNPACK),
    (rb"\x1f\x8b", "packed with gzip more than once", "unpack it once"),
    (rb"\x28\xb5\x2f\xfd", "packed with Zstandard", f"{_UNPACK} (zstd -d)"),
    (rb"BZh[1-9]", "packed with bzip2", f"{_UNPACK} (bunzip2)"),
    (rb"\xfd7zXZ\0", "packed with xz", f"{_UNPACK} (unxz)"),
    (rb".{257}ustar", "a tar archive", f"{_UNPACK} (tar -x)"),
    (rb"SQLite format 3\0", "an SQLite database, such as nsys export writes", _RECORD),
    (rb"\x80[\x02-\x05]", "a pickle, such as torch.save writes", "give a trace as JSON"),
    (rb"\x93NUMPY", "an array of NumPy", "give a trace as JSON"),
    (rb"PAR1", "a Parquet file", "give a trace as JSON"),
    (rb"\x89HDF", "an HDF5 file", "give a trace as JSON"),
    (rb"\x7fELF", "a program", "give the trace that it wrote"),
    (
        rb"version https://git-lfs\.github\.com",
        "a pointer of Git LFS, not the file itself",
        "git lfs pull fetches it",
    ),
    (
        rb"(?i)\s*(<!doctype html|<html|<\?xml|<head|<body)",
        "a web page, such as that of a login or of an error",
        "download the file itself",
    ),
)
_PATTERNS = tuple((re.compile(magic, re.DOTALL), what, right) for magic, what, right in _MAGIC)


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
    for magic, what, right in _PATTERNS:
        if magic.match(head):
            return what, right
    if head[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff"):
        return "text in UTF-32", "write it in UTF-8"
    # The first characters of JSON are of ASCII: every other byte is 0.
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or _zeros(head[0:16:2]) or _zeros(head[1:16:2]):
        return "text in UTF-16", "write it in UTF-8"
    if _is_xplane(head):
        return "a profile of XLA (xplane.pb, of JAX or TensorFlow)", _GRAPHS
    return None


def _zeros(letters: bytes) -> bool:
    return len(letters) > 1 and not any(letters)


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
