"""The verbs of the program: their names and the modules that implement them. A module is imported
when its verb is called or its help is shown; the list of all verbs is read from the modules'
sources.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

import paracosm
from paracosm.errors import InputError, shown
from paracosm.factory import constant_in
from paracosm.files import check_name
from paracosm.units import WIDEST, in_digits, is_too_wide

VERBS: Mapping[str, str] = {
    "train": "paracosm.training.kind",
    "relax": "paracosm.relaxation.kind",
    "relax measure": "paracosm.cli.relax",
    "relax tune": "paracosm.cli.relax",
    "profile ops": "paracosm.cli.profile_ops",
    "profile job": "paracosm.cli.profile_job",
    "profile import": "paracosm.cli.profile_job",
    "predict": "paracosm.prediction.kind",
    "plan": "paracosm.planning.kind",
    "tune": "paracosm.studies.tuning.kind",
    "replay": "paracosm.cli.replay",
    "graph capture": "paracosm.cli.graph_capture",
    "graph show": "paracosm.cli.graph",
    "graph export": "paracosm.cli.graph",
    "graph import": "paracosm.cli.graph",
    "hardware list": "paracosm.cli.hardware",
    "hardware show": "paracosm.cli.hardware",
    "hardware stacks": "paracosm.cli.hardware",
    "hardware add": "paracosm.cli.hardware",
    "db show": "paracosm.cli.db",
    "db check": "paracosm.cli.db",
    "db merge": "paracosm.cli.db",
    "db export": "paracosm.cli.db",
    "measure link": "paracosm.cli.measure_link",
    "calibrate": "paracosm.cli.calibrate",
    "calibrate serve": "paracosm.cli.calibrate",
    "calibrate link": "paracosm.cli.calibrate_link",
    "emulate": "paracosm.cli.emulate",
    "emulate serve": "paracosm.cli.emulate",
    "doctor": "paracosm.cli.doctor",
    "report": "paracosm.cli.report",
    "trace": "paracosm.cli.report",
}
"""Verb -> module with its kind of run; or with a function that has the name of the verb's last word
(`import_` for import).
"""

COMMAND_LINE_ERROR: Any = typer.BadParameter.__mro__[-4]
"""What Typer raises of a command line: the class below Exception, TyperException or, before Typer
had one, that of Click."""

INTERRUPTED = 130
"""Exit code of a verb that Ctrl-C ended: 128 and the number of its signal."""

SETTINGS: dict[str, Any] = {"help_option_names": ["--help", "-h"]}
"""Settings of every verb; a module may define its own `COMMANDS`, a `Verb` by name."""


PANELS = ("Common", "Job", "Cluster", "Parameter servers", "Output", "Advanced")
"""Of a help. Common are the flags of its examples; a flag without another panel is of the job."""

_OF_RUNS = {
    **dict.fromkeys(("out", "force", "json", "details", "quiet"), "Output"),
    **dict.fromkeys(("tensorboard", "mlflow"), "Output"),
    **dict.fromkeys(("seed", "jobs", "backend", "scheduler"), "Advanced"),
}

_MEANT: Mapping[str, tuple[str, ...]] = {
    "--target": ("--until",),
    "--until": ("--target",),
    **dict.fromkeys(("--epochs", "--steps", "--iterations"), ("--updates", "--max-sweeps")),
    **dict.fromkeys(
        ("--workers", "--world-size", "--nodes", "--ranks", "--gpus", "--nproc-per-node"),
        ("--world-size", "--workers", "--processors"),
    ),
    "--batch-size": ("--batch",),
    "--learning-rate": ("--lr",),
    "--gpu": ("--hardware",),
    "--device": ("--hardware",),
    **dict.fromkeys(("--output", "-o", "--folder"), ("--out",)),
}
"""Options by which other verbs and other programs call what these are."""

UNITS = "Type units: 20ms, 16MiB, 10Gbit/s. Numbers in normal(10, 1) are seconds."
"""The rule for numbers, at the end of helps."""

_FEW = 12  # flags that a help shows with all that they do
_WIDEST = 100


class Verb(TyperCommand):
    """A verb whose help fits on a page, and ends with the verbs that begin with it."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        below = [
            f"paracosm {name}: {_command(name).get_short_help_str(200)}"
            for name in VERBS
            if name.startswith(f"{ctx.info_name} ")
        ]
        if below:
            below = ["", "Verbs of its own, each with a --help:", *below]
        whole = formatter is None or len(self.params) <= _FEW
        typer.echo("\n".join([*self._page(ctx, whole), *itertools.chain(*map(_filled, below))]))

    def _page(self, ctx: Any, whole: bool) -> Iterator[str]:
        """Yield the lines of a help, with what each flag does, or else only the common ones."""
        yield from _beginning(self, ctx)
        flags: list[Any] = [flag for flag in self.params if flag.opts[0].startswith("-")]
        others: list[Any] = [argument for argument in self.params if argument not in flags]
        arguments = [(str(argument.name), argument.help) for argument in others]
        yield from _entries("Arguments", arguments) if whole else ()
        for panel in PANELS:
            of_it = [flag for flag in flags if flag.rich_help_panel == panel]
            if whole or panel == "Common":
                yield from _entries(panel, [(_written(flag), flag.help) for flag in of_it])
            elif of_it:
                names = " ".join(flag.opts[0] for flag in of_it)
                yield from ("", panel, *_filled(names, "  ", "  "))
        yield ""
        if not whole:
            yield f"What each of them does: {ctx.command_path} --help-all"
        yield from _filled(UNITS)

    def parse_args(self, ctx: Any, args: Any) -> Any:
        """Read the arguments; say what to type for an option that is not known or missing."""
        if "--help-all" in itertools.takewhile("--".__ne__, args):
            self.format_help(ctx, None)
            ctx.exit()
        words = [*args]  # which reading takes away
        try:
            " ".join(args).encode()
            return super().parse_args(ctx, args)
        except UnicodeEncodeError:
            raise InputError("what was typed is not UTF-8 text") from None
        except COMMAND_LINE_ERROR as error:
            raise InputError(self._way_out(ctx, error, words)) from None

    def _way_out(self, ctx: Any, error: Any, words: list[str]) -> str:
        """Return what is wrong with a command line of these words, and what to type."""
        message: str = error.format_message().removesuffix(".")
        option = getattr(error, "option_name", None)
        if hasattr(error, "possibilities") and option is not None:
            return f"{ctx.command_path} has no option {option}: {self._instead_of(ctx, option)}"
        if option is not None and " requires " in message:
            flags: dict[str, Any] = {flag: param for param in self.params for flag in param.opts}
            values = "a value" if flags[option].nargs == 1 else flags[option].metavar
            return f"{option} needs {values}: {flags[option].help}"
        if "Missing" in message:
            return with_example(message, self.help or "")
        if match := re.search(r"'(--[\w-]+)'.*valid integer", message):
            value = next(iter(words[words.index(match[1]) + 1 :]), "") if match[1] in words else ""
            digits = in_digits(value)
            told = f"{match[1]}: a whole number" + (f", not {value}" if value else "")
            return told if digits is None else f"{told}: write {digits}"
        if match := re.search(r"extra arguments?\)? \((.*)\)", message.replace("(s)", "")):
            takes_model = any("--model" in param.opts for param in self.params)
            if takes_model and "--model" not in words and not re.search(r"\s|\.py$", match[1]):
                return f'"{match[1]}" is too much: write --model {match[1]}'
            return f'"{match[1]}" is too much: see {ctx.command_path} --help'
        return message

    def _instead_of(self, ctx: Any, option: str) -> str:
        """Return what to type instead of an option that this verb lacks."""
        flags = [flag for param in self.params for flag in (*param.opts, *param.secondary_opts)]
        meant = [flag for flag in _MEANT.get(option, ()) if flag in flags]
        near = meant or get_close_matches(option, flags, n=1, cutoff=0.85)
        if near:
            return f"did you mean {near[0]}?"
        word = option.lstrip("-").replace("-", "_")
        if any(param.name == word and param.param_type_name == "argument" for param in self.params):
            value = word.upper()
            return f"{word} stands without a flag: {ctx.command_path} {value}"
        others = [
            verb for verb in VERBS if any(option in names for names in parameters_of(verb).values())
        ]
        if others:
            return f"paracosm {', '.join(others[:5])} {'has' if len(others) == 1 else 'have'} it"
        near = get_close_matches(option, flags, n=1)
        return f"did you mean {near[0]}?" if near else f"see {ctx.command_path} --help-all"

    def invoke(self, ctx: Any) -> Any:
        """Run the verb, unless its flags contradict each other."""
        outputs = [name for name in ("json", "details", "quiet") if ctx.params.get(name)]
        if len(outputs) > 1:
            flags = " and ".join(f"--{name}" for name in outputs[:2])
            raise InputError(f"{flags} exclude each other: give one of them")
        for name, argument in ctx.params.items():
            for value in argument if isinstance(argument, list | tuple) else [argument]:
                if isinstance(value, Path):
                    check_name(value)
                elif isinstance(value, int) and is_too_wide(value):
                    flag = f"--{name.replace('_', '-')}"
                    raise InputError(f"{flag}: at most {WIDEST}, not {shown(value)}")
        return super().invoke(ctx)


