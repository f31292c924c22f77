"""What holds for all tests."""

from pathlib import Path

import pytest
from hypothesis import settings

# A first example may compile a kernel, and the machine may be busy: time is no reason to fail.
settings.register_profile("paracosm", deadline=None)
settings.load_profile("paracosm")

# Compiling the large kernels takes half a minute each, and is done once where one process runs all
# tests of one: those of the relaxation, and those of parameter servers and the network.
_KERNELS = {
    "relaxation": ("relaxation/", "cli/test_relax", "report/test_relax", "study/test_tuning"),
    "servers": (
        *("prediction/parameter_servers/", "contract/", "planning/", "simulation/", "network/"),
        *("training/test_schedule", "training/test_restores"),
    ),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        path = item.path.relative_to(Path(__file__).parent).as_posix()
        for name, beginnings in _KERNELS.items():
            if path.startswith(beginnings):
                item.add_marker(pytest.mark.xdist_group(name))
