"""`paracosm doctor`: what is installed here, and what is missing for what."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from paracosm.backends import versions
from paracosm.cli.display import labelled, paragraph, printer, show_result
from paracosm.cli.options import Details, Json, Quiet
from paracosm.compiled_cache import CACHE
from paracosm.studies.run_folder import describe_environment

EXTRAS = {
    "torch": ("torch", "train, emulate, graph capture, profile ops"),
    "report": ("matplotlib", "images, pictures in notebooks"),
    "tune": ("optuna", "tune, relax tune"),
    "tensorboard": ("tensorboard", "--tensorboard"),
    "mlflow": ("mlflow", "--mlflow"),
    "dask": ("distributed", "--backend dask"),
    "metis": ("pymetis", "relax with METIS partitions"),
    "protobuf": ("google.protobuf", "graph import and export of Chakra, TensorFlow's binary files"),
    "onnx": ("onnx", "graph import of ONNX"),
    "tensorflow": ("tensorflow", "profile job --framework tensorflow"),
    "privacy": ("dp_accounting", "train --privacy"),
    "datasets": ("datasets", "train with data sets of Hugging Face"),
    "notebook": ("pandas", "to_pandas in Python"),
}
"""Extra -> a module that comes with it, and what needs it."""


def doctor(json: Json = False, details: Details = False, quiet: Quiet = False) -> int:
    """Show versions, cores, caches, and which optional packages are missing.

    Example: paracosm doctor
    """
    here = describe_environment()
    state: dict[str, Any] = {
        **versions(),
        "processor": f"{here['processor']}, {here['cores']} cores",
        "kernels": _kernels(),
        "missing": [name for name, (module, _) in EXTRAS.items() if not _is_installed(module)],
    }
    if _is_installed("torch"):
        import torch

        gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        state["gpus"] = ", ".join(gpus) or "none that torch sees"
    show_result(state, json, quiet, lambda: _show(state, details))
    return 0


def _kernels() -> str:
    if CACHE is None:
        return "no folder to keep them in can be written: every run compiles again"
    state = "" if os.access(CACHE, os.W_OK) else ": not writable, so new ones are not kept"
    return f"{len(list(CACHE.glob('*.kernel')))} compiled in {CACHE}{state}"


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is part of
        return False


SHOWN = ("paracosm", "python", "torch", "processor", "gpus")
"""What is printed without --details."""


def _show(state: dict[str, Any], details: bool) -> None:
    say, missing = printer(), state["missing"]
    known = {name: str(value) for name, value in state.items() if name != "missing"}
    shown = known if details else {name: known[name] for name in SHOWN if name in known}
    say(labelled(list(shown.items())))
    for name in missing:
        say(paragraph(f'missing for {EXTRAS[name][1]}: pip install "paracosm[{name}]"'))
    if not missing:
        say("Nothing is missing.")
    if not details:
        say("more: --details")
