"""What holds for all tests."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from paracosm import backends
from paracosm.backends import Backend

# A first example may compile a kernel, and the machine may be busy: time is no reason to fail. The
# everyday run tries a fifth of the examples that a test asks for, the same each time;
# `make test-all` tries all, and looks for new ones (--hypothesis-profile explore).
settings.register_profile("paracosm", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("paracosm")

# The user's own hardware is neither read nor written.
_CONFIGURATION = tempfile.TemporaryDirectory()
os.environ["XDG_CONFIG_HOME"] = _CONFIGURATION.name

# In the background of a script Ctrl-C is ignored, under nohup a hang-up; what tests start would
# inherit that. A handler is not inherited: a child begins with what the system does by default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for _ignored in (signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        signal.signal(_ignored, lambda number, frame: None)

# They take longest: where files run side by side they come first, so that none of them runs on
# alone at the end. The first two compile what the others find in the cache; the next two need none
# of it, so that nobody compiles it twice.
LONGEST = [
    "relaxation/test_network.py",
    "contract/test_cluster_keys.py",
    "emulation/published/test_published_scripts.py",
    "emulation/published/test_object_collectives.py",
    "profiling/test_paper_offline_profiling.py",
    "training/test_train.py",
    "cli/test_cli.py",
    "test_api.py",
    "relaxation/test_faults_in_runs.py",
    "profiling/test_model.py",
]


@pytest.hookimpl(tryfirst=True)  # before slow ones are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent / "benchmarks" in item.path.parents:
            item.add_marker(pytest.mark.slow)
    if settings.get_current_profile_name() == "paracosm":
        _try_fewer_examples(items)
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def _try_fewer_examples(items: list[pytest.Item]) -> None:
    name = "_hypothesis_internal_use_settings"
    for function in {item.obj for item in items if isinstance(item, pytest.Function)}:
        if (own := getattr(function, name, None)) is not None and own.max_examples > 10:
            setattr(function, name, settings(own, max_examples=max(10, own.max_examples // 5)))


@pytest.fixture(scope="session", autouse=True)
def _wide_terminal() -> Iterator[None]:
    """Have sentences printed on one line, whatever the terminal that tests run in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "1000")
        yield


@pytest.fixture(scope="module")
def dask() -> Iterator[Backend]:
    """A local cluster of two workers, started once a module."""
    pytest.importorskip("distributed")
    yield Backend("dask", jobs=2)
    client = backends._dask_client(None, 2)
    client.cluster.close()
    client.close()
    backends._dask_client.cache_clear()
