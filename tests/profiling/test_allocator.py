"""malloc, held to keeping what is freed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from paracosm.graphs import Graph, Node, Op, build_graph
from paracosm.prediction.host_costs import new_memory
from paracosm.profiling.allocator import (
    DEFAULT,
    KEPT,
    PINNED,
    keep_memory,
    pinned_environ,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="no glibc here: malloc untested")

# New pages of the second half of twenty large tensors, made and dropped one after the other.
FAULTS = """
import resource, torch
from paracosm.profiling.allocator import keep_memory
name = keep_memory()
def count():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def make():
    tensor = torch.empty(20_000_000).fill_(1.0)
for _ in range(10):
    make()
before = count()
for _ in range(10):
    make()
print(name, count() - before, sep=":")
"""


def faults(environ: dict[str, str]) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], env=environ, check=True, capture_output=True, text=True
    )
    name, count = done.stdout.strip().split(":")
    return name, int(count)


@linux
def test_a_pinned_process_gets_no_new_pages_for_what_it_freed() -> None:
    name, count = faults(pinned_environ(os.environ))
    assert name == PINNED
    assert count < 100  # one tensor has 20,000


@linux
def test_a_process_knows_how_it_was_started() -> None:
    assert keep_memory() in (KEPT, PINNED)
    environ = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    assert faults(environ)[0] == KEPT


def test_tunables_that_are_there_are_kept() -> None:
    environ = pinned_environ({"GLIBC_TUNABLES": "glibc.malloc.check=3", "HOME": "/"})
    assert environ["HOME"] == "/"
    assert environ["GLIBC_TUNABLES"] == "glibc.malloc.check=3:glibc.malloc.tcache_count=0"


@linux
def test_the_program_restarts_itself_pinned_with_the_same_arguments() -> None:
    program = (
        "import sys; from paracosm.profiling.allocator import keep_memory, restart_pinned; "
        "restart_pinned(); print(keep_memory(), sys.argv[1:])"
    )
    environ = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", program, "one", "two words"],
        env=environ,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == f"{PINNED} ['one', 'two words']\n"


def test_the_names_differ() -> None:
    assert len({PINNED, KEPT, DEFAULT}) == 3


MB = 1_000_000


def step_of(*nodes: tuple[int, int]) -> Graph:
    """Return a chain of nodes that each allocate so many bytes, until a node."""
    op = Op("op")
    return build_graph(
        [
            Node(number, op, dependencies=(number - 1,) if number else (), allocates=(node,))
            for number, node in enumerate(nodes)
        ]
    )


def test_blocks_above_32_mib_are_new_memory_in_every_step() -> None:
    """By mallopt(3); one that outlives the step, a gradient, is freed when the next one begins."""
    assert new_memory(step_of((40 * MB, 0), (100 * MB, -1))).tolist() == [40 * MB, 100 * MB]


def test_smaller_blocks_are_mapped_once_and_lie_in_the_heap_from_then_on() -> None:
    assert new_memory(step_of((20 * MB, 0), (20 * MB, 1))).tolist() == [0, 0]


def test_a_heap_whose_end_is_free_by_twice_the_threshold_is_given_back() -> None:
    """Three blocks of 20 MB are freed at once: more than the 40 MB that are kept."""
    assert new_memory(step_of((20 * MB, 2), (20 * MB, 2), (20 * MB, 2))).sum() == 60 * MB
    assert new_memory(step_of((20 * MB, 1), (20 * MB, 1), (20 * MB, 2))).sum() == 0
