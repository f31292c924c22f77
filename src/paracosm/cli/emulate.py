"""`paracosm emulate`: an unmodified training script as one rank of any world."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from paracosm.addresses import is_local
from paracosm.cli.calibrate_link import link
from paracosm.cli.options import (
    Details,
    Force,
    Json,
    Out,
    Quiet,
    RunFlags,
    Seed,
    check_folder,
    with_fields_of,
    with_run_flags,
)
from paracosm.cli.other_files import refuse_no_script
from paracosm.cli.run_verb import run_verb, show_summary, why, write_report_of
from paracosm.cli.verbs import COMMAND_LINE_ERROR, Verb, parameters_of
from paracosm.emulation.check import NO_SCRIPT
from paracosm.emulation.config import EmulateConfig, Setting
from paracosm.emulation.kind import KIND
from paracosm.emulation.records import RecordReader
from paracosm.emulation.result import EmulationResult, Metrics, result_of
from paracosm.errors import InputError
from paracosm.studies import Point, RunFolder
from paracosm.validation import validated

_STUDIES = (".yaml", ".yml")


class _Emulate(Verb):
    """The command, whose script keeps the arguments after it."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the arguments, depending on what is to be run."""
        if args[:1] == ["--help-all"]:
            return super().parse_args(ctx, args)
        ctx.allow_interspersed_args = False
        try:
            values, *_ = self.make_parser(ctx).parse_args(args=list(args))
        except COMMAND_LINE_ERROR:
            values = {}  # the verb's own reading says what is wrong
        script = str(values.get("script"))
        ctx.allow_interspersed_args = script.endswith(_STUDIES) or Path(script).is_dir()
        return super().parse_args(ctx, args)


COMMANDS = {"emulate": _Emulate}


