"""The code against the table of rooms in docs/architecture.md: who may import whom."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import networkx as nx

import paracosm
from paracosm.compiled_cache import ROOMS
from source_code import parse, parsed

PACKAGE = Path(paracosm.__file__).parent

GROUND: dict[str, set[str]] = {
    "addresses": set(),
    "configuration": set(),
    "errors": set(),
    "machine": set(),
    "units": set(),
    "expression": set(),
    "factory": {"files"},
    "validation": {"files", "units"},
    "compiled": {"compiled_cache", "compiled_parts", "compiled_references"},
    "compiled_cache": {"compiled_parts", "user_cache"},
    "compiled_parts": set(),
    "compiled_references": set(),
    "user_cache": set(),
    "columns": set(),
    "files": set(),
    "file_kinds": set(),
    "tables": {"columns", "file_kinds", "files"},
    "data_files": {"files", "units"},
    "processes": set(),
    "parcels": {"files", "factory"},
    "backends": {"files", "parcels", "processes", "version"},
    "arrays": set(),
    "exports": set(),
    "rng": {"units"},
    "quantities": {"units"},
    "price": {"units"},
    "version": set(),
}
"""Modules that every room may import, and which of each other they do."""
FLOOR_1 = {"cluster", "timing", "timeline", "results"}
FLOOR_2 = {"network", "simulation", "jobs", "engine", "models", "graphs", "faults"}
FLOOR_3 = {"profiling", "prediction", "replays", "training", "relaxation", "emulation"}
BELOW_STUDY = FLOOR_1 | FLOOR_2 | FLOOR_3
MAY_IMPORT: dict[str, set[str]] = {
    "cluster": set(),
    "timing": set(),
    "timeline": set(),
    "results": {"timeline"},
    "network": {"cluster", "timing"},
    "engine": {"network", "cluster", "timing", "timeline"},
    "models": set(),
    "graphs": {"models", "cluster", "timeline"},
    "jobs": {"graphs", "network", "cluster", "timing"},
    "simulation": {"jobs", "graphs", "network", "cluster", "timing", "timeline"},
    "faults": {"timing"},
    "profiling": {"graphs", "models", "simulation", "timing", "timeline", "cluster"},
    "prediction": {
        *("profiling", "simulation", "jobs", "graphs", "models", "network"),
        *("cluster", "timing", "timeline", "results"),
    },
    "replays": {"timeline", "jobs", "simulation", "network", "cluster", "results"},
    "training": {
        *("engine", "simulation", "models", "network", "faults"),
        *("cluster", "timing", "timeline", "results"),
    },
    "relaxation": {"network", "cluster", "timing", "timeline", "results", "faults"},
    # A script is a job like any other: `emulation/device` plays it as one.
    "emulation": {
        "network",
        "cluster",
        "timing",
        "timeline",
        "results",
        "graphs",
        "profiling",
        "jobs",
        "simulation",
    },
    "autoload": {"emulation", "cli"},
    "planning": BELOW_STUDY,
    "studies": BELOW_STUDY | {"planning"},
    "report": {"studies", "results", "timeline", "cluster"},
    "__main__": {"cli", "profiling"},
    "result": {"studies", "report", "results", "timeline"},
    "api": BELOW_STUDY | {"planning", "studies", "report", "result"},
    "cli": BELOW_STUDY | {"planning", "studies", "report", "api", "result"},
}


def room_of(module: str) -> str:
    """`paracosm.engine.ports` lives in `engine`; the package's own `__init__` in no room."""
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> set[str]:
    """Return the rooms that the file imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
            if node.module == "paracosm":
                names = [f"paracosm.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {room_of(name) for name in names if name.split(".")[0] == "paracosm"}
    return found - {""}


def rooms_and_files() -> list[tuple[str, Path]]:
    files = sorted(PACKAGE.rglob("*.py"))
    return [(path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path) for path in files]


def _allowed(room: str) -> set[str]:
    return GROUND[room] if room in GROUND else MAY_IMPORT[room] | GROUND.keys()


def test_every_import_is_allowed_by_the_table() -> None:
    forbidden = [
        f"{path.relative_to(PACKAGE)} imports {other}"
        for room, path in rooms_and_files()
        if room != "__init__"
        for other in sorted(imports(path) - _allowed(room) - {room, "errors"})
    ]
    assert forbidden == []


def test_the_table_knows_every_room() -> None:
    known = MAY_IMPORT.keys() | GROUND.keys()
    assert {room for room, _ in rooms_and_files()} - {"__init__"} <= known


def _file_imports(path: Path, modules: set[str]) -> set[str]:
    """Return the modules of the package that the file imports anywhere, for types too."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & modules) or {node.module}
    return found & modules


