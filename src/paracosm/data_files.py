"""Read YAML and JSON; errors are one line."""

import json
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from paracosm.errors import InputError
from paracosm.files import MOST_BYTES, open_file, read_at_most
from paracosm.units import WIDEST, is_too_wide

MOST_YAML = 16 * 2**20  # bytes
MOST_LEVELS = 64
MOST_VALUES = 1_000_000  # with those that aliases repeat
MOST_WRITTEN = 200_000  # PyYAML takes up to 0.1 ms for each


def read_yaml(path: str | Path, what: str) -> Any:
    """Return the content of a YAML file.

    Args:
        path: where it is.
        what: what messages call it: "cluster file".

    Raises:
        InputError: it cannot be read; it is not YAML; a mapping repeats a key; a value is neither a
            text, a number, a truth value, a list nor a mapping; it exceeds the limits of size,
            depth or length (aliases included), or of numbers.
    """
    return parse_yaml(_read(path, what, MOST_YAML), f'cannot read the {what} "{path}"')


def read_packaged_yaml(path: Path) -> Any:
    """Return the content of a YAML file of this package, by the parser in C where there is one.

    It is ten times as fast, and checks none of what `read_yaml` refuses: a test does.
    """
    loader = getattr(yaml, "CSafeLoader", _Loader)
    return yaml.load(path.read_bytes().decode(), Loader=loader)


def parse_yaml(text: str | bytes, where: str) -> Any:
    """Return the content of a YAML text; `where` begins the message of an error.

    Raises:
        InputError: as `read_yaml`.
    """
    if len(text) > MOST_YAML:
        raise InputError(f"{where}: more than {MOST_YAML >> 20:,} MiB")
    try:
        text = text.decode() if isinstance(text, bytes) else text
        content = yaml.load(text, Loader=_Loader)
    except UnicodeDecodeError:
        raise InputError(f"{where}: it is not UTF-8 text") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: {_why_no_yaml(error, text)}") from None
    if _values_in(content, {}) > MOST_VALUES:
        raise InputError(f"{where}: more than {MOST_VALUES:,} values")
    return content


def _why_no_yaml(error: Exception, text: str | bytes) -> str:
    """Return what is wrong with a text, and where: not in the words of its parser."""
    match error:
        case yaml.reader.ReaderError():
            return "it is no text: it has characters that no YAML has"
        case yaml.MarkedYAMLError(problem_mark=yaml.Mark(line=number)):
            lines = str(text).splitlines()
            # A bracket or a quote that nothing closes is found at the end.
            begun = error.context_mark.line if error.context_mark is not None else number
            number = begun if number >= len(lines) else number
            line = lines[number] if number < len(lines) else ""
            if "\t" in line[: len(line) - len(line.lstrip())]:
                return f"line {number + 1} is indented by a tab: YAML takes spaces"
            shown = _shortened(" ".join(line.split()))
            if isinstance(error, yaml.constructor.ConstructorError):  # a tag, or a list as a key
                return f'line {number + 1} has what is no plain value or name: "{shown}"'
            return f'it is no YAML, from line {number + 1} on: "{shown}"'
    return _shortened(" ".join(str(error).split()))


def read_json(path: str | Path, what: str) -> Any:
    """Return the content of a JSON file; `what` is as `read_yaml` has it.

    Raises:
        InputError: it cannot be read; it is not JSON, or nested too deeply; a mapping repeats a
            key; a whole number has more than 64 bits; a text has half a surrogate pair, which no
            file can be written with.
    """
    return parse_json(_read(path, what, MOST_BYTES), f'cannot read the {what} "{path}"')


def _read(path: str | Path, what: str, most: int) -> bytes:
    with open_file(path, what) as file:
        data = read_at_most(file, most + 1)
    if len(data) > most:
        raise InputError(f"{path}: a {what} of more than {most >> 20:,} MiB")
    return data


def parse_json(text: str | bytes, where: str) -> Any:
    """Return the content of a JSON text; `where` begins the message of an error.

    Raises:
        InputError: as `read_json`.
    """
    return _decoded(
        text, where, partial(json.loads, object_pairs_hook=_unique, parse_int=_parse_int(text))
    )


def parse_json_documents(text: str, where: str) -> list[Any]:
    """Return the contents of JSON texts that follow one another.

    Raises:
        InputError: as `read_json`.
    """
    documents: list[Any] = _decoded(text, where, _documents)
    return documents


def _documents(text: str) -> list[Any]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_int=_parse_int(text))
    documents, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        document, at = decoder.raw_decode(text, at)
        documents.append(document)
    return documents


