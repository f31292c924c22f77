"""What a file is by its first bytes, for messages about one that was given in place of another."""

import re

HEAD = 1 << 16
"""Bytes by which a file is known."""

_UNPACK = "unpack it and give the file that is in it"

_MAGIC = (
    (rb"NVR\0", "a report of Nsight Compute, which times kernels alone", None),
    (rb"PK\x03\x04.{0,400}?data\.pkl", "what torch.save wrote", None),
    (rb"PK\x03\x04.{26}[^/]{1,200}\.npy", "arrays of NumPy or SciPy (.npz)", None),
    (rb"PK(\x03\x04|\x05\x06)", "a zip archive", _UNPACK),
    (rb"\x1f\x8b", "packed with gzip", "unpack it (gunzip)"),
    (rb"\x28\xb5\x2f\xfd", "packed with Zstandard", f"{_UNPACK} (zstd -d)"),
    (rb"BZh[1-9]", "packed with bzip2", f"{_UNPACK} (bunzip2)"),
    (rb"\xfd7zXZ\0", "packed with xz", f"{_UNPACK} (unxz)"),
    (rb".{257}ustar", "a tar archive", f"{_UNPACK} (tar -x)"),
    (rb"SQLite format 3\0", "an SQLite database, such as nsys export writes", None),
    (rb"\x80[\x02-\x05]", "a pickle, such as torch.save writes", None),
    (rb"\x93NUMPY", "an array of NumPy", None),
    (rb"PAR1", "a Parquet file", None),
    (rb"ARROW1", "an Arrow file", None),
    (rb"\x89HDF", "an HDF5 file", None),
    (rb"\x7fELF", "a program", None),
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
_PATTERNS = tuple((re.compile(magic, re.DOTALL), what, way) for magic, what, way in _MAGIC)


def kind_by_content(head: bytes) -> tuple[str, str | None] | None:
    """Return what a file is that begins with `head`, and how one gets at what is in it, where it
    is only a wrapping; None where it may be anything, such as text.
    """
    for magic, what, way in _PATTERNS:
        if magic.match(head):
            return what, way
    if head[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff"):
        return "text in UTF-32", "write it in UTF-8"
    # The first characters of JSON are of ASCII: every other byte is 0.
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or _zeros(head[0:16:2]) or _zeros(head[1:16:2]):
        return "text in UTF-16", "write it in UTF-8"
    return None


def _zeros(letters: bytes) -> bool:
    return len(letters) > 1 and not any(letters)
