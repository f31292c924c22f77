"""Command-line options: those of every run, and those made from the fields of a pydantic model."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer import Argument, Option

from paracosm.backends import HERE, Backend
from paracosm.cluster.changes import Change
from paracosm.errors import InputError
from paracosm.files import unwritable
from paracosm.quantities import read_duration
from paracosm.units import parse_whole

Value = TypeVar("Value")

StudyFile = Annotated[Path | None, Argument(help="a study file; flags override its values")]
Seed = Annotated[int | None, Option(min=0, help="seed of all random streams [0]")]
Out = Annotated[Path | None, Option(help="run folder to write: metrics, timeline, report.html")]
Force = Annotated[bool, Option("--force", help="replace the run in the folder")]
Jobs = Annotated[int, Option(min=1, help="runs of a grid or a plan to execute in parallel")]
BackendName = Annotated[
    str,
    Option("--backend", help="where runs of a grid, or gradients of one, compute: loky, dask"),
]
Scheduler = Annotated[
    str | None, Option(help="address of a Dask cluster: tcp://host:8786 (a local one)")
]
Scalars = Annotated[
    Path | None, Option("--tensorboard", help="folder for the metrics as scalars of TensorBoard")
]
Mlflow = Annotated[
    str | None, Option("--mlflow", help="MLflow server or folder for the metrics: http://host:5000")
]
ForceFile = Annotated[bool, Option("--force", help="replace the file")]
Json = Annotated[bool, Option("--json", help="print the summary as JSON, and nothing else")]
Details = Annotated[
    bool, Option("--details", help="print all that the run says, not only what a decision needs")
]
Quiet = Annotated[bool, Option("--quiet", help="print nothing but errors")]

Command = Callable[..., Any]


@dataclass(frozen=True)
class RunFlags:
    """The flags of every verb that runs studies."""

    seed: Seed = None
    out: Out = None
    force: Force = False
    jobs: Jobs = 1
    backend: BackendName = HERE.name
    scheduler: Scheduler = None
    tensorboard: Scalars = None
    mlflow: Mlflow = None
    json: Json = False
    details: Details = False
    quiet: Quiet = False

    @classmethod
    def taken(cls, arguments: dict[str, Any]) -> RunFlags:
        """Take the flags out of the arguments of a verb."""
        return cls(**{flag.name: arguments.pop(flag.name, flag.default) for flag in fields(cls)})

    @property
    def where(self) -> Backend:
        """Where runs run."""
        return Backend(self.backend, self.jobs, self.scheduler)


def with_fields_of(
    model: type[BaseModel], positional: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Replace a command's `**arguments` with one flag per field of `model`. A flag that is not
    given is None. The model reads and checks the string that was typed, as it would a value of a
    study file. The flag of a field that holds several texts may be repeated. The flags of
    `positional` fields are left out.
    """
    return with_flags(_flags_of(model, positional))


def with_run_flags(
    *models: type[BaseModel],
    positional: Collection[str] = (),
    scalars: bool = False,
    others: Sequence[inspect.Parameter] = (),
) -> Callable[[Command], Command]:
    """Replace a command's `**arguments` with the fields of `models`, `others` and `RunFlags`. The
    first model that has a flag defines it; `scalars` says whether runs have metrics.
    """
    run_flags = inspect.signature(RunFlags, eval_str=True).parameters.values()
    run = [
        flag.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for flag in run_flags
        if scalars or flag.name not in ("tensorboard", "mlflow")
    ]
    flags = {f.name: f for model in reversed(models) for f in _flags_of(model, positional)}
    order = dict.fromkeys(f.name for model in models for f in _flags_of(model, positional))
    return with_flags([*(flags[name] for name in order), *others, *run])


def _flags_of(model: type[BaseModel], positional: Collection[str]) -> list[inspect.Parameter]:
    synonyms: dict[str, str] = getattr(model, "SYNONYMS", {})
    return [
        _flag(name, field, [w for w in synonyms if synonyms[w] == name], _panel(model, name))
        for name, field in model.model_fields.items()
        if name not in positional and get_origin(field.annotation) is not dict
    ]


PANELS = {
    "ClusterFields": "Cluster",
    "ThroughputFields": "Parameter servers",
    "ProfiledFields": "Parameter servers",
    **dict.fromkeys(("RecipeFields", "ClientFields", "FaultFields", "FailureFields"), "Advanced"),
}
"""Class that has a field -> panel of the help that its flag is in; of others "Job"."""