def _decoded(text: str | bytes, where: str, decode: Callable[[Any], Any]) -> Any:
    try:
        content = decode(text)
        if re.search(r"\\u[dD]", text if isinstance(text, str) else text.decode("latin-1")):
            json.dumps(content, ensure_ascii=False).encode()
        return content
    except RecursionError:
        raise InputError(f"{where}: the JSON is nested too deeply") from None
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise InputError(f"{where}: a text has half a surrogate pair, {half}") from None
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except ValueError as error:
        raise InputError(f"{where}: the JSON is truncated or damaged: {error}") from None


def _parse_int(text: str | bytes) -> Callable[[str], int] | None:
    """Return what reads whole numbers in a JSON text; None for the decoder's own way."""
    # A function for each number doubles the time of a large file, so only where it is needed.
    data = text if isinstance(text, str) else text.decode("latin-1")
    return _bounded if re.search(r"\d{19}", data) else None


def _bounded(digits: str) -> int:
    # Python refuses to convert thousands of digits, with an error of its own.
    if len(digits) > len(str(WIDEST)) + 1 or is_too_wide(int(digits)):
        raise InputError(_too_wide(digits))
    return int(digits)


def _too_wide(text: str) -> str:
    short = text if len(text) <= 40 else f"{text[:20]}..., of {len(text):,} characters,"
    return f"the whole number {short} is larger than 64 bits hold ({WIDEST})"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the key "{_shortened(twice)}" is given twice')
    return mapping


class _Loader(yaml.SafeLoader):
    """A loader of texts, numbers, truth values, lists and mappings. It refuses repeated keys,
    nesting that would exhaust the stack, and numbers that other readers would take for others.

    A key is a name, also where YAML 1.1 reads it as a truth value: `off`, `on`, `yes`.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._level = self._values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._level += 1
        if self._level > MOST_LEVELS:
            raise yaml.YAMLError(f"nested deeper than {MOST_LEVELS} levels")
        self._values += 1
        if self._values > MOST_WRITTEN:
            raise yaml.YAMLError(f"more than {MOST_WRITTEN:,} keys and values")
        node = super().compose_node(parent, index)
        self._level -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise yaml.YAMLError(f'the key "{key.value}" is given twice (line {line})')
                seen.add(key.value)
                if key.tag == "tag:yaml.org,2002:bool":
                    key.tag = "tag:yaml.org,2002:str"  # `off: 5 W` of a node's power
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        """Refuse numbers that YAML 1.1 reads to base 8 or 60 and YAML 1.2 does not."""
        text = super().construct_scalar(node)
        is_number = node.tag in (_INT, _FLOAT)
        if is_number and re.match(r"[-+]?(0_*[0-7]|.*:)", text):
            line = node.start_mark.line + 1
            raise yaml.YAMLError(f'"{text}" is no decimal number (line {line}): quote a text')
        return text

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Refuse what is no text, number, truth value, list or mapping, and numbers that no
        configuration can hold.
        """
        line, text = f"(line {node.start_mark.line + 1})", node.value
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if kind in _NOT_READ:
            raise yaml.YAMLError(f"{_NOT_READ[kind]} {line}")
        if not isinstance(node, yaml.ScalarNode):
            return super().construct_object(node, deep)
        if node.tag == _INT and len(text) > _MOST_CHARACTERS:  # before Python converts them
            raise yaml.YAMLError(f"{_too_wide(text)} {line}")
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError) as error:  # of a tag that does not fit, as in !!int x
            raise yaml.YAMLError(f'"{_shortened(text)}" is no {kind} {line}') from error
        if node.tag == _INT and is_too_wide(value):
            raise yaml.YAMLError(f"{_too_wide(text)} {line}")
        if node.tag == _FLOAT and math.isnan(value):
            raise yaml.YAMLError(f"{text} is not a number {line}")
        if node.tag == _FLOAT and math.isinf(value) and not text.lower().endswith("inf"):
            raise yaml.YAMLError(f"{_shortened(text)} is larger than 1e308 {line}")
        return value


_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_MOST_CHARACTERS = 200  # of a whole number: 64 binary digits, and as many underscores

_NOT_READ = {
    "timestamp": "a date or a time of day is no value here: quote a text",
    "binary": "binary data (!!binary) is no value here: write a text",
    "set": "a set (!!set, or keys without values) is no value here: write a list",
    "omap": "an ordered mapping (!!omap) is no value here: write a mapping",
    "pairs": "pairs (!!pairs) are no value here: write a mapping",
}
"""Kinds of values that YAML 1.1 has and no configuration holds."""


def _values_in(content: Any, counted: dict[int, int]) -> int:
    """Count the values of nested content, as often as aliases repeat them."""
    if not isinstance(content, dict | list):
        return 1
    if id(content) not in counted:
        counted[id(content)] = MOST_VALUES + 1  # a value that contains itself
        parts = content.values() if isinstance(content, dict) else content
        counted[id(content)] = 1 + sum(_values_in(part, counted) for part in parts)
    return counted[id(content)]


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]} ..."
