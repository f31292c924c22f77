"""`paracosm doctor`: what is installed here, and what is missing for what."""

from __future__ import annotations

import os
import platform
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import paracosm
from paracosm.backends import versions
from paracosm.cli.display import aligned, printer, show_result
from paracosm.cli.options import Json, Quiet

EXTRAS = {
    "torch": ("torch", "train, emulate, graph capture, profile ops"),
    "tune": ("optuna", "tune"),
    "dask": ("distributed", "--backend dask"),
    "ray": ("ray", "--backend ray"),
    "metis": ("pymetis", "relax --pattern metis"),
    "chakra": ("google.protobuf", "graph export and import of Chakra"),
    "privacy": ("dp_accounting", "train --privacy"),
}
"""Extra -> a module that comes with it, and what needs it."""


def doctor(json: Json = False, quiet: Quiet = False) -> int:
    """Show versions, cores, caches, and which optional packages are missing.

    Example: paracosm doctor
    """
    found = _found()
    show_result(found, json, quiet, lambda: _show(found))
    return 0


def _found() -> dict[str, Any]:
    folder = Path(paracosm.__file__).parent
    return {
        "versions": versions(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "platform": platform.platform(),
        "torch": _torch(),
        "kernels": {
            "folder": os.environ.get("NUMBA_CACHE_DIR") or str(folder),
            "compiled": len(list(folder.rglob("*.nbi"))),
            "writable": os.access(os.environ.get("NUMBA_CACHE_DIR") or folder, os.W_OK),
        },
        "missing": [name for name, (module, _) in EXTRAS.items() if not _is_there(module)],
    }


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is part of
        return False


def _torch() -> dict[str, Any] | None:
    if not _is_there("torch"):
        return None
    torch = import_module("torch")
    return {
        "build": torch.__version__,
        "threads": torch.get_num_threads(),
        "gpus": [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())],
    }


def _show(found: dict[str, Any]) -> None:
    say = printer()
    kernels, torch = found["kernels"], found["torch"]
    rows = [("", ""), *found["versions"].items(), ("platform", found["platform"])]
    rows.append(("cores", str(found["cores"] or "unknown")))
    if torch is not None:
        gpus = ", ".join(torch["gpus"]) or "no GPU"
        rows.append(("torch", f"{torch['build']}, {torch['threads']} threads, {gpus}"))
    state = "" if kernels["writable"] else ": not writable, so every run compiles again"
    rows.append(("kernels", f"{kernels['compiled']} compiled in {kernels['folder']}{state}"))
    say(aligned(rows))
    for name in found["missing"]:
        say(f'missing for {EXTRAS[name][1]}: pip install "paracosm[{name}]"')
    if not found["missing"]:
        say("Nothing is missing.")
