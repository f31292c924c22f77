"""A fuzzer of the command line: sound commands, each with one thing made unsound.

Each case runs in a forked child with limits of memory and time. A case may run, or be refused in
one line; it may not show a traceback, a defect or a line without end, crash, go on for ever, count
what is no number among its results, or leave files or processes behind.

    python tests/robust/fuzz.py --cases 6000 --seed 1
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import child
from child import Outcome
from damage import TEXTS, damaged, replacement
from sound import sound_files
from sound_commands import COMMANDS, LONG, QUICK, WAITING, Command


@dataclass(frozen=True)
class Case:
    """A command, in words, and what in it was made unsound."""

    arguments: tuple[str, ...]
    what: str
    waits: bool = False


WRITTEN = (
    ("train {}", "paracosm.training.config:TrainConfig",
     {"train": {"timing_only": True, "updates": 20, "workers": 2}}),
    ("train {}", "paracosm.planning.train_config:ProfileTrainConfig",
     {"train": {"profile": "job.profile", "updates": 9, "workers": 2, "lookahead": "off"}}),
    ("relax {}", "paracosm.relaxation.config:RelaxConfig",
     {"relax": {"problem": "laplace2d:4", "processors": 2, "time": "1ms"}}),
    ("predict {}", "paracosm.prediction.config:PredictConfig",
     {"predict": {"model": "llama-8b", "batch": 1, "hardware": "h100-sxm", "workers": 8,
                  "strategy": "ddp"}}),
    ("predict {}", "paracosm.prediction.parameter_servers.config:ThroughputConfig",
     {"predict": {"profile": "job.profile", "workers": [1, 2], "bandwidth": "1Gbit/s"}}),
    ("plan {}", "paracosm.planning.strategy_plan:StrategyPlanConfig",
     {"plan": {"model": "llama-8b", "hardware": "h100-sxm", "tokens": 1e9, "batch_tokens": 4e6,
              "max_workers": 8}}),
    ("emulate {}", "paracosm.emulation.config:EmulateConfig",
     {"emulate": {"measured": "emulated", "world_size": 8, "bandwidth": "1Gbit/s"}}),
    ("train --timing-only --updates 9 --cluster {}", "paracosm.cluster.file:_File",
     {"topology": "hierarchical", "workers": {"count": 4}, "group_size": 2, "cards": 2,
      "links": {"default": {"bandwidth": "1GB/s"}, "between_groups": {"bandwidth": "1Gbit/s"}}}),
    ("predict job.profile --bandwidth 1Gbit/s --workers 2 --node {}",
     "paracosm.profiling.nodes.calibration:_File", {"bandwidth_out": "1Gbit/s", "duplex": 1.5}),
    ("hardware show {}", "paracosm.cluster.hardware.catalogue:Catalogue",
     {"devices": {"mine": {"title": "Mine", "source": "here", "peak_tflops": {"float32": 10},
                           "memory": "16GiB", "memory_bandwidth": "500GB/s"}}}),
)  # fmt: skip
"""Commands that read YAML, the model of what they read, and a sound file of it."""


def cases(
    files: dict[str, Path], folder: Path, number: int, seed: int, long: bool
) -> Iterator[Case]:
    """Return commands, each with a flag, an argument, a file or a field made unsound.

    Every flag of every verb has its turn before one has a second.

    Args:
        files: sound ones, by the names that commands have for them.
        folder: for the files of each case, which has one of its own there, named by its number.
        long: with commands that take seconds.
    """
    from paracosm.cli.verbs import VERBS, parameters_of

    chosen = random.Random(seed)
    everything = [each for each in COMMANDS if long or each.text in QUICK]
    common = [each for each in everything if each.text in QUICK]
    flags = {verb: [flag for flags in parameters_of(verb).values() for flag in flags
                    if flag.startswith("--")] for verb in VERBS}  # fmt: skip
    turns: list[tuple[Command, str]] = []
    known = sorted({word for each in COMMANDS for word in each.words if not word.startswith("-")})
    for index in range(number):
        place = folder / str(index)
        place.mkdir()
        kind = chosen.random()
        if kind < 0.2:
            yield _with_field(*chosen.choice(WRITTEN), files, place, chosen)
            continue
        if kind < 0.6:
            if not turns:
                turns = [(each, flag) for each in everything for flag in flags[each.verb(VERBS)]]
                chosen.shuffle(turns)
            command, flag = turns.pop()
        else:
            # Those that take seconds have fewer turns.
            command = chosen.choice(everything if chosen.random() < 0.2 else common)
            flag = ""
        places = {**files, "out": place}
        named = [word for word in files if f"{{{word}}}" in command.text]
        if not flag and named and chosen.random() < 0.7:
            name = chosen.choice(named)
            places[name], what = damaged(files[name], place, chosen)
            words = [word.format(**places) for word in command.words]
        else:
            words = [word.format(**places) for word in command.words]
            pool = [*TEXTS, *known, *(str(path) for path in files.values())]
            what = _change(words, flag, len(command.verb(VERBS).split()), pool, chosen)
        yield Case(tuple(words), what, command.text in WAITING)


def _change(
    words: list[str], flag: str, begin: int, pool: Sequence[str], chosen: random.Random
) -> str:
    value = chosen.choice(pool)
    if flag:
        if chosen.random() < 0.15:
            words.append(flag)
            return flag
        if flag in words:
            words[words.index(flag) + 1 : words.index(flag) + 2] = [value]
        else:
            words += [flag, value]
        return f"{flag} {value[:60]!r}"
    at = chosen.randrange(begin, len(words) + 1)
    if chosen.random() < 0.7 and at < len(words):
        words[at] = value
        return f"word {at}: {value[:60]!r}"
    del words[at : at + 1]
    return f"without word {at}"


def _with_field(
    command: str,
    model: str,
    sound: Mapping[str, Any],
    files: Mapping[str, Path],
    place: Path,
    chosen: random.Random,
) -> Case:
    """Return a command on a file one of whose fields, known or not, is unsound."""
    import yaml

    content = json.loads(json.dumps(sound))
    module, _, name = model.partition(":")
    kind = getattr(importlib.import_module(module), name)
    inner = content.get(command.split()[0], content)
    what = _set_field(inner, kind, chosen)
    file = place / "written.yaml"
    file.write_text(yaml.safe_dump(content, allow_unicode=True))
    for name in ("job", "emulated"):
        (place / files[name].name).symlink_to(files[name])
    return Case(tuple(command.format(file).split()), f"{sound} with {what}")


def _set_field(content: dict[str, Any], model: Any, chosen: random.Random) -> str:
    """Set one field of a model, or of one in it, to anything; return which."""
    name = chosen.choice([*model.model_fields, "unknown"])
    models = _models_in(model.model_fields[name].annotation) if name != "unknown" else []
    if models and chosen.random() < 0.7:
        inner = content.get(name)
        while isinstance(inner, list | dict) and inner and not _is_of(inner, models[0]):
            inner = chosen.choice([*(inner.values() if isinstance(inner, dict) else inner)])
        if not isinstance(inner, dict):
            inner = {}
            content[name] = chosen.choice((inner, [inner], {"a": inner}))
        return f"{name}.{_set_field(inner, models[0], chosen)}"
    content[name] = replacement(chosen)
    return f"{name} = {str(content[name])[:60]}"


def _is_of(content: Any, model: Any) -> bool:
    return isinstance(content, dict) and bool(content.keys() & model.model_fields.keys())


def _models_in(annotation: Any) -> list[Any]:
    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


def prepared(folder: Path, long: bool) -> dict[str, Path]:
    """Write sound files, and import here what commands import, once for all children."""
    sound = folder / "sound"
    sound.mkdir()
    os.environ["XDG_CONFIG_HOME"] = str(folder / "config")  # not the user's
    files = sound_files(sound)
    os.environ["XDG_CONFIG_HOME"] = str(sound)  # `hardware add` writes there
    import torch

    torch.set_num_threads(1)  # a pool of threads would not survive a fork
    for command in (*QUICK[::4], *(LONG[2:4] if long else ())):
        child.run_here([word.format(**files, out=sound) for word in Command(command).words])
    return files


def fuzz(number: int, seed: int, folder: Path, long: bool = True) -> Iterator[tuple[Case, Outcome]]:
    """Run cases one after the other."""
    files = prepared(folder, long)
    for index, case in enumerate(cases(files, folder, number, seed, long)):
        yield case, child.run(case.arguments, folder / str(index), case.waits)
        shutil.rmtree(folder / str(index), ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="only commands of less than a second")
    wanted = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for case, outcome in fuzz(wanted.cases, wanted.seed, Path(folder), not wanted.quick):
            counts[outcome.kind] += 1
            if outcome.is_bad:
                shown = " ".join(word[:60] for word in case.arguments)
                print(
                    f"{outcome.kind}: {shown}\n  ({case.what})\n  {outcome.said[-1500:]}",
                    flush=True,
                )
    print(dict(counts))
    return int(any(Outcome(kind, "").is_bad for kind in counts))


if __name__ == "__main__":
    sys.exit(main())
