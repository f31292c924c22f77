"""What waits for what, and what is allocated when: small programs, counted by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from paracosm.graphs.build import Node
from paracosm.graphs.capture.record import Ledger, ModulePaths, Recorder, record
from paracosm.graphs.capture.step import TrainingStep
from paracosm.models import Workload


def nodes_of(program: Callable[[], object], held: tuple[Tensor, ...] = ()) -> list[Node]:
    """Record a program on real tensors, some of which are there before."""
    ledger = Ledger()
    ledger.hold("inputs", held)
    recorder = Recorder(ledger, ModulePaths(nn.Identity()), "cpu")
    with ledger.resizing_followed(), recorder:
        result = program()
    ledger.close()
    nodes = list(recorder.nodes())
    del result
    return nodes


def waits(program: Callable[[], object], *held: Tensor) -> list[tuple[int, ...]]:
    return [node.dependencies for node in nodes_of(program, held)]


def test_a_read_waits_for_the_write_before_it() -> None:
    x = torch.ones(3)

    def program() -> Tensor:
        y = x + 1  # 0
        z = y * 2  # 1
        return y + z  # 2

    assert waits(program, x) == [(), (0,), (0, 1)]


def test_a_write_waits_for_reads_and_writes_before_it() -> None:
    x = torch.ones(3)

    def program() -> Tensor:
        y = x + 1  # 0
        z = y * 2  # 1 reads y
        w = y * 3  # 2 reads y
        y.add_(1)  # 3 after what wrote and what read y
        return y + z + w  # 4 reads y of 3 and z; 5

    assert waits(program, x) == [(), (0,), (0,), (0, 1, 2), (1, 3), (2, 4)]


def test_views_wait_for_nothing_and_are_looked_through() -> None:
    x = torch.ones(3, 2)

    def program() -> Tensor:
        y = x + 1  # 0
        view = y.t()  # 1: the host turns a shape
        row = view[0]  # 2
        row.mul_(2)  # 3 writes y
        return y + 1  # 4

    nodes = nodes_of(program, (x,))
    assert [node.dependencies for node in nodes] == [(), (), (), (0,), (3,)]
    assert [node.resource for node in nodes] == ["compute", "host", "host", "compute", "compute"]
    assert [node.op.bytes_written for node in nodes] == [24, 0, 0, 12, 24]


def test_a_transposition_in_place_moves_no_data() -> None:
    x = torch.ones(3, 2)

    def program() -> Tensor:
        y = x + 1
        y.t_()
        return y * 2

    nodes = nodes_of(program, (x,))
    assert [(node.resource, node.dependencies) for node in nodes] == [
        ("compute", ()),
        ("host", ()),
        ("compute", (0,)),
    ]


def test_running_statistics_are_written() -> None:
    """The schema of batch normalisation does not say so."""
    norm, x = nn.BatchNorm1d(2), torch.ones(4, 2)

    def program() -> Tensor:
        norm(x)
        return norm.running_mean * 2  # type: ignore[operator]

    nodes = nodes_of(program, (x,))
    by_name = {node.op.name: node for node in nodes}
    normed = by_name["aten.native_batch_norm.default"]
    assert by_name["aten.mul.Tensor"].dependencies == (normed.id,)


def test_lists_of_tensors_are_read_and_written_one_by_one() -> None:
    x, y = torch.ones(3), torch.ones(4)

    def program() -> Tensor:
        doubled = torch._foreach_mul([x, y], 2)  # 0
        torch._foreach_add_(doubled, 1)  # 1
        return doubled[0] + 1  # 2

    assert waits(program, x, y) == [(), (0,), (1,)]


def test_memory_is_held_until_python_lets_it_go() -> None:
    x = torch.ones(4)

    def program() -> Tensor:
        y = x + 1  # 0: 16 bytes, freed after 2
        z = y * 2  # 1: 16 bytes, returned
        y.add_(1)  # 2
        del y
        (z + 1).sum()  # 3: freed after 4; 4: freed at once
        return z * 3  # 5

    sizes = [node.allocates for node in nodes_of(program, (x,))]
    assert sizes == [((16, 2),), ((16, 5),), (), ((16, 4),), ((4, 4),), ((16, -1),)]


class Program(nn.Module):
    """Calls a function, as a model would."""

    def __init__(self, program: Callable[[], object]) -> None:
        super().__init__()
        self.program = program

    def forward(self) -> object:
        return self.program()


def test_garbage_is_held_until_it_was_last_used() -> None:
    x = torch.ones(4)

    def program() -> Tensor:
        y = x + 1  # 0
        cycle: list[object] = [y]
        cycle.append(cycle)
        return y * 2 + x  # 1, 2

    module = Program(program).eval()
    graph = record(TrainingStep(Workload(module, (), torch.sum, 1), None))
    first = graph.storages.first == 0
    assert graph.storages.last[first] == [1]


def test_storages_that_are_resized_live_as_often_as_they_grow() -> None:
    x, buffer = torch.ones(4), torch.empty(4)
    buffer.untyped_storage().resize_(0)

    def program() -> None:
        for _ in range(2):
            buffer.untyped_storage().resize_(16)
            buffer.copy_(x)  # 0 and 2
            buffer.mul_(2)  # 1 and 3
            buffer.untyped_storage().resize_(0)

    assert [node.allocates for node in nodes_of(program, (x, buffer))] == [
        ((16, 1),),
        (),
        ((16, 3),),
        (),
    ]


def test_an_address_that_is_given_anew_is_another_storage() -> None:
    x = torch.ones(1000)

    def program() -> None:
        for _ in range(50):
            (x + 1).mul_(2)

    expected = [pair for n in range(0, 100, 2) for pair in [(), (n,)]]
    assert waits(program, x) == expected


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_dependencies_are_those_of_a_plain_account(data: st.DataObject) -> None:
    """Random programs on four tensors, against an account of every pair of ops."""
    tensors = [torch.ones(2) for _ in range(4)]
    touched: list[tuple[set[int], set[int]]] = []  # what each op reads and writes
    program: list[Callable[[], object]] = []
    for _ in range(data.draw(st.integers(1, 12))):
        a, b = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
        x, y = tensors[a], tensors[b]
        if data.draw(st.booleans()):
            program.append(lambda x=x, y=y: x.add_(y))  # type: ignore[misc]
            touched.append(({a, b}, {a}))
        else:
            program.append(lambda x=x, y=y: x + y)  # type: ignore[misc]
            touched.append(({a, b}, set()))
    found = waits(lambda: [run() for run in program], *tensors)

    def reaches(later: int) -> set[int]:
        """Return all ops that come before one, directly or not, by what was recorded."""
        direct = set(found[later])
        return direct.union(*(reaches(each) for each in direct))

    for later, (reads, writes) in enumerate(touched):
        conflicts = {
            earlier
            for earlier, (read, written) in enumerate(touched[:later])
            if written & reads or read & writes
        }
        assert set(found[later]) <= conflicts  # nothing waits without need
        assert conflicts <= reaches(later)  # and nothing does not
