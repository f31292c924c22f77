"""Watching a run: the log and the timeline.

Nobody asks during a run whether somebody watches. A simulation that is observed has other functions
in the places that are called anyway: around the `send` of each continuation, and for the end of a
transfer. Only `compute` looks whether there is an observer.
"""

from __future__ import annotations

from reprlib import Repr
from typing import TYPE_CHECKING

from paracosm.engine.messages import complete, deliver

if TYPE_CHECKING:
    from paracosm.engine.messages import Transfer
    from paracosm.engine.simulator import Simulator
    from paracosm.engine.walker import Continuation, Walker
    from paracosm.engine.worker import Worker
    from paracosm.timeline import Timeline

__all__ = ["Observer"]

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 40


class Observer:
    """Records spans in a timeline, prints lines, or both.

    Args:
        sim: what is observed.
        timeline: where spans go; None for none.
        log: whether a line is printed for every event.
    """

    def __init__(self, sim: Simulator, timeline: Timeline | None, log: bool) -> None:
        self._sim = sim
        self._append = timeline.append if timeline is not None else lambda span: None
        self._log = log
        # What goes on now, by who does it: node, resource, name, begin.
        self._waits: dict[Walker, tuple[str, float]] = {}
        self._computes: dict[Worker, tuple[str, float]] = {}
        self._names: dict[Worker, str] = {}
        self._recorded_until: dict[int, float] = {}

    def watch(self, continuation: Continuation) -> None:
        """See what the walker of `continuation` does from now on."""
        walker, send = continuation.walker, continuation.send

        def observed(value: object) -> float | None:
            self._waited(walker)
            sleep = send(value)
            now = self._sim.now
            if sleep is not None:
                self._waits.pop(walker, None)
                if self._log:
                    verb = "computes" if walker in self._computes else "sleeps"
                    self._line(walker.name, f"{verb} for {sleep:g} s")
            else:
                what = walker._waits_for()
                self._waits[walker] = what, now
                if self._log:
                    self._line(walker.name, f"waits for {what}")
            return sleep

        continuation.send = observed

    def name_next(self, worker: Worker, name: str) -> None:
        """Give the next computation of `worker` a name."""
        self._names[worker] = name

    def computing(self, worker: Worker) -> None:
        """See that `worker` starts to compute."""
        self._computes[worker] = self._names.pop(worker, "compute"), self._sim.now

    def computed(self, worker: Worker) -> None:
        """See that `worker` has stopped to compute."""
        if worker in self._computes:
            name, began = self._computes.pop(worker)
            self._span(worker.name, "compute", name, began)

    def complete(self, transfer: Transfer) -> Continuation | None:
        """See that a transfer gives its ports back."""
        self._transferred(transfer)
        self._recorded_until.pop(transfer.number, None)
        if not transfer.propagation:
            self._arrives(transfer)
        return complete(transfer)

    def deliver(self, transfer: Transfer) -> None:
        """See that a message arrives that has left its ports before, or never had any."""
        self._arrives(transfer)
        deliver(transfer)

    def _arrives(self, transfer: Transfer) -> None:
        if self._log:
            tag = "" if transfer.tag is None else f" tagged {transfer.tag!s}"
            self._line(
                transfer.target, f"gets {_SHORT.repr(transfer.data)}{tag} from {transfer.source}"
            )

    def left(self, walker: Walker) -> None:
        """See that a walker is done."""
        self._waited(walker)
        if self._log:
            self._line(walker.name, "is cancelled" if walker.cancelled else "is done")

    def pause(self) -> None:
        """Record what goes on up to now; the run may end here, or go on."""
        now = self._sim.now
        for walker, (what, since) in list(self._waits.items()):
            self._span(walker.name, "wait", what, since)
            self._waits[walker] = what, now
        for worker, (name, began) in list(self._computes.items()):
            self._span(worker.name, "compute", name, began)
            self._computes[worker] = name, now
        for transfer in self._sim._transfers_under_way():
            self._transferred(transfer)
            self._recorded_until[transfer.number] = now

    def _waited(self, walker: Walker) -> None:
        if walker in self._waits:
            what, since = self._waits.pop(walker)
            self._span(walker.name, "wait", what, since)

    def _transferred(self, transfer: Transfer) -> None:
        began = self._recorded_until.get(transfer.number, transfer.began)
        name = "message" if transfer.tag is None else str(transfer.tag)
        self._span(transfer.source, "send", name, began, transfer.number)
        self._span(transfer.target, "receive", name, began, transfer.number)

    def _span(self, node: str, resource: str, name: str, began: float, flow: int = -1) -> None:
        if began < self._sim.now:
            self._append((node, resource, name, began, self._sim.now, flow))

    def _line(self, name: str, what: str) -> None:
        print(f"{self._sim.now:12.6f}  {name}  {what}")
