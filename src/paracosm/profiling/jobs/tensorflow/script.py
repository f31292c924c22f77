"""A user's own training script, run with one worker and its parameter servers, and traced."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paracosm.errors import InputError, require
from paracosm.profiling.jobs.job_profile import JobProfile
from paracosm.profiling.jobs.tensorflow.read import profile_of_steps
from paracosm.profiling.jobs.tensorflow.records import traced_step
from paracosm.profiling.processes import Processes, WorkerError, free_ports


@dataclass(frozen=True)
class ScriptSettings:
    """How a script is run."""

    servers: int = 1  # parameter servers
    warmup: int = 5  # training steps that are run before those that are kept
    timeout: float = 300.0  # seconds without a training step after which the script is given up

    def __post_init__(self) -> None:
        if self.servers < 1:
            raise InputError(f"servers: {self.servers}, but at least 1 is needed")
        if self.warmup < 0:
            raise InputError(f"warmup: {self.warmup} steps, less than none")
        if not self.timeout > 0:
            raise InputError(f"timeout: {self.timeout:g}, not above 0")


def profile_script(
    script: Path,
    arguments: Sequence[str],
    steps: int = 100,
    settings: ScriptSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> JobProfile:
    """Run a training script as it is on this machine, and return what its steps did, op by op.

    Every process gets its task by TF_CONFIG, and by {job}, {task}, {servers} and {workers} wherever
    they stand in the arguments. The worker's sessions are traced (FULL_TRACE); what it runs that
    sends nothing to a server, such as initialization, is no training step. The script is ended as
    soon as enough steps are there. If it ends before, or is interrupted, the profile has those that
    there are; "ended" in its provenance is "enough", "by itself" or "interrupted".

    Raises:
        InputError: there is no such script; it failed, ended or took too long without a training
            step, or uses ParameterServerStrategy; what `read_steps` refuses.
        MissingExtraError: TensorFlow is not installed.
    """
    if steps < 1:
        raise InputError(f"steps: {steps}, but at least 1 is needed")
    if not script.is_file():
        raise InputError(f"{script}: no such file: give the script that trains")
    if importlib.util.find_spec("tensorflow") is None:
        require("tensorflow", "tensorflow", "profiling a TensorFlow job")
    wanted = settings or ScriptSettings()
    with Processes("paracosm.profiling.jobs.tensorflow.process", wanted.timeout) as processes:
        said: list[dict[str, Any]] = []
        ended = "enough"
        try:
            _start(processes, script, arguments, steps, wanted)
            for answer in _answers(processes, wanted.servers):
                said.append(answer)
                if progress is not None and "step" in answer:
                    progress(answer["step"] + 1, steps)
        except KeyboardInterrupt:
            ended = "interrupted"
            if not any("step" in answer for answer in said):
                raise
        except WorkerError as error:
            raise InputError(f"{script}: {error}") from None
        processes.end()
        return _profile(script, said, ended, processes.folder)


def _start(
    processes: Processes,
    script: Path,
    arguments: Sequence[str],
    steps: int,
    settings: ScriptSettings,
) -> None:
    addresses = [f"localhost:{port}" for port in free_ports(settings.servers + 1)]
    cluster = {"ps": addresses[:-1], "worker": addresses[-1:]}
    for job, task in [*(("ps", number) for number in range(settings.servers)), ("worker", 0)]:
        words = {
            "{job}": job,
            "{task}": str(task),
            "{servers}": ",".join(cluster["ps"]),
            "{workers}": ",".join(cluster["worker"]),
        }
        setup = {
            "script": str(script),
            "arguments": [_filled(argument, words) for argument in arguments],
            "tf_config": {"cluster": cluster, "task": {"type": job, "index": task}},
            "folder": str(processes.folder),
            "steps": steps,
            "warmup": settings.warmup,
        }
        processes.start(f"{job} {task}", setup)


def _answers(processes: Processes, worker: int) -> Iterator[dict[str, Any]]:
    while True:
        (answer,) = processes.answers("a training step of a tf.compat.v1.Session", [worker])
        if "done" in answer:
            return
        yield answer
        if "ended" in answer:
            return


def _filled(argument: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        argument = argument.replace(word, value)
    return argument


def _profile(script: Path, said: Sequence[dict[str, Any]], ended: str, folder: Path) -> JobProfile:
    told = {key: value for answer in said for key, value in answer.items()}
    kept = [answer for answer in said if "step" in answer]
    if not kept:
        raise InputError(
            f"{script}: it ended without a training step: no tf.compat.v1.Session ran one that "
            "gets parameters from a server and sends gradients to it (TensorFlow keeps step "
            "statistics of sessions only, not of eager code; do the servers and the worker take "
            "their tasks from TF_CONFIG, or from arguments such as --task={task}?)"
        )
    steps = [
        traced_step(
            (folder / f"step-{each['step']}.pb").read_bytes(),
            f"{script.name}, step {each['step']}",
            span=(each["span"][0], each["span"][1]),
            pause=each["pause"],
        )
        for each in kept
    ]
    return profile_of_steps(
        steps,
        str(script),
        {
            "framework": told["framework"],
            "script": script.name,
            "ended": "by itself" if "ended" in told else ended,
        },
    )
