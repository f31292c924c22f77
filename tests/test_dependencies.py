"""What is installed is what is imported, and is pinned, with hashes."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from paracosm.cli.doctor import EXTRAS
from source_code import parse

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

MODULES = {
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
    "protobuf": "google",
    "tensorflow-cpu": "tensorflow",
    "dp-accounting": "dp_accounting",
}
"""Distribution -> the module that it brings, where that has another name."""

TOOLS = {
    "ipykernel",
    "mypy",
    "ruff",
    "pytest-timeout",
    "pytest-xdist",
    "types-pyyaml",
    "types-protobuf",
}
"""Of developers, run and not imported."""

FOUND_ELSEWHERE = {"jax"}
"""Imported by what runs where a user has brought it."""

UNHASHED = {"torch"}
"""Whose wheels differ between registries."""


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=;~! ]", requirement, maxsplit=1)[0].lower()


def modules_of(requirements: list[str]) -> set[str]:
    names = {name_of(requirement) for requirement in requirements} - {"paracosm"}
    return {MODULES.get(name, name) for name in names}


NAMED = re.compile(
    r"""(?:^\s*import\s+|^\s*from\s+(?=[\w.]+\s+import\b)|\b(?:require|check_installed)\(\s*["'])(\w+)""",
    re.MULTILINE,
)
"""What may be a module that is imported or required: parsing a file tells."""


def imported(*folders: str) -> set[str]:
    """Return the first part of every module that the code in folders imports, or requires."""
    found = set[str]()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            # Most files have nothing new; to see that takes a hundredth of the time to parse them.
            if not set(NAMED.findall(text)) <= found | sys.stdlib_module_names:
                found |= {module.partition(".")[0] for module in _imports(parse(path))}
    return found


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case ast.Call(
                func=ast.Name(id="require" | "check_installed") | ast.Attribute(attr="require"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module


def test_what_is_declared_is_imported_and_what_is_imported_declared() -> None:
    extras = PROJECT["optional-dependencies"]
    own = modules_of(
        [
            *PROJECT["dependencies"],
            *(each for name in extras if name not in ("dev", "docs") for each in extras[name]),
        ]
    )
    found = imported("src") - set(sys.stdlib_module_names) - {"paracosm"} - FOUND_ELSEWHERE
    assert found == own


def test_what_developers_install_is_imported_or_run() -> None:
    wanted = modules_of(PROJECT["optional-dependencies"]["dev"]) - TOOLS
    assert wanted <= imported("tests", "benchmarks")


def test_the_doctor_knows_every_extra() -> None:
    former_or_ours = {"chakra", "dev", "docs"}
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"]) - former_or_ours


def pins(file: str) -> dict[str, str]:
    text = (ROOT / file).read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;\\]+)", text, re.MULTILINE))


def test_every_version_is_pinned_and_but_for_pytorch_has_hashes() -> None:
    versions, locked = pins("constraints.txt"), pins("requirements.lock")
    docs = {name_of(each) for each in PROJECT["optional-dependencies"]["docs"]}
    assert locked == {
        name: version for name, version in versions.items() if name not in UNHASHED | docs
    }
    text = (ROOT / "requirements.lock").read_text()
    for entry in re.split(r"\n(?=[a-z])", text):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    declared = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]]
    assert {name_of(each) for each in declared} - {"paracosm"} <= versions.keys()


def test_no_file_names_a_registry() -> None:
    for file in ("constraints.txt", "requirements.lock", "Makefile", "pyproject.toml"):
        assert not re.search(r"index-url|find-links|file:///|/simple\b", (ROOT / file).read_text())
