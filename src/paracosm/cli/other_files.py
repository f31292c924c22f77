"""What stands in a study file's place on the command line, and what to type for it."""

from __future__ import annotations

from pathlib import Path

from paracosm.errors import InputError
from paracosm.units import is_unit

_FILES = (
    ((".mtx", ".mtx.gz", ".npz", ".npy", ".mat"), "a matrix", "relax --matrix {}"),
    ((".py",), "a script", "emulate --world-size 8 --bandwidth 10Gbit/s {}"),
    ((".graph",), "a graph", "predict --graph {} --hardware h100-sxm"),
    ((".db",), "a profile database", "predict --model resnet50 --db {}"),
    ((".profile",), "a job profile", "predict {} --workers 1..16 --bandwidth 10Gbit/s"),
    ((".json", ".json.gz"), "no YAML", "replay {}, if it is a trace of torch.profiler"),
    ((".onnx", ".et", ".pb"), "a graph of another program", "graph import {} --out job.graph"),
    ((".parquet",), "a table", "train --schedule {}, if it is a schedule"),
)
"""Ends of names, what such files are, and the command that takes them."""


def way_out(word: Path, verb: str) -> InputError | None:
    """Return the error that says which command or flag of a verb takes what is no study file; None
    where that is not known.
    """
    for ends, what, command in _FILES:
        if what == "a job profile" and verb in ("predict", "plan"):
            if word.name.endswith(ends) and not word.exists():
                return InputError(f"{word}: no such file: paracosm profile job writes job profiles")
            continue  # which read them: their own error says what is wrong
        if word.name.lower().endswith(ends):
            if what == "a matrix" and verb == "relax tune":
                command = (
                    'relax tune --matrix {} --fault "uniform(-100, 100) every 1000s" '
                    '--checkpoint "cost=1s" --tune "alpha=1.05..20"'
                )
            if what == "a script" and verb == "plan":
                command = "plan --script {} --hardware h100-sxm --workers 8,16"
            return _error(word, what, command)
    if (word / "study.yaml").is_file():
        return _error(word, "a run folder", f"{verb} {{}}/study.yaml runs it again, report {{}}")
    if word.exists():
        return None
    if str(word).startswith("laplace"):
        return _error(word, "a problem", "relax --problem {}")
    if is_unit(str(word)):
        return InputError(
            f'"{word}" stands alone: write a quantity without a blank, such as 1{word}, or in '
            "quotes"
        )
    error = _of_a_name(word, verb)
    if error is None and not word.suffix:
        return InputError(
            f'no study file at "{word}": a value of several words is in quotes, and flags begin '
            "with --"
        )
    return error


def refuse_no_script(word: str) -> None:
    """Raise InputError for a file that stands in the place of a script, and is something else."""
    for ends, what, command in _FILES:
        if what not in ("a script", "no YAML") and word.lower().endswith(ends):
            raise InputError(f"{word} is {what}, and no script: paracosm {command.format(word)}")


def _of_a_name(word: Path, verb: str) -> InputError | None:
    from paracosm.cluster.hardware.catalogue import hardware_names
    from paracosm.graphs.transformer.architecture import ARCHITECTURES
    from paracosm.models.registry import MODELS

    if verb in ("train", "predict", "plan") and str(word) in {*MODELS, *ARCHITECTURES}:
        return _error(word, "a model", f"{verb} --model {{}}")
    if str(word) in hardware_names():
        return _error(word, "hardware", f"{verb} --hardware {{}}, or hardware show {{}}")
    return None


def _error(word: Path, what: str, command: str) -> InputError:
    return InputError(
        f"{word} is {what}, and no study file: paracosm {command.replace('{}', str(word))}"
    )
