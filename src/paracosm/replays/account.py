"""What of the traces is not in the answer, or is there for something that it need not be."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from paracosm.timeline.kineto.faults import outside_steps
from paracosm.timeline.kineto.trace import KinetoTrace, Step, counted

ALL = "all traces"


class Account:
    """Filled while the parts of a job are read."""

    def __init__(self) -> None:
        self.steps: dict[int, str] = {}  # those that are left out: why
        self.ungrouped = 0  # collectives that do not say their group
        self.all_faulty = False  # no step is whole, and all are played as they are
        self._notes: dict[Path, dict[str, None]] = {}  # a set, in order
        self._untimed: dict[Path, set[int]] = {}

    def add_trace(self, trace: KinetoTrace) -> None:
        """Take the notes of a trace, or of a part of it."""
        self._notes.setdefault(trace.path, {}).update(dict.fromkeys(trace.notes))
        self._untimed.setdefault(trace.path, set()).update(trace.untimed)

    def add_outside(self, trace: KinetoTrace, marked: Sequence[Step]) -> None:
        """Count what a trace that is read as a whole has outside of its steps."""
        if marked and (count := outside_steps(trace, marked)):
            self.add(
                trace.path,
                f"{counted(count, 'span')} of the device left out that no step launched",
            )

    def add(self, path: Path, note: str) -> None:
        self._notes.setdefault(path, {})[note] = None

    @property
    def notes(self) -> Mapping[str, Sequence[str]]:
        """Sentences about each trace, by its path."""
        by_subject: dict[str, Sequence[str]] = {}
        for path, notes in self._notes.items():
            untimed = len(self._untimed.get(path, ()))
            timeless = (
                f"{counted(untimed, 'span')} of the device left out without a time of its own"
            )
            said = [*notes, *([timeless] if untimed else [])]
            if said:
                by_subject[str(path)] = said
        by_subject = dict(sorted(by_subject.items()))
        if self.ungrouped:
            count = counted(self.ungrouped, "call")
            by_subject[ALL] = [
                f"{count} that do not say their group taken for collectives of all ranks"
            ]
        return by_subject
