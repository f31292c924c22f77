"""Iterations and waits, observed from within the process of a script."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from rank_processes import Ran

from paracosm.emulation.rank.observe import Waits
from paracosm.emulation.rank.prepare import Signals
from paracosm.emulation.records import Iteration, RecordReader, RecordWriter, Wait

Run = Callable[..., Ran]


def waits_in(path: Path, use: Callable[[Waits], None]) -> tuple[list[Wait], list[float]]:
    """Return what was recorded, and the ends that were told."""
    told: list[float] = []
    recorder = RecordWriter(path)
    use(Waits(recorder, 3, told.append))
    recorder.close()
    return [record for record in RecordReader(path).more() if isinstance(record, Wait)], told


def test_a_wait_within_a_wait_is_part_of_it(tmp_path: Path) -> None:
    def use(waits: Waits) -> None:
        inner = waits.watched(lambda: waits.add(0.0, 1.0))
        waits.watched(inner)()

    recorded, told = waits_in(tmp_path / "records", use)
    [wait] = recorded
    assert told == [wait.end]
    assert wait.rank == 3
    assert 1.0 < wait.begin <= wait.end


def test_a_wait_that_fails_has_ended(tmp_path: Path) -> None:
    def use(waits: Waits) -> None:
        with pytest.raises(ZeroDivisionError):
            waits.watched(lambda: 1 // 0)()
        waits.add(5.0, 6.0)

    recorded, told = waits_in(tmp_path / "records", use)
    assert len(recorded) == 2
    assert recorded[1] == Wait(3, 5.0, 6.0)
    assert told[1] == 6.0


@pytest.mark.parametrize(
    ("waited", "instants", "read"),
    [
        pytest.param((0.0, 0.5, 0.5, 0.5), (10.0, 11.0), [10.5], id="core lost in between"),
        pytest.param((0.0, 0.0, 3.0, 3.0), (12.0, 13.0), [12.0, 12.0], id="counted afterwards"),
    ],
)
def test_instants_never_go_back(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    waited: tuple[float, ...],  # what the kernel has counted, reading by reading
    instants: tuple[float, ...],
    read: list[float],
) -> None:
    waits = Waits(RecordWriter(tmp_path / "records"), 0, measures=True)
    monkeypatch.setattr(waits._clock, "waited", iter(waited).__next__)
    monkeypatch.setattr("paracosm.emulation.rank.observe.time.monotonic", iter(instants).__next__)
    instants_read = [waits.now() for _ in read]
    monkeypatch.undo()
    assert instants_read == read


def test_threads_wait_each_for_itself(tmp_path: Path) -> None:
    def use(waits: Waits) -> None:
        waits.begin()
        other = threading.Thread(target=waits.add, args=(1.0, 2.0))
        other.start()
        other.join()
        waits.end()

    recorded, _ = waits_in(tmp_path / "records", use)
    assert [wait.begin == 1.0 for wait in recorded] == [True, False]


def test_an_emulator_hears_signals_once_it_listens(tmp_path: Path) -> None:
    signals = Signals(tmp_path / "e.records")
    signals.wait_ended(0.0)  # nobody listens yet
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as emulator:
        emulator.bind(str(tmp_path / "e.records.signals"))
        emulator.settimeout(5)
        signals.wait_ended(1.0)
        signals.iteration_ended(2.0)
        assert [emulator.recv(8), emulator.recv(8)] == [b"w", b"i"]
    signals.wait_ended(3.0)  # it has gone


PASSES = """
import collections, dataclasses, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

@dataclasses.dataclass
class Output:
    scores: torch.Tensor

class Model(torch.nn.Linear):
    kind = staticmethod(lambda scores: scores)
    def forward(self, inputs):
        return self.kind(super().forward(inputs))

dist.init_process_group("gloo")
torch.set_num_threads(1)
model = DDP(Model(4, 4))
first = torch.optim.SGD(model.parameters(), lr=0.1)
second = torch.optim.SGD(model.parameters(), lr=0.1)

def loss(kind=lambda scores: scores, take=lambda output: output):
    Model.kind = staticmethod(kind)
    return take(model(torch.ones(2, 4))).sum()

def step():
    first.step()
    second.step()

loss().backward(); step()                                                            # 1: 1 wait
loss(lambda s: [{"a": (s,)}, 7], lambda o: o[0]["a"][0]).backward(); step()          # 2: 1
loss(lambda s: Output(s), lambda o: o.scores).backward(); step()                     # 3: 1
loss(lambda s: (s, s * 2), lambda o: o[0] + o[1]).backward(); step()                 # 4: 1
with model.no_sync():
    loss().backward()
step()                                                                               # 5: 0
with torch.no_grad():
    loss()
step()                                                                               # 6: 0
with model.no_sync():
    loss().backward()
loss().backward(); step()                                                            # 7: 1
again = loss()
again.backward(retain_graph=True)
dist.all_reduce(torch.ones(3)); step()                                               # 8: 2
dist.all_reduce(torch.ones(3), async_op=True).wait(); dist.barrier(); step()         # 9: 2
from torch.distributed._functional_collectives import all_reduce
(all_reduce(torch.ones(3), "sum", dist.group.WORLD) + 1); step()                     # 10: 1
del first
import gc; gc.collect()
second.step()
dist.destroy_process_group()
"""


def test_each_wait_is_recorded_once(run_rank: Run, tmp_path: Path) -> None:
    """With PyTorch's own gloo, alone: what DDP waits for in C++, works, tensors."""
    script = tmp_path / "train.py"
    script.write_text(PASSES)
    ran = run_rank(str(script), mode="wire", world_size=1)
    assert ran.exit_code == 0, ran.err
    waits, iterations = ran.of(Wait), ran.of(Iteration)
    assert [iteration.number for iteration in iterations] == list(range(11))
    assert all(b.cpu >= a.cpu for a, b in itertools.pairwise(iterations))
    assert 50e6 < iterations[0].peak_memory < 50e9
    edges = [float("-inf"), *(iteration.end for iteration in iterations)]
    counts = [
        sum(begin < wait.end <= end for wait in waits) for begin, end in itertools.pairwise(edges)
    ]
    assert counts[0] == 1 + 1  # DDP begins by broadcasting parameters
    assert counts[1:] == [1, 1, 1, 0, 0, 1, 2, 2, 1, 0]
