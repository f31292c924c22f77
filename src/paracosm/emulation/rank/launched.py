"""A real rank that the user's own launch command started, configured by its environment."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from paracosm.emulation.check import check_emulation
from paracosm.emulation.config import EmulateConfig, Setting, whole_number
from paracosm.errors import InputError, unknown
from paracosm.files import find_temporary, replacing, temporary_folder
from paracosm.units import WIDEST, parse_whole
from paracosm.validation import validated

_PREFIX = "PARACOSM_"
# What the launch line itself says, what takes several runs, and what the benchmarks read.
_NOT_FIELDS = {"script", "arguments", "output", "delays"}
_NOT_OURS = {"PARACOSM_DATA", "PARACOSM_SERVED", "PARACOSM_CUDA_DRIVER"}

Finish = Callable[[Setting, Path, Path | None, int], None]


@dataclass(frozen=True)
class Launch:
    config: EmulateConfig
    seed: int
    out: Path | None


def become_rank(finish: Finish) -> None:
    """Make this process the real rank that its environment describes.

    Its identity (RANK, WORLD_SIZE and so on) is changed to that rank's. Invalid settings are
    reported in one line, with exit code 2.
    """
    try:
        launch = launch_from(os.environ, sys.argv[0] if sys.argv else "")
        if launch.config.takes_turns:
            raise InputError(
                "PARACOSM_KINDS, PARACOSM_RANK: this process is one rank: paracosm emulate runs "
                "several, one after the other"
            )
        kept = contextlib.ExitStack()
        rank, folder = launch.config.rank[0], kept.enter_context(temporary_folder())
        setting = Setting(launch.config, launch.seed, rank, folder / f"rank{rank}.records")
        os.environ.update({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"} | os.environ)
        os.environ.update(setting.environment())
        _finish_at_end(finish, setting, launch.out, kept)
        from paracosm.emulation.rank.prepare import prepare

        prepare(setting)
    except InputError as error:
        _print_error(error)
        sys.exit(2)


@contextlib.contextmanager
def served(config: EmulateConfig, seed: int) -> Iterator[Path]:
    """Make the folder for the records of an emulator on `config.port` and of its real ranks."""
    with temporary_folder() as folder:
        setting = Setting(config, seed, -1, folder / "emulator.records")
        with replacing(folder / _setting_file(str(config.port))) as unfinished:
            unfinished.write_text(setting.as_json())
        yield folder


_PATIENCE = 30.0  # seconds for which a rank waits for the emulator


def _setting_file(port: str) -> str:
    return f"serve-{port}.json"


def become_served_rank(port: str) -> None:
    """Make this process record what it does, as a real rank of the emulator on a port."""
    try:
        _check_served(port, os.environ)
    except InputError as error:
        _print_error(error)
        sys.exit(2)
    until = time.monotonic() + _PATIENCE
    while (file := find_temporary(_setting_file(port))) is None and time.monotonic() < until:
        time.sleep(0.05)  # ranks may be started first
    try:
        if file is None:
            raise FileNotFoundError
        setting, folder = Setting.from_json(file.read_text()), file.parent
        rank = int(os.environ["RANK"])
        if rank not in setting.config.rank:
            real = ", ".join(map(str, setting.config.rank))
            raise InputError(f"RANK: {rank} is emulated: start {real} instead")
        setting = replace(setting, rank=rank, records=folder / f"rank{rank}.records")
        os.environ.update(setting.environment())
        from paracosm.emulation.rank.prepare import prepare

        prepare(setting)
    except (OSError, ValueError):
        _print_error(
            InputError(f"PARACOSM_SERVED: no paracosm emulate serve --port {port} runs here")
        )
        sys.exit(2)
    except InputError as error:
        _print_error(error)
        sys.exit(2)


def _check_served(port: str, environment: Mapping[str, str]) -> None:
    """Check what the lines that `emulate serve` prints set, of which a user may leave some out."""
    whole_number("PARACOSM_SERVED", port, _PORTS)
    whole_number("RANK", environment.get("RANK"))
    _check_first_start(environment)
    if not environment.get("MASTER_ADDR"):
        raise InputError(
            "MASTER_ADDR: not set, beside PARACOSM_SERVED: the address of rank 0's store, as in "
            "the lines that paracosm emulate serve prints"
        )
    whole_number("MASTER_PORT", environment.get("MASTER_PORT"), _PORTS)


_PORTS = 65_535


def _check_first_start(environment: Mapping[str, str]) -> None:
    """Refuse a restart by torchrun, in which all ranks of a job start again."""
    restarts = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    if restarts != "0":
        raise InputError(
            f"TORCHELASTIC_RESTART_COUNT: torchrun starts this rank again (restart {restarts}), "
            "but emulated ranks do not restart: use --max-restarts=0, and see the error with which "
            "the first start ended"
        )


def launch_from(environment: Mapping[str, str], script: str) -> Launch:
    """Return what an environment configures.

    Every field of `EmulateConfig` may be given as PARACOSM_<FIELD>, with several what-ifs separated
    by ";". PARACOSM_SEED and PARACOSM_OUT correspond to the flags of the command line.
    """
    fields = {
        f"{_PREFIX}{name.upper()}": name
        for name in (*EmulateConfig.model_fields, *EmulateConfig.SYNONYMS)
        if name not in _NOT_FIELDS
    }
    given: dict[str, Any] = {}
    for variable, value in environment.items():
        if variable in fields:
            given[fields[variable]] = value
        elif variable.startswith(_PREFIX) and variable not in _OURS | _NOT_OURS:
            raise unknown("variable", variable, [*fields, *sorted(_OURS)])
    if given.get("mode", "backend") != "backend":
        raise InputError(
            "PARACOSM_MODE: a launch command of your own runs in mode backend; for mode wire, also "
            "start paracosm emulate serve"
        )
    if environment.get("WORLD_SIZE", "1") != "1":
        raise InputError(
            f"PARACOSM_WORLD_SIZE: one process is the real rank, not {environment['WORLD_SIZE']}: "
            "torchrun --nproc-per-node=1"
        )
    _check_first_start(environment)
    if "what_if" in given:
        given["what_if"] = [text.strip() for text in given["what_if"].split(";") if text.strip()]
    given["script"] = script if Path(script).is_file() else "module:__main__"
    config = validated(EmulateConfig, given, "environment")
    if config.nccl:
        raise InputError(
            "PARACOSM_NCCL: the emulated NCCL must be loaded before PyTorch: start the script "
            "with paracosm emulate --nccl"
        )
    check_emulation(config)
    return Launch(config, _seed(environment), _out(environment))


_OURS = {"PARACOSM_SEED", "PARACOSM_OUT"}


def _seed(environment: Mapping[str, str]) -> int:
    text = environment.get("PARACOSM_SEED", "0")
    if (seed := parse_whole(text, WIDEST)) is None:
        raise InputError(f'PARACOSM_SEED: a number, not "{text}"')
    return seed


def _out(environment: Mapping[str, str]) -> Path | None:
    if not environment.get("PARACOSM_OUT"):
        return None
    out = Path(environment["PARACOSM_OUT"]).resolve()  # the script may change its directory
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise InputError(f"PARACOSM_OUT: {out} is there already: name a new folder")
    return out


def _finish_at_end(
    finish: Finish, setting: Setting, out: Path | None, kept: contextlib.ExitStack
) -> None:
    """Register `finish` before anything that writes records, so that it is called after that."""
    process, leave, status = os.getpid(), sys.exit, 0

    # The interpreter does not expose its script's exit code; `raise SystemExit(3)` looks like 0.
    def leaving(asked: str | int | None = None) -> NoReturn:
        nonlocal status
        status = asked if isinstance(asked, int) else int(asked is not None)
        leave(asked)

    def end() -> None:
        if os.getpid() != process:
            return
        try:
            # What went uncaught, as the interpreter leaves it behind.
            exit_code = 1 if hasattr(sys, "last_value") else status
            finish(setting, setting.records, out, exit_code)
        except InputError as error:
            _print_error(error)
        finally:
            kept.close()

    sys.exit = leaving
    atexit.register(end)


def _print_error(error: InputError) -> None:
    print(f"paracosm: {error}", file=sys.stderr, flush=True)