def test_no_files_import_each_other_in_a_circle() -> None:
    files = {
        ".".join(("paracosm", *path.relative_to(PACKAGE).with_suffix("").parts)): path
        for _, path in rooms_and_files()
    }
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph = nx.DiGraph(
        (name, other) for name, path in files.items() for other in _file_imports(path, set(files))
    )
    circles = [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]
    assert circles == []


def test_rooms_hand_out_names_and_hold_no_code() -> None:
    for path in PACKAGE.rglob("*/__init__.py"):
        for node in parsed(path).body:
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            targets = [ast.unparse(target) for target in getattr(node, "targets", ())]
            is_names = targets in (["__all__"], ["__getattr__"])
            is_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            assert is_docstring or is_names or is_types or isinstance(node, ast.ImportFrom), path


def test_rooms_hand_out_the_names_that_they_list() -> None:
    for room in sorted({room for room, path in rooms_and_files() if path.parent != PACKAGE}):
        package = importlib.import_module(f"paracosm.{room}")
        for name in getattr(package, "__all__", ()):
            thing = getattr(package, name)
            assert not inspect.ismodule(thing), f"{room}.{name} is a module of the same name"


def loaded_by(statement: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after `statement`."""
    program = f"import sys; {statement}; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return set(done.stdout.split())


HEAVY = {"torch", "sklearn", "matplotlib", "plotly", "pyarrow", "google", "tensorflow", "jax"}


def test_importing_paracosm_loads_nothing_heavy() -> None:
    assert not loaded_by("import paracosm") & (HEAVY | {"numpy", "scipy", "pydantic"})


def test_importing_the_rooms_loads_nothing_heavy() -> None:
    rooms = sorted({room for room, path in rooms_and_files() if path.parent != PACKAGE})
    loaded = loaded_by("; ".join(f"import paracosm.{room}" for room in rooms))
    assert not loaded & (HEAVY | {"numba"})


def test_examples_and_benchmarks_import_names_that_exist() -> None:
    """They are not type-checked: what moves in the package would break them unseen."""
    missing = []
    for folder in ("examples", "benchmarks"):
        for path in sorted((PACKAGE.parents[1] / folder).rglob("*.py")):
            for node in ast.walk(parse(path)):
                name = node.module if isinstance(node, ast.ImportFrom) else None
                if name is None or name.split(".")[0] != "paracosm":
                    continue
                known = names_of(module_file(name))
                missing += [
                    f"{path.name}:{node.lineno}: {name}.{alias.name}"
                    for alias in node.names
                    if alias.name not in known and not module_file(f"{name}.{alias.name}").exists()
                ]
    assert missing == []


def module_file(name: str) -> Path:
    """Return where a module of the package is, be it a file or a folder."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def names_of(path: Path) -> set[str]:
    """Return what a module defines, imports and hands out at its top level."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)) if path.exists() else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)  # handed out lazily, by name
    return names


def test_kernels_are_in_the_rooms_that_choose_their_cache() -> None:
    users = [
        source.relative_to(PACKAGE).as_posix()
        for source in PACKAGE.rglob("*.py")
        if "from paracosm.compiled import" in source.read_text()
    ]
    assert len(users) > 20
    assert [user for user in users if not user.startswith(ROOMS)] == []


def test_no_room_hides_a_function_of_the_package() -> None:
    """Importing `paracosm.x` sets the attribute x of the package, whatever was there."""
    rooms = {room for room, _ in rooms_and_files()}
    assert not rooms & set(paracosm.__all__)
