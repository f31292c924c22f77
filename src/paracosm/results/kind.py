"""What a kind of run is: one object, which its room exports from `<room>/kind.py`.

The verb of the command line, the key of a study, the Python function, the run folder, tuning and
reports follow from it. `paracosm.studies.kinds` lists the rooms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from paracosm.backends import HERE, Backend
from paracosm.errors import InputError, unknown
from paracosm.factory import constant_in
from paracosm.results.summaries import Summary

if TYPE_CHECKING:
    from pydantic import BaseModel

S = TypeVar("S", bound=Summary)

Progress = Callable[[int, float | None], None]
"""Called from time to time with the progress (in the kind's unit) and the virtual time."""

Announce = Callable[[str], None]
"""Called before the run with a sentence on the expected result, by kinds that have one."""


@dataclass(frozen=True)
class Hooks:
    """Callbacks and settings during a run."""

    progress: Progress | None = None  # reports progress
    announce: Announce | None = None  # reports the expected result, before the start
    log: bool = False  # print a line for every event
    backend: Backend = HERE  # where what one run consists of is computed
    journal: Path | None = None  # where a resumable run stores its progress
    force: bool = False  # whether what a run consists of is computed again
    # folder with the folders of a sweep's runs, this one's among them; None of a run by itself
    sweep: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    summary: Summary  # the key numbers
    timeline: Any = None  # the spans, a `paracosm.timeline.Timeline`; None if not recorded
    # further files of the run folder by name, each with a function that writes it
    files: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)


def _check(config: Any) -> None:
    config.check()


@dataclass(frozen=True)
class Form:
    """One way to ask for a run: a configuration in which every field means something.

    Rooms are imported on first use: `config` names a class, and functions import what they need.
    """

    config: str  # "module:name" of the pydantic model of the arguments
    # takes a configuration, the seed, a sink for metrics, and hooks
    run: Callable[[Any, int, Any, Hooks], Outcome]
    check: Callable[[Any], None] = _check  # raises InputError for what cannot be run

    @property
    def model(self) -> type[BaseModel]:
        """The pydantic model of the arguments."""
        model: type[BaseModel] = imported(self.config)
        return model


@dataclass(frozen=True)
class Answer:
    """A class of summary that runs of a kind have, and how it is shown."""

    summary: type[Summary]
    view: str | None = None  # "module:name" of its `View`; None: a plain one
    sentence: str | None = None  # "module:name" of a function of the summary; None: its status


@dataclass(frozen=True)
class Kind:
    """One kind of run."""

    verb: str  # of the command line; the key of a study, and the name of the Python function
    noun: str  # name of such a run in a sentence
    question: str  # that such runs answer
    help: str  # what the command does, in a sentence
    examples: tuple[str, ...]  # commands, without the name of the program
    forms: tuple[Form, ...]  # the first is that of arguments which fit several
    answers: tuple[Answer, ...]  # the first is that of an unfinished run
    # the number of the summary that such runs are about, which a tuning minimises by default
    objective: Callable[[Any], str]
    maximizes: bool = False  # or maximises
    # further numbers to tune, by name, which are not in the summary itself
    numbers: Callable[[Any], Mapping[str, float | None]] = lambda summary: {}
    names: tuple[str, ...] = ()  # of these
    # whether a run came to the number of a name
    reached: Callable[[Any, str], bool] = lambda summary, name: True
    unit: Callable[[Any], str] = lambda config: "runs"  # returns what a progress bar counts
    total: Callable[[Any], int | None] = lambda config: None  # units of a run; None if unknown
    success: str = "done"  # the status of a successful run
    ends: frozenset[str] = frozenset({"done"})  # of completed runs, which need not be run again
    has_metrics: bool = False  # which TensorBoard and MLflow can show
    logs: bool = False  # whether it can print a line for every event
    # what else can run such a study -> "module:name" of the function that writes it for that, from
    # a configuration, the seed and a new folder, and returns a sentence
    exports: Mapping[str, str] = field(default_factory=dict)
    # whether a run writes to the terminal, where a progress bar would interfere
    prints: Callable[[Any], bool] = lambda config: False
    # whether a run consists of many: it distributes them over processes, and can be resumed
    of_many: bool = False
    on_clusters: bool = False  # whether one run computes on a cluster
    # numbers to tune that compare each run with another one, in memory -> "module:name" of what
    # makes the `Evaluator`, from the arguments, what is varied, and the limit
    comparisons: Mapping[str, str] = field(default_factory=dict)
    file: str = "a study file; flags override its values"  # that the command takes
    # "module:name" of a function that returns the arguments which another file stands for, and
    # perhaps the seed; None for a study file of this kind
    adopt: str | None = None

    @property
    def models(self) -> tuple[type[BaseModel], ...]:
        """The pydantic models of its arguments, one for each form."""
        return tuple(form.model for form in self.forms)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of all forms by name, each as the first form that has it defines it."""
        models = reversed(self.models)
        return {name: about for model in models for name, about in model.model_fields.items()}

    @property
    def synonyms(self) -> dict[str, str]:
        """Other names of fields."""
        return {
            name: meant
            for model in self.models
            for name, meant in getattr(model, "SYNONYMS", {}).items()
        }

    def model(self, arguments: Mapping[str, Any]) -> type[BaseModel]:
        """Return the model of the form that arguments belong to: the first that has them all.

        An argument that is None counts as not given.

        Raises:
            InputError: no form has all of them.
        """
        names = [name for name, value in arguments.items() if value is not None]
        known = {model: _names_of(model) for model in self.models}
        for model in known:
            if known[model].issuperset(names):
                return model
        for name in names:
            if not any(name in own for own in known.values()):
                # Its own error names the nearest argument.
                return max(known, key=lambda model: len(known[model].intersection(names)))
        raise InputError(_contradiction(names, known))

    def configured(self, arguments: Mapping[str, Any], where: str) -> Any:
        """Return checked arguments, as an instance of the form that they belong to.

        Args:
            arguments: their values by name.
            where: their origin, for messages.

        Raises:
            InputError: one is unknown, invalid, or belongs to another form; or such a run is
                impossible.
        """
        try:
            model = self.model(arguments)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        from paracosm.validation import validated  # which loads pydantic

        config = validated(model, _without_foreign(arguments, model, self.models), where)
        try:
            self.check(config)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        return config

    def form_of(self, config: Any) -> Form:
        """Return the form that a configuration is of."""
        return next(form for form in self.forms if type(config) is form.model)

    def check(self, config: Any) -> None:
        """Raise InputError for what can be known to be impossible before the run."""
        self.form_of(config).check(config)

    def run(self, config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
        """Run a configuration; the changed run beside the unchanged one, where it has changes."""
        return self.form_of(config).run(config, seed, metrics, hooks)

    def answer_of(self, name: str | None) -> Answer:
        """Return the answer whose summary names its kind so; of None, the first one.

        Raises:
            InputError: such runs have no such summary.
        """
        for answer in self.answers:
            if name in (answer.summary.kind, None):
                return answer
        raise unknown(
            "kind of summary", str(name), [answer.summary.kind for answer in self.answers]
        )


def imported(place: str) -> Any:
    """Return what "module:name" names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _names_of(model: type[BaseModel]) -> set[str]:
    return {*model.model_fields, *getattr(model, "SYNONYMS", {})}


