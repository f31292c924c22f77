"""Validate mappings as pydantic models; errors are one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from paracosm.errors import InputError, shown, unknown
from paracosm.files import check_name
from paracosm.units import WIDEST, in_digits, is_too_wide

Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], mapping: Mapping[str, Any], where: str) -> Model:
    """Return `mapping` as an instance of `model`.

    Raises:
        InputError: the first error, with `where` and the path of the key; for an unknown key the
            nearest known one.
    """
    try:
        result = model.model_validate(mapping)
    except ValidationError as error:
        raise InputError(f"{where}: {_first(error, model, mapping)}") from None
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])
        raise InputError(f"{where}: a text has half a surrogate pair, {half}") from None
    for key in result.model_fields_set:
        if isinstance(path := getattr(result, key), Path):
            try:
                check_name(path)
            except InputError as error:
                raise InputError(f"{where}: {key}: {error}") from None
    for path, reason in _wrong_numbers(result, mapping):
        raise InputError(f"{where}: {'.'.join(path)}: {reason}")
    return result


def given_fields(config: BaseModel, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields that were set explicitly."""
    return {
        name: value
        for name in names
        if name in config.model_fields_set and (value := getattr(config, name)) is not None
    }


def _wrong_numbers(
    found: Any, written: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the numbers that were written as truth values, with which Python counts, and pydantic
    as well; and whole numbers that no array holds.
    """
    if type(found) is int and is_too_wide(found):
        yield path, f"{shown(found)} is larger than 64 bits hold ({WIDEST})"
    elif isinstance(written, bool):
        if type(found) in (int, float):
            yield path, f"input should be a number, got {str(written).lower()}"
    elif isinstance(written, Mapping):
        parts = vars(found) if isinstance(found, BaseModel) else found
        for key, value in written.items() if isinstance(parts, Mapping) else ():
            yield from _wrong_numbers(parts.get(key), value, (*path, str(key)))
    elif isinstance(written, list | tuple) and isinstance(found, list | tuple):
        for place, (part, value) in enumerate(zip(found, written, strict=False)):
            yield from _wrong_numbers(part, value, (*path, str(place)))


def _first(error: ValidationError, model: type[BaseModel], mapping: Mapping[str, Any]) -> str:
    problems = error.errors(include_url=False)
    # A misspelt key also makes another one missing: report the cause.
    unknown_keys = [p for p in problems if p["type"] == "extra_forbidden"]
    problem = (unknown_keys or problems)[0]
    path = _written(problem["loc"], mapping)
    if problem["type"] == "extra_forbidden":
        fields = _fields(model, path[:-1])
        return str(unknown("key", ".".join(path), [".".join([*path[:-1], f]) for f in fields]))
    key = ".".join(path)
    message = _MESSAGES.get(problem["type"], problem["msg"])
    if problem["type"] == "value_error":
        message = message.removeprefix("Value error, ")
    elif problem["type"] == "missing":
        field = model.model_fields.get(key)
        message = "must be given"
        if field is not None and field.description is not None:
            message += f": {field.description}"
        also = [".".join(map(str, p["loc"])) for p in problems[1:] if p["type"] == "missing"]
        if also:
            message += f"; so must {', '.join(also)}"
    elif problem["type"] == "invalid_key" or "[key]" in problem["loc"]:
        message = "a key is a name, not a number or the like"
    else:
        wrong = problem["input"]
        message = f"{message[0].lower()}{message[1:]}, got {_shown(wrong)}"
        digits = in_digits(wrong) if isinstance(wrong, str) else None
        if problem["type"] == "float_parsing":
            message = f"a number, not {_shown(wrong)}"
        if problem["type"] == "int_parsing":
            message = f"a whole number, not {_shown(wrong)}"
            message += "" if digits is None else f": write {digits}"
    is_named = message.startswith((f"{key} ", f"{key}:"))
    return f"{key}: {message}" if key and not is_named else message


# Messages in which pydantic mentions Python types.
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
    return shown(value)


def _written(location: tuple[int | str, ...], mapping: Mapping[str, Any]) -> list[str]:
    """Return the path of keys as written by the user, without pydantic's names of branches."""
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
    named = False  # whether a part is a user's key of a mapping of models
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
