"""Where independent calls run: processes here, or the workers of a Dask cluster."""

from __future__ import annotations

import atexit
import os
import pickle
import platform
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import metadata
from itertools import islice
from numbers import Integral
from threading import Lock
from typing import Any, TypeVar

from paracosm.errors import InputError, require
from paracosm.files import temporary_folder
from paracosm.parcels import Parcel, parcel_of
from paracosm.processes import end_with_parent, ignore_interrupts, submit_call
from paracosm.version import version

Answer = TypeVar("Answer")
Calls = Mapping[int, tuple[Any, ...]]  # by number
Numbered = Iterator[tuple[int, Answer]]

BACKENDS = ("loky", "dask")
PACKAGES = ("numpy", "scipy", "numba", "torch", "scikit-learn")
"""What numbers may depend on, beside Paracosm: of the same versions everywhere."""

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
_RETRIES = 3  # of a call whose process was lost
_AHEAD = 4  # calls under way for each worker: so many wait at the workers


def _told(given: object) -> str:
    if isinstance(given, str):
        return f'"{given}"'
    return str(given) if isinstance(given, Integral) else f"a value of type {type(given).__name__}"


@dataclass(frozen=True)
class Backend:
    """Where independent calls run.

    Args:
        name: "loky", processes of this machine; "dask", the workers of a cluster.
        jobs: calls at a time; of a cluster, workers to start here.
        scheduler: address of a cluster that runs already.
        files: sent to the workers of a cluster, which share no disk with this machine.

    Raises:
        InputError: something that has no effect, or a name that there is not.
    """

    name: str = "loky"
    jobs: int = 1
    scheduler: str | None = None
    files: Parcel = field(default_factory=Parcel)

    def __post_init__(self) -> None:
        name: Any = self.name  # in Python, whatever is given
        jobs: Any = self.jobs
        scheduler: Any = self.scheduler
        if not isinstance(name, str) or name not in BACKENDS:
            raise InputError(f"--backend: choose from {', '.join(BACKENDS)}, not {_told(name)}")
        if isinstance(jobs, bool) or not isinstance(jobs, Integral) or jobs < 1:
            raise InputError(f"--jobs: a whole number, 1 or more, not {_told(jobs)}")
        if not isinstance(scheduler, str | None):
            raise InputError(f"--scheduler: the address of a cluster, not {_told(scheduler)}")
        if self.scheduler is not None and not self.is_remote:
            raise InputError("--scheduler is of --backend dask: give that as well")
        if self.scheduler is not None and self.jobs > 1:
            raise InputError("--jobs: the cluster of --scheduler has its workers: leave it out")

    def sending(self, arguments: Any) -> Backend:
        """Return the backend that sends the files along which arguments name (`parcel_of`)."""
        return replace(self, files=parcel_of(arguments)) if self.is_remote else self

    @property
    def is_remote(self) -> bool:
        """Whether calls may run on another machine, without this one's files."""
        return self.name != "loky"

    def each(
        self,
        function: Callable[..., Answer],
        calls: Iterable[tuple[Any, ...]],
        in_order: bool = False,
        lost: Callable[..., Answer] | None = None,
    ) -> Iterator[Answer]:
        """Yield what a function answers to each of some arguments.

        Answers come as they are made, or in the order of the calls. A call whose process or worker
        was lost is made again; one alone, or with one job of loky, runs here.

        Args:
            function: what is called; it and its arguments travel to the processes.
            calls: the arguments of each call.
            in_order: whether answers are to come in the order of the calls.
            lost: what answers, here, a call whose process is lost again and again. Without it, such
                a call ends the others.

        Raises:
            InputError: the cluster is not reached, or its workers cannot be used.
            ChildProcessError: processes are lost again and again, or the cluster is.
        """
        made = self._on_dask if self.is_remote else self._here
        kept: dict[int, Answer] = {}
        following = 0
        for number, answer in made(function, dict(enumerate(calls)), lost):
            if not in_order:
                yield answer
                continue
            kept[number] = answer
            while following in kept:
                yield kept.pop(following)
                following += 1

    def _here(
        self, function: Callable[..., Answer], calls: Calls, lost: Callable[..., Answer] | None
    ) -> Numbered[Answer]:
        if self.jobs == 1 or len(calls) < 2:
            yield from ((number, function(*call)) for number, call in calls.items())
            return
        from joblib import cpu_count
        from joblib.externals.loky import get_reusable_executor
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        jobs = min(self.jobs, len(calls))
        threads = dict.fromkeys(_THREADS, str(max(cpu_count() // jobs, 1)))
        left, losses = dict(calls), 0
        while left:
            # Once processes were lost again and again, one call at a time shows whose are.
            first = next(iter(left))
            tried = left if losses < _RETRIES else {first: left[first]}
            executor = get_reusable_executor(
                jobs, timeout=300, initializer=ignore_interrupts, env=threads
            )
            submit = partial(submit_call, executor, _call, os.getpid(), os.getcwd())
            try:
                for number, future in _spread(submit, function, tried, jobs):
                    answer = future.result()
                    losses = losses if tried is not left else 0
                    del left[number]
                    yield number, answer
            except TerminatedWorkerError:
                losses += 1
                if losses == _RETRIES and lost is None:
                    raise ChildProcessError(
                        f"{losses} processes were killed one after the other: out of memory? Fewer "
                        "--jobs take less"
                    ) from None
                if losses > _RETRIES and lost is not None:
                    losses = 0
                    yield first, lost(*left.pop(first))
            except BaseException:
                _end(executor)
                raise

    def _on_dask(
        self, function: Callable[..., Answer], calls: Calls, lost: Callable[..., Answer] | None
    ) -> Numbered[Answer]:
        distributed = require("distributed", "dask", "--backend dask")
        client = _dask_client(self.scheduler, self.jobs)
        try:  # they may not have started yet, or be replaced after a loss
            client.wait_for_workers(1, timeout=60)
        except TimeoutError as error:
            raise InputError(f"--backend dask: the cluster has no worker: {error}") from None
        threads = client.nthreads()
        if max(threads.values()) > 1:
            raise InputError(
                f"--scheduler: a worker has {max(threads.values())} threads, and runs take turns "
                "in one: start workers with --nthreads 1"
            )
        parcel = client.submit(_same, self.files, pure=False)
        executor = client.get_executor(pure=False)
        submit = partial(executor.submit, _remote, versions(), parcel)
        try:
            for number, future in _spread(submit, function, calls, len(threads), _cancel):
                try:
                    answer = future.result()
                except distributed.KilledWorker:
                    if lost is None:
                        raise ChildProcessError(
                            "workers were lost one after the other at the same run: out of memory?"
                        ) from None
                    answer = lost(*calls[number])
                yield number, answer
        except (CancelledError, OSError) as error:
            if client.status == "running":
                raise
            _dask_client.cache_clear()
            raise ChildProcessError(
                "the Dask scheduler is lost; what has ended is kept, and the same command goes on"
            ) from error


HERE = Backend()
_in_call = False  # whether this process makes calls of a backend, beside others that do


def on_all_cores(most: int) -> Backend:
    """Return the backend of a process for each core of this machine, of at most so many.

    Within a call of another backend, which has the cores, calls run in its own process.
    """
    from joblib import cpu_count

    return HERE if _in_call or most < 2 else Backend(jobs=min(most, cpu_count()))


_FOLDERS = ExitStack()  # of this process
atexit.register(_FOLDERS.close)  # after Dask's own, which is registered later: the last comes first


def _spread(
    submit: Callable[[bytes], Future[Any]],
    function: Callable[..., Any],
    calls: Calls,
    workers: int,
    end: Callable[[Future[Any]], object] = lambda future: None,
) -> Iterator[tuple[int, Future[Any]]]:
    """Yield the numbers of calls that are done, a few calls for each worker under way.

    `end` is called with those that are under way when nobody wants more. Loky's are not cancelled:
    its thread would fail at them.
    """
    from joblib.externals.loky.backend.reduction import dumps  # by value, what a script defines

    waiting = (
        (submit(bytes(dumps((function, arguments)))), number)
        for number, arguments in list(calls.items())
    )
    running = dict(islice(waiting, _AHEAD * workers))
    try:
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            running |= dict(islice(waiting, len(done)))
            for future in done:
                yield running.pop(future), future
    finally:
        for future in running:
            end(future)


def _cancel(future: Future[Any]) -> None:
    future.cancel()


def _end(executor: Any) -> None:
    """Kill the processes of an executor of loky, which then ends as if they had been lost.

    Told to kill them itself, its thread may fail at calls that it has just taken back.
    """
    for process in list(executor._processes):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    executor.shutdown()


def _call(parent: int, folder: str, call: bytes) -> Any:
    """Make a call in a process of this machine, which may have been started in another folder."""
    global _in_call
    _in_call = True
    end_with_parent(parent=parent)
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a run keeps what it has
    try:
        function, arguments = pickle.loads(call)
        return function(*arguments)
    finally:
        ignore_interrupts()


_ALONE = Lock()  # the current folder is that of a process, not of a thread


def _remote(known: dict[str, str], parcel: Parcel, call: bytes) -> Any:
    global _in_call
    _in_call = True
    here = versions()
    for name in known.keys() & here.keys():
        if known[name] != here[name]:
            raise InputError(
                f"a worker on {platform.node()} has {name} {here[name]}, and this machine "
                f"{known[name]}: numbers could differ; install the same"
            )
    with _ALONE, parcel.opened():
        function, arguments = pickle.loads(call)
        return function(*arguments)


def _same(parcel: Parcel) -> Parcel:
    return parcel  # as a task of Dask, which makes it again where its worker was lost


@cache
def _dask_client(scheduler: str | None, jobs: int) -> Any:
    """Return the client of a cluster, one for all that this process asks of it."""
    distributed = require("distributed", "dask", "--backend dask")
    settings: dict[str, Any] = {
        "distributed.worker.daemon": False,  # look-ahead of a training has processes of its own
        "distributed.worker.profile.enabled": False,
        # Dask gives up for good a worker that is not replaced in time: 15 s, too short if busy.
        "distributed.deploy.lost-worker-timeout": "10 minutes",
        "distributed.admin.large-graph-warning-threshold": "1 GiB",  # parameters are that large
    }
    if scheduler is None:  # not /tmp/dask-scratch-space, which may be anybody's
        settings["temporary-directory"] = str(_FOLDERS.enter_context(temporary_folder()))
    require("dask", "dask", "--backend dask").config.set(settings)
    if scheduler is None:
        cluster = distributed.LocalCluster(
            n_workers=jobs, threads_per_worker=1, dashboard_address=None
        )
        return distributed.Client(cluster)
    try:
        security = distributed.Security().get_connection_args("client")
    except OSError as error:
        raise InputError(f"--scheduler: a certificate of Dask's configuration: {error}") from None
    if scheduler.startswith("tls://") and security.get("ssl_context") is None:
        raise InputError(
            f"--scheduler {scheduler}: no certificates for TLS: name them in Dask's "
            "configuration, under distributed.comm.tls"
        )
    try:
        return distributed.Client(scheduler, timeout="20s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"--scheduler {scheduler}: is not reached: {error}") from None


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of packages that numbers may depend on."""
    versions_here = {"python": platform.python_version(), "paracosm": version()}
    for package in PACKAGES:
        try:
            versions_here[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions_here