def _without_foreign(
    arguments: Mapping[str, Any], model: type[BaseModel], models: Sequence[type[BaseModel]]
) -> dict[str, Any]:
    """Leave out what is None and belongs to other forms alone, as study files have it."""
    foreign = set[str]().union(*map(_names_of, models)) - _names_of(model)
    return {
        name: value for name, value in arguments.items() if value is not None or name not in foreign
    }


def _contradiction(names: Sequence[str], forms: Mapping[type[BaseModel], set[str]]) -> str:
    """Say which arguments exclude each other: of the form that requires most of them, or else has
    most, one is missing.
    """

    def fit(form: type[BaseModel]) -> tuple[int, int]:
        required = {name for name, field in form.model_fields.items() if field.is_required()}
        return len(required.intersection(names)), len(forms[form].intersection(names))

    most = forms[max(forms, key=fit)]
    others = [name for name in names if name not in most]
    fitting = [own for own in forms.values() if others[0] in own]
    excluded = [name for name in names if not any(name in own for own in fitting)]
    excluded = excluded or [name for name in names if name in most and name not in fitting[0]]
    return (
        f"{', '.join(sorted(others))}: cannot be combined with {', '.join(sorted(excluded))}: "
        "leave one or the other out"
    )


def with_unchanged(
    summary: S,
    changes: Sequence[Any],
    run_unchanged: Callable[[], Any],
    part: Callable[[Any], Any] = lambda unchanged: unchanged,
) -> S:
    """Return the summary of a changed run with that of the same run without the changes.

    The changed run comes first, so that an interrupt of the unchanged one loses nothing of it. Runs
    that were interrupted or have failed are not run again.

    Args:
        summary: of the changed run.
        changes: `what_if` of its configuration; without any, nothing else is run.
        run_unchanged: returns the summary without them.
        part: returns what of that one is kept, as `unchanged`.
    """
    if not changes:
        return summary
    changed: Any = replace(summary, what_if=[str(change) for change in changes])
    if changed.status in ("interrupted", "failed"):
        return cast("S", changed)
    try:
        unchanged = run_unchanged()
    except KeyboardInterrupt:
        return cast("S", replace(changed, status="interrupted"))
    is_cut = unchanged.status in ("interrupted", "failed")
    status = unchanged.status if is_cut else changed.status
    return cast("S", replace(changed, unchanged=part(unchanged), status=status))


class Kinds(Mapping[str, Kind]):
    """Kinds of run by verb, imported on first use; another one can be added at any time.

    A place is "module:KIND", and "module:FORMS" behind it where other rooms have forms of it.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._kinds: dict[str, str | Kind] = dict(places)

    def __getitem__(self, verb: str) -> Kind:
        kind = self._kinds[verb]
        if isinstance(kind, str):
            place, *others = kind.split()
            kind = imported(place)
            assert isinstance(kind, Kind)
            forms = [form for other in others for form in imported(other)]
            kind = self._kinds[verb] = replace(kind, forms=(*kind.forms, *forms))
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def add(self, kind: Kind) -> None:
        """Add a kind, under its verb."""
        self._kinds[kind.verb] = kind

    def question(self, verb: str) -> str:
        """Return the question of a kind; that of a room is read from its source, as importing all
        rooms takes seconds.
        """
        kind = self._kinds[verb]
        if isinstance(kind, Kind):
            return kind.question
        spec = find_spec(kind.partition(":")[0])
        assert spec is not None
        assert spec.origin is not None
        return constant_in(Path(spec.origin), "question")