def with_example(message: str, text: str) -> str:
    """Return a message on what is missing, with the first example of a verb's help."""
    example = text.partition("Example: ")[2].partition("\n\n")[0]
    return f"{message}: for example {' '.join(example.split())}" if example else message


def _filled(text: str, first: str = "", others: str = "") -> list[str]:
    """Return a text in lines as wide as a page, the first and the others behind so much."""
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    wrapper = textwrap.TextWrapper(
        width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False
    )
    return wrapper.wrap(text) or [""]


def _beginning(command: Any, ctx: Any) -> Iterator[str]:
    """Yield the lines of a help above what can be typed."""
    yield from _filled(f"Usage: {ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}")
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from ("", *_filled(paragraph))


def _entries(title: str, entries: Sequence[tuple[str, str | None]]) -> Iterator[str]:
    """Yield the lines of a part of a help: what each name means."""
    yield from ("", title) if entries else ()
    for name, text in entries:
        yield from _filled(" ".join((text or "").split()), f"  {name:20} ", " " * 23)


def _written(flag: Any) -> str:
    return ", ".join((*flag.opts, *flag.secondary_opts))


def _kinds() -> Mapping[str, Any]:
    """Return the kinds of run, which may have more verbs; importing them takes half a second."""
    kinds: Mapping[str, Any] = import_module("paracosm.studies.kinds").KINDS
    return kinds