def _panel(model: type[BaseModel], name: str) -> str | None:
    first = [base for base in model.__mro__ if name in inspect.get_annotations(base)][-1]
    return PANELS.get(first.__name__)


NAMES = {
    "model": ("paracosm.models.registry", "MODELS"),
    "algorithm": ("paracosm.training.algorithms.registry", "ALGORITHMS"),
    "hardware": ("paracosm.cluster.hardware.catalogue", "hardware_names"),
}
"""Fields whose names a shell completes -> what has them, by module and name."""


def _names_of(module: str, name: str) -> Callable[[str], list[str]]:
    def beginning(incomplete: str) -> list[str]:
        value = getattr(import_module(module), name)
        names = value() if callable(value) else value
        return [name for name in names if name.startswith(incomplete)]

    return beginning


def with_flags(flags: Sequence[inspect.Parameter]) -> Callable[[Command], Command]:
    """Replace a command's `**arguments` with `flags`; its own keyword-only parameters follow
    them.
    """

    def decorate(command: Command) -> Command:
        kinds = inspect.Parameter
        own = inspect.signature(command, eval_str=True).parameters.values()
        first = [p for p in own if p.kind is kinds.POSITIONAL_OR_KEYWORD]
        keyword = [p for p in own if p.kind is kinds.KEYWORD_ONLY]
        parameters = [*first, *flags, *keyword]
        # Typer reads the signature and the annotations, not the code.
        vars(command)["__signature__"] = inspect.Signature(parameters)
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _flag(
    name: str, field: FieldInfo, synonyms: Sequence[str], panel: str | None
) -> inspect.Parameter:
    kinds = (field.annotation, *get_args(field.annotation))
    switch, several = bool in kinds, field.annotation in (tuple[str, ...], tuple[Change, ...])
    number = "N" if int in kinds else "NUMBER" if float in kinds else "TEXT"
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    written = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
    shown = "" if switch or default in (None, ()) else f" [{written}]"
    words = [word.replace("_", "-") for word in (name, *synonyms)]
    option = Option(
        f"--{words[0]}" + (f"/--no-{words[0]}" if switch else ""),
        *(f"--{word}" for word in words[1:]),
        rich_help_panel=panel,
        autocompletion=_names_of(*NAMES[name]) if name in NAMES else None,
        help=f"{field.description}{shown}",
        show_default=False,
        metavar=None if switch else number,
    )
    kind: Any = bool if switch else list[str] if several else str
    return flag(name, kind | None, option)


def flag(name: str, kind: Any, option: Any, default: Any = None) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=Annotated[kind, option])


LOG = flag("log", bool, Option("--log", help="print a line for every event"), False)
"""Of kinds of run with a log of events."""


def duration(flag: str, text: str) -> float:
    """Return the value of a flag in seconds: of this machine's time, a week at most."""
    seconds = named(flag, read_duration, text)
    if seconds > _WEEK:
        raise InputError(f"{flag}: a week at most, not {text}")
    return seconds


_WEEK = 7 * 86400.0


def named(flag: str, parse: Callable[[str], Value], text: str) -> Value:
    """Parse a flag's text with `parse`; an error names the flag."""
    try:
        return parse(text)
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None


def listed(text: str) -> list[str]:
    """Read "a, b"."""
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(flag: str, text: str, example: str) -> list[int]:
    values = [parse_whole(part.strip()) for part in text.split(",")]
    if None in values:
        raise InputError(f'{flag}: write numbers such as {example}, not "{text}"')
    return [number for number in values if number is not None]


def check_output(out: Path | None, force: bool) -> None:
    """Refuse to replace an existing file without --force, before any work is done."""
    if force and out is None:
        raise InputError("--force replaces a file: give --out as well")
    if out is not None and out.exists() and not force:
        raise InputError(f"{out} exists: --force replaces it")


def check_folder(out: Path | None, force: bool) -> None:
    if force and out is None:
        raise InputError("--force replaces the run in a folder: give --out as well")


def check_writable(path: Path) -> None:
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written: see the permissions of its folder")


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(f"{path}: cannot be made", error) from None


EXPORT = flag(
    "export",
    tuple[str, Path] | None,
    Option(
        "--export",
        metavar="flower DIR",
        rich_help_panel="Output",
        help="write the study into a new folder as a Flower app, for real clients; run nothing",
    ),
)
"""Of kinds of run that something else can run too."""
