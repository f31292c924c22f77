"""Two writers to one folder, killed and started again: what is done holds one run."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import ClassVar

import pytest
from forked import Child, program
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from paracosm.cli import main
from paracosm.studies import RunFolder

pytestmark = pytest.mark.slow

RUN = (
    *("train", "--timing-only", "--workers", "3", "--updates", "2000", "--timeline"),
    *("--compute", "exponential(1s)"),
)
Rows = list[tuple[str, str, float, int, float]]


def rows_in(folder: Path) -> Rows:
    """Return all that a run has measured, but for wall times."""
    names = ("node", "name", "value", "step", "virtual_time")
    table = RunFolder.open(folder).metrics().to_pylist()
    return [tuple(row[name] for name in names) for row in table]  # type: ignore[misc]


class Writers(RuleBasedStateMachine):
    expected: ClassVar[dict[int, Rows]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.out = self.place / "run"
        self.running: list[Child] = []
        self.pids: set[int] = set()
        for seed in (0, 1):
            if seed not in self.expected:
                alone = self.place / f"alone{seed}"
                # Here, so that children have all of it loaded.
                assert main([*RUN, "--quiet", "--seed", str(seed), "--out", str(alone)]) == 0
                self.expected[seed] = rows_in(alone)
        assert self.expected[0] != self.expected[1]

    @precondition(lambda self: len(self.running) < 2)
    @rule(seed=st.integers(0, 1), force=st.booleans())
    def start(self, seed: int, force: bool) -> None:
        flags = ["--seed", str(seed), "--out", str(self.out), *(["--force"] if force else [])]
        self.running.append(program([*RUN, *flags]))
        self.pids.add(self.running[-1].pid)

    @rule(milliseconds=st.integers(1, 300))
    def pass_time(self, milliseconds: int) -> None:
        time.sleep(milliseconds / 1000)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 1))
    def kill(self, which: int) -> None:
        self.running[which % len(self.running)].kill()

    @rule()
    def wait(self) -> None:
        for child in self.running:
            self.check_end(child, child.wait())
        self.running.clear()
        self.check_folder()

    def check_end(self, child: Child, code: int) -> None:
        said = child.said
        assert code in (0, 2, -9), said
        if code == 2:
            assert said.count("\n") == 1, said
            writing = re.search(r"process (\d+) is writing to this folder", said)
            assert writing is None or int(writing[1]) in self.pids - {child.pid}
            assert writing or "give --force" in said or "report.html" in said, said

    def check_folder(self) -> None:
        """What is done is one run, all of it; what is not done can be read."""
        if not (self.out / "study.yaml").is_file():
            return
        run = RunFolder.open(self.out)
        found = rows_in(self.out)
        expected = self.expected[run.study["seed"]]
        if run.status == "done":
            assert found == expected
            assert run.environment["seed"] == run.study["seed"]
            assert run.timeline() is not None
        else:
            assert found == expected[: len(found)]

    def teardown(self) -> None:
        self.wait()
        # Nothing stands in the way of the next one.
        assert program([*RUN, "--seed", "1", "--out", str(self.out), "--force"]).wait() == 0
        self.check_folder()
        assert (self.out / "report.html").is_file()
        assert not [each.name for each in self.out.iterdir() if each.name.startswith(".")]
        shutil.rmtree(self.place)


TestTwoWriters = Writers.TestCase
TestTwoWriters.settings = settings(max_examples=5, stateful_step_count=10, phases=[Phase.generate])