@with_run_flags(*KIND.models, positional=("script", "arguments"), scalars=True)
def emulate(
    script: Annotated[
        Path | None,
        Argument(
            help=(
                "the training script, module:NAME as python -m takes it, a study file (.yaml), "
                "overridden by flags, or a run folder, whose measured computing is reused"
            )
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None, Argument(help="of the script: everything after it")
    ] = None,
    calibrate_link: Annotated[
        Path | None,
        Option(
            help=(
                "instead of running a script, measure the link between two ranks and write this "
                "file for --calibration (paracosm calibrate link)"
            )
        ),
    ] = None,
    **fields: Any,
) -> int:
    """Run an unmodified training script as one rank of a world whose other ranks are emulated.

    Example: paracosm emulate --world-size 16 --bandwidth 10Gbit/s examples/emulation/ddp.py
    """
    values = {name: value for name, value in fields.items() if value not in (None, [])}
    note = _behind(script, arguments or [])
    try:
        return _emulated(script, arguments, calibrate_link, fields, values)
    except InputError as error:
        raise (InputError(f"{error}; {note}") if note else error) from None
    finally:
        if note and not fields["quiet"] and sys.exception() is None:
            print(f"paracosm: {note}", file=sys.stderr)


def _behind(script: Path | None, arguments: list[str]) -> str:
    """Return a note on flags of ours among the arguments of a script; empty without any."""
    words = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    ours = (
        {flag for flags in parameters_of("emulate").values() for flag in flags} if words else set()
    )
    behind = [word for word in dict.fromkeys(words) if word in ours and word not in _OF_SCRIPTS]
    if not behind:
        return ""
    verb, pronoun = ("stands", "it goes") if len(behind) == 1 else ("stand", "they go")
    return (
        f"{', '.join(behind)} {verb} behind the script: {pronoun} to the script; what is meant for "
        f"paracosm stands before {script}"
    )


_OF_SCRIPTS = frozenset(
    {
        *("--seed", "--out", "--output", "--force", "--json", "--quiet", "--jobs", "--backend"),
        *("--mode", "--port", "--rank", "--device", "--algorithm", "--batch"),
    }
)
"""Flags of ours that many a script has as well."""


def _emulated(
    script: Path | None,
    arguments: list[str] | None,
    calibrate_link: Path | None,
    fields: dict[str, Any],
    values: dict[str, Any],
) -> int:
    if calibrate_link is not None:
        flags = {name: values.pop(name) for name in ("force", "json", "quiet") if name in values}
        others = {name for name in values if values[name] != getattr(RunFlags, name, None)}
        if script is not None or others:
            raise InputError("--calibrate-link runs no script: give it alone")
        return link(calibrate_link, **flags)
    if script is None:
        raise InputError(NO_SCRIPT)
    is_folder = script.is_dir()
    if not is_folder:
        refuse_no_script(str(script))
    is_study = script.suffix in _STUDIES or is_folder
    if not is_study:
        values["script"] = str(script)
    if arguments and is_folder:
        raise InputError(
            f'arguments "{" ".join(arguments)[:100]}" have no effect: the script of {script} is '
            "not run again: leave them out"
        )
    if (is_folder or "measured" in values) and "output" in values:
        raise InputError("--output has no effect: the script is not run again: leave it out")
    if arguments:
        values["arguments"] = arguments
    if fields["json"] or fields["quiet"]:
        values.setdefault("output", "stderr" if fields["json"] else "none")
    if is_folder:
        values["measured"], script = script, script / "study.yaml"
    study = script if is_study else None
    return run_verb("emulate", study, values)


_PORT = 29500  # what PyTorch's own examples use
_OF_A_SCRIPT = (
    *("script", "arguments", "mode", "algorithm", "comm_workers", "local_world_size"),
    *("delays", "compare", "output", "port"),
)


@with_fields_of(EmulateConfig, positional=_OF_A_SCRIPT)
def serve(
    *,
    port: Annotated[int, Option(min=1, max=65535, help="of the rendezvous")] = _PORT,
    host: Annotated[
        str,
        Option(
            help=(
                "of the rendezvous: where rank 0 runs; if rank 0 is emulated, the address to "
                "listen on, 0.0.0.0 for every interface"
            )
        ),
    ] = "127.0.0.1",
    listen: Annotated[
        bool, Option("--listen", help="let other machines reach the store served here")
    ] = False,
    seed: Seed = None,
    out: Out = None,
    force: Force = False,
    json: Json = False,
    details: Details = False,
    quiet: Quiet = False,
    **fields: Any,
) -> int:
    """Emulate all ranks except the real ones, which you start yourself, until these end.

    Example: paracosm emulate serve --world-size 4 --port 29500
    """
    check_folder(out, force)
    values = {name: value for name, value in fields.items() if value not in (None, [])}
    config = validated(EmulateConfig, values | {"port": port, "mode": "wire"}, "command line")
    if len(config.rank) == config.world:
        raise InputError(f"rank: all {config.world:,} ranks are real: there is none to emulate")
    _check_host(config, host, listen)
    started = None if json or quiet else typer.echo
    if out is None:
        result, stopped = _emulate(config, host, seed or 0, started)
    else:
        arguments = config.model_dump(
            mode="json", exclude=config.without_effect(), exclude_defaults=True
        ) | {"mode": "wire"}
        with RunFolder.create(out, {"emulate": arguments, "seed": seed or 0}, force) as folder:
            result, stopped = _emulate(config, host, seed or 0, started)
            _fill_folder(folder, result)
        write_report_of([out])
    if not quiet:
        show_summary(result.summary, out, json, details=details)
    elif result.summary.status == "failed":
        print(f"paracosm: {why(result.summary)}", file=sys.stderr)
    if result.summary.status == "interrupted":
        return 128 + stopped
    return 1 if result.summary.status == "failed" else 0


def _check_host(config: EmulateConfig, host: str, listen: bool) -> None:
    is_served_here = 0 not in config.rank
    if is_served_here and not is_local(host) and not listen:
        raise InputError(
            f"host: anyone who can reach {host} can overwrite the store, which has no password: "
            "add --listen if you want that, or leave --host out"
        )
    if listen and (is_local(host) or not is_served_here):
        why = "rank 0, which serves the store, is real" if not is_served_here else "add --host"
        raise InputError(f"--listen has no effect: {why}")


def _how_to_start(config: EmulateConfig, host: str) -> Iterator[str]:
    """Return instructions for starting the real ranks by hand and with torchrun."""
    import socket

    address = socket.gethostname() if host in ("0.0.0.0", "::") else host
    for rank in config.rank:
        yield f"rank {rank} of {config.world:,} is real: start it, with the script that it runs, as"
        yield (
            f"  PARACOSM_SERVED={config.port} RANK={rank} WORLD_SIZE={config.world} "
            f"MASTER_ADDR={address} MASTER_PORT={config.port} python train.py"
        )
        yield (
            f"  PARACOSM_SERVED={config.port} torchrun --nnodes={config.world} --node-rank={rank} "
            f"--nproc-per-node=1 --master-addr={address} --master-port={config.port} train.py"
        )
    yield "the others are emulated until it ends; Ctrl-C stops at once"


def _emulate(
    config: EmulateConfig, host: str, seed: int, say: Callable[[str], None] | None
) -> tuple[EmulationResult, int]:
    """Emulate until the real ranks end; return the result, and the signal that stopped it, or 0."""
    from paracosm.emulation.rank.launched import served
    from paracosm.emulation.wire.main import emulate_peers

    assert config.port is not None
    stop = threading.Event()
    with served(config, seed) as folder:
        path = folder / "emulator.records"
        with _stopped_by_signals(stop) as received:
            if say is not None:
                for line in _how_to_start(config, host):
                    say(line)
            done = emulate_peers(config, seed, path, host, (host, config.port), stop)
        observed = [folder / f"rank{rank}.records" for rank in config.rank]
        is_observed = any(file.exists() for file in observed)
        records = [record for file in (*observed, path) for record in RecordReader(file).more()]
    stopped = stop.is_set()
    exit_code = None if stopped else 0
    result = result_of(config, records, exit_code, seed, 0 if done else 1, stopped and done)
    # Of scripts that another process started.
    summary = replace(result.summary, exit_code=None)
    if not is_observed:
        why = "the script runs in a process that is not observed"
        summary = replace(summary, no_iteration_time=why)
    return replace(result, summary=summary), received[0] if received else 0


@contextlib.contextmanager
def _stopped_by_signals(stop: threading.Event) -> Iterator[list[int]]:
    """Make Ctrl-C and SIGTERM end the emulation cleanly; yield the list of signals received."""
    received: list[int] = []

    def end(number: int, frame: object) -> None:
        received.append(number)
        stop.set()

    signals = (signal.SIGINT, signal.SIGTERM)
    before = {sign: signal.signal(sign, end) for sign in signals}
    try:
        yield received
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)


def _fill_folder(folder: RunFolder, result: EmulationResult) -> None:
    metrics = Metrics(folder)
    metrics.add(result.records)
    metrics.end(result)
    for name, save in result.files.items():
        folder.add_file(name, save)
    folder.finish(result.summary, result.timeline)


def finish(setting: Setting, records: Path, out: Path | None, exit_code: int | None) -> None:
    """Print the summary on standard error, and write a run folder if requested. `records` is the
    complete file that the rank wrote; `exit_code` is None if unknown.

    Raises:
        InputError: the run folder cannot be made.
    """
    result = result_of(setting.config, RecordReader(records).more(), exit_code, setting.seed)
    if out is not None:
        point = Point("emulate", "", setting.seed, setting.config, {})
        with RunFolder.create(out, point.as_study()) as folder:
            _fill_folder(folder, result)
        write_report_of([out])
    with contextlib.redirect_stdout(sys.stderr):
        show_summary(result.summary, out, json=False, details=True)
