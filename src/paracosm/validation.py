"""Read YAML and JSON, and mappings into pydantic models, or say in one line why not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from paracosm.errors import InputError, unknown

Model = TypeVar("Model", bound=BaseModel)

MOST_BYTES = 16 * 2**20
MOST_LEVELS = 64
MOST_VALUES = 1_000_000


def read_yaml(path: str | Path, what: str) -> Any:
    """Return the content of a YAML file.

    Args:
        path: where it is.
        what: what messages call it: "cluster file".

    Raises:
        InputError: it cannot be read; it is no YAML; a key stands twice in one mapping; it is
            larger, deeper or longer than any such file (also through aliases).
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InputError(f"{path}: a {what} of more than {MOST_BYTES // 2**20} MiB")
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise InputError(f'no {what} at "{path}"') from None
    except OSError as error:
        raise InputError(f'cannot read the {what} "{path}": {error.strerror}') from None
    except UnicodeDecodeError:
        raise InputError(f'cannot read the {what} "{path}": it is not UTF-8 text') from None
    return parse_yaml(text, f'cannot read the {what} "{path}"')


def parse_yaml(text: str, where: str) -> Any:
    """Return what a YAML text says; `where` begins the message of an error.

    Raises:
        InputError: as `read_yaml`.
    """
    try:
        content = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{where}: {_shortened(reason)}") from None
    if _values_in(content, {}) > MOST_VALUES:
        raise InputError(f"{where}: more than {MOST_VALUES:,} values")
    return content


def read_json(path: str | Path, what: str) -> Any:
    """Return the content of a JSON file; `what` is as `read_yaml` has it.

    Raises:
        InputError: it cannot be read; it is no JSON, or nested too deeply; a key stands twice.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f'no {what} at "{path}"') from None
    except OSError as error:
        raise InputError(f'cannot read the {what} "{path}": {error.strerror}') from None
    return parse_json(data, f'cannot read the {what} "{path}"')


def parse_json(text: str | bytes, where: str) -> Any:
    """Return what a JSON text says; `where` begins the message of an error.

    Raises:
        InputError: as `read_json`.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except RecursionError:
        raise InputError(f"{where}: JSON that is nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{where}: JSON that is cut off or damaged: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f'the key "{_shortened(twice)}" stands twice')
    return found


class _Loader(yaml.SafeLoader):
    """A loader that refuses repeated keys, and nesting that would exhaust the stack."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._level += 1
        if self._level > MOST_LEVELS:
            raise yaml.YAMLError(f"nested deeper than {MOST_LEVELS} levels")
        node = super().compose_node(parent, index)
        self._level -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in getattr(node, "value", ()):
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise yaml.YAMLError(f'the key "{key.value}" stands twice (line {line})')
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _values_in(content: Any, counted: dict[int, int]) -> int:
    """Count the values of nested content, as often as aliases repeat them."""
    if not isinstance(content, dict | list):
        return 1
    if id(content) not in counted:
        counted[id(content)] = MOST_VALUES + 1  # what contains itself
        parts = content.values() if isinstance(content, dict) else content
        counted[id(content)] = 1 + sum(_values_in(part, counted) for part in parts)
    return counted[id(content)]


def _shortened(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]} ..."


def validated(model: type[Model], mapping: Mapping[str, Any], where: str) -> Model:
    """Return `mapping` as an instance of `model`.

    Raises:
        InputError: for the first thing that is wrong, with `where` and the path of the key; an
            unknown key is answered with the nearest known one.
    """
    try:
        return model.model_validate(mapping)
    except ValidationError as error:
        raise InputError(f"{where}: {_first(error, model, mapping)}") from None


def _first(error: ValidationError, model: type[BaseModel], mapping: Mapping[str, Any]) -> str:
    problems = error.errors(include_url=False)
    # A misspelt key is why another one is missing: it is the cause to name.
    unknown_keys = [p for p in problems if p["type"] == "extra_forbidden"]
    problem = (unknown_keys or problems)[0]
    path = _written(problem["loc"], mapping)
    if problem["type"] == "extra_forbidden":
        fields = _fields(model, path[:-1])
        return str(unknown("key", ".".join(path), _prefixed(fields, path[:-1])))
    key = ".".join(path)
    message = _MESSAGES.get(problem["type"], problem["msg"])
    if problem["type"] == "value_error":
        message = message.removeprefix("Value error, ")
    elif problem["type"] == "missing":
        field = model.model_fields.get(key)
        message = "must be given"
        if field is not None and field.description is not None:
            message += f": {field.description}"
    elif problem["type"] == "invalid_key" or "[key]" in problem["loc"]:
        message = "a key is a name, not a number or the like"
    else:
        message = f"{message[0].lower()}{message[1:]}, got {_shown(problem['input'])}"
    return f"{key}: {message}" if key and not message.startswith(f"{key} ") else message


# Where pydantic speaks of Python.
_MESSAGES = {
    "dict_type": "Input should be a mapping of names to values",
    "model_type": "Input should be a mapping of names to values",
    "path_type": "Input should be a path",
}


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case Mapping():
            return "a mapping"
        case list():
            return "a list"
    return repr(value)


def _written(location: tuple[int | str, ...], mapping: Mapping[str, Any]) -> list[str]:
    """Return the path of keys as the user wrote them: without pydantic's names of union branches.

    Such a name ("int", "list[str]", "LinkSpec") is nowhere in the input; it is dropped. A key that
    is missing is not there either, but can only come last, and is the name of a field.
    """
    path = []
    value: Any = mapping
    for part in location:
        here = value if isinstance(value, Mapping) else {}
        if isinstance(value, list):
            here = dict(enumerate(value))
        if part not in here and _is_branch(str(part)):
            continue
        value = here.get(part)
        path.append(str(part))
    return path


def _is_branch(part: str) -> bool:
    return "[" in part or part in _TYPES or part[:1].isupper()


_TYPES = {"str", "int", "float", "bool", "none", "list", "dict", "tuple", "constrained-str"}


def _fields(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the field names of the model that `path` leads to, through nested ones."""
    named = False  # whether a part is a name that the user gave, of a mapping of models
    for part in path:
        if part.isdigit() or named:
            named = False
            continue
        field = model.model_fields.get(part)
        nested = [] if field is None else _models_in(field.annotation)
        if not nested:
            return []
        named = field is not None and get_origin(field.annotation) is dict
        model = nested[0]
    return list(model.model_fields)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def _prefixed(names: list[str], path: list[str]) -> list[str]:
    return [".".join([*path, name]) for name in names]
