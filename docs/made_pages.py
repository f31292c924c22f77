"""Write pages that are made from something else: the reference, and guides beside examples."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from sphinx.application import Sphinx

PACKAGES = (
    *("paracosm", "paracosm.engine", "paracosm.cluster", "paracosm.timing", "paracosm.timeline"),
    *("paracosm.results", "paracosm.models", "paracosm.graphs", "paracosm.jobs"),
    *("paracosm.simulation", "paracosm.faults", "paracosm.profiling", "paracosm.prediction"),
    *("paracosm.training", "paracosm.relaxation", "paracosm.studies"),
    "paracosm.report",
)
PAGES = {  # files of the repository that are pages of the site, too
    "CHANGELOG.md": "changes",
    "examples/time_to_accuracy/README.md": "measured-trainings",
    "examples/time_to_accuracy/intervals.md": "measured-intervals",
    "examples/papers/neuronabox/README.md": "paper-emulation",
    "examples/papers/throughput_prediction/README.md": "paper-throughput-prediction",
    "examples/papers/throughput_prediction/tables.md": "paper-throughput-tables",
}

SYMBOLS = """theta are the parameters when the update is applied, theta_i those that worker i holds,
and theta_read_i those that it has read; g_i is a minibatch gradient, eta the learning rate, tau the
staleness (the number of updates between the read and the worker's own update), W the number of
workers. Where a formula says theta minus eta g, the step of `--optimizer`, such as momentum, takes
its place unless the formula says otherwise. [The list](../algorithms.md) has parameters,
topologies and schedules."""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its name, `db merge` after `db`."""
    from paracosm.cli.app import app

    def walk(command: Any, name: str) -> Iterator[tuple[str, Any]]:
        context = typer.Context(command)
        if hasattr(command, "list_commands"):
            for each in command.list_commands(context):
                yield from walk(command.get_command(context, each), f"{name} {each}".strip())
        else:
            yield name, command

    return walk(typer.main.get_command(app), "")


def command_page(name: str, command: Any) -> str:
    lines = [f"# paracosm {name}", "", prose(command.help or ""), ""]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join(f"[{(p.metavar or p.name).upper().strip('[]')}]" for p in arguments)
    lines += ["```text", f"paracosm {name} [OPTIONS] {usage}".rstrip(), "```", ""]
    panels: dict[str, list[Any]] = {}
    for parameter in command.params:
        if parameter.name != "help" and not getattr(parameter, "hidden", False):
            kind = "Arguments" if parameter in arguments else "Options"
            panel = getattr(parameter, "rich_help_panel", None) or kind
            panels.setdefault(panel, []).append(parameter)
    for panel, parameters in panels.items():
        lines += [f"## {panel}", ""]
        for parameter in parameters:
            flags = ", ".join([*parameter.opts, *parameter.secondary_opts])
            title = (parameter.metavar or parameter.name) if parameter in arguments else flags
            lines += [f"`{title}`", f": {prose(parameter.help or '')}", ""]
    return "\n".join(lines)


def prose(text: str) -> str:
    """Return a help text as Markdown on one line a paragraph: no accidental markup."""
    return "\n\n".join(map(paragraph, text.replace("\\[", "[").split("\n\n")))


def paragraph(text: str) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    if text.startswith("Example: "):
        return f"```text\n{text.removeprefix('Example: ')}\n```"
    return re.sub(r"([*_<>\[\]|$])", r"\\\1", text)


def package_page(name: str) -> str:
    package = importlib.import_module(name)
    lines = [f"# {name}", "", "```{eval-rst}", f".. automodule:: {name}", "   :no-members:", ""]
    lines += [f".. currentmodule:: {name}", ""]
    for each in package.__all__:
        value = getattr(package, each)
        if isinstance(value, type):
            lines += [f".. autoclass:: {each}", "   :members:"]
            if fields := getattr(value, "_fields", ()):  # of a named tuple: its docstring has them
                lines += [f"   :exclude-members: {', '.join(fields)}"]
            lines += [""]
        elif callable(value):
            lines += [f".. autofunction:: {each}", ""]
        else:
            lines += [f".. py:data:: {each}", f"   :type: {type(value).__name__}", ""]
    return "\n".join([*lines, "```", ""])


def algorithms_page() -> str:
    """Return what every algorithm of training does, by the docstrings of their classes."""
    from paracosm.training.algorithms.registry import ALGORITHMS

    lines = ["# Training algorithms", "", SYMBOLS, ""]
    for name, kind in ALGORITHMS.items():
        text = inspect.cleandoc(kind.__doc__ or "")
        lines += [f"## {name}", "", "```text", text, "```", ""]
    return "\n".join(lines)


def write_pages(app: Sphinx) -> None:
    folder = Path(app.srcdir) / "reference"
    pages = {f"cli/{name.replace(' ', '-')}": command_page(name, c) for name, c in commands()}
    pages |= {f"api/{name}": package_page(name) for name in PACKAGES}
    pages["algorithms"] = algorithms_page()
    for kind, title in (("cli", "Command line"), ("api", "Python")):
        names = [page for page in pages if page.startswith(f"{kind}/")]
        pages[kind] = "\n".join([f"# {title}", "", "```{toctree}", *names, "```", ""])
    root = Path(app.srcdir).parent
    written = {folder / f"{page}.md": text for page, text in pages.items()}
    for source, page in PAGES.items():
        written[Path(app.srcdir) / f"{page}.md"] = moved(source, (root / source).read_text())
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:  # an unchanged page is not built again
            path.write_text(text)


def link_pages(app: Sphinx, name: str, source: list[str]) -> None:
    """Point links to files of the repository that are pages here at those pages."""
    for path, page in PAGES.items():
        source[0] = source[0].replace(f"](../{path}", f"]({page}.md")


def moved(path: str, text: str) -> str:
    """Return the text of a Markdown file with its relative links as seen from `docs/`."""

    def link(found: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(path), found[1]))
        return f"]({os.path.relpath(target, 'docs')}{found[2] or ''})"

    return re.sub(r"\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)", link, text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_pages)
    app.connect("source-read", link_pages)
    return {"parallel_read_safe": True}