def _command(verb: str) -> Any:
    commands: Mapping[str, Any] = {}
    if not _is_kind(verb):
        module = import_module(VERBS[verb])
        function = getattr(module, _function(verb))
        commands = getattr(module, "COMMANDS", {})
    else:
        function = import_module("paracosm.cli.verb_of_kind").verb_of(_kinds()[verb])
    app = typer.Typer(add_completion=False, context_settings=SETTINGS)
    app.command(verb, cls=commands.get(verb, Verb))(function)
    command: Any = typer.main.get_command(app)
    for flag in command.params:
        flag.rich_help_panel = _OF_RUNS.get(flag.name, flag.rich_help_panel or "Job")
        if set(flag.opts) & set((command.help or "").split()):
            flag.rich_help_panel = "Common"
    return command


def parameters_of(verb: str) -> dict[str, list[str]]:
    """Return the options of a verb by name, each with its flags, the negative one last."""
    return {str(flag.name): [*flag.opts, *flag.secondary_opts] for flag in _command(verb).params}


def _function(verb: str) -> str:
    last = verb.split()[-1]
    return f"{last}_" if iskeyword(last) or hasattr(builtins, last) else last


def _is_kind(verb: str) -> bool:
    return VERBS.get(verb, ".kind").endswith(".kind")


def _stand_in(verb: str) -> TyperCommand:
    """Return a command with only name and help: importing all modules takes a second."""
    file = Path(paracosm.__file__).parent.joinpath(*VERBS[verb].split(".")[1:]).with_suffix(".py")
    if _is_kind(verb):
        return TyperCommand(verb, help=constant_in(file, "help"))
    source = file.read_text(encoding="utf-8")
    begin = source.index(f"\ndef {_function(verb)}(")
    (function,) = ast.parse(source[begin : source.find("\n\n\n", begin)]).body
    assert isinstance(function, ast.FunctionDef)
    return TyperCommand(verb, help=ast.get_docstring(function))


@contextmanager
def _interrupt_aborts() -> Iterator[None]:
    """Say so where Ctrl-C ends a verb: Typer would say nothing."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Abort("interrupted") from None


class Program(TyperGroup):
    """The group of all verbs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        verbs: Any = dict.fromkeys(VERBS)  # each command is made when it is looked up
        self.commands = verbs
        self._lists = False

    def make_context(self, *args: Any, **extra: Any) -> Any:
        """Read the arguments before the verb."""
        with _interrupt_aborts():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Import and run a verb."""
        with _interrupt_aborts():
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a verb, or its stand-in while verbs are listed."""
        if cmd_name not in VERBS:
            return _command(cmd_name) if cmd_name in _kinds() else None
        return _stand_in(cmd_name) if self._lists else _command(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help with the list of all verbs."""
        verbs = [(verb, _stand_in(verb).get_short_help_str(200)) for verb in VERBS]
        options: list[Any] = self.get_params(ctx)
        flags = [(_written(option), option.help) for option in options]
        parts = (("Options", flags), ("Commands", verbs))
        entries = itertools.chain(*(_entries(*part) for part in parts))
        typer.echo("\n".join([*_beginning(self, ctx), *entries, "", *_filled(UNITS)]))

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete a verb without importing any."""
        self._lists = True
        completions = super().shell_complete(ctx, incomplete)
        self._lists = False
        return completions

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb that the arguments begin with, trying two words before one."""
        two = " ".join(args[:2])
        below = [verb for verb in VERBS if args and verb.startswith(f"{args[0]} ")]
        if two not in VERBS and below and args[0] not in VERBS:
            if args[1:2] and args[1] in SETTINGS["help_option_names"]:
                for verb in below:
                    typer.echo(f"paracosm {verb}: {_command(verb).get_short_help_str(200)}")
                ctx.exit()
            problem = (
                f'"{two}" is not a verb' if len(args) > 1 else f'"{two}" is an incomplete verb'
            )
            ctx.fail(f"{problem}: choose from {', '.join(below)}")
        return super().resolve_command(ctx, [two, *args[2:]] if two in VERBS else args)
