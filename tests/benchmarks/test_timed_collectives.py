"""A table of timed collectives is asked of the catalogue's clusters."""

from pathlib import Path

import pytest
from collectives import read_timings

from paracosm.errors import InputError

HEADER = "collective,gpu,nodes,gpus,interconnect,bytes,time_us,source"


def table(folder: Path, *rows: str) -> Path:
    file = folder / "collectives.csv"
    file.write_text("\n".join((HEADER, *rows)) + "\n")
    return file


def test_a_gather_takes_what_a_ring_takes(tmp_path: Path) -> None:
    """8 A100: 8.4 us, 7 steps of 3.4 us and of an eighth of 8 GB at 240 GB/s. Over four cards of
    100 Gbit/s, of which 12 GB/s are usable, 15 of 16 parts pass 48 GB/s."""
    file = table(
        tmp_path,
        "all_gather,A100-SXM,1,8,NVLink 3,8e9,30000,somebody/tests",
        "all_gather,A100-SXM,2,16,NVLink 3 + 4 x 100 Gbit/s EFA,8e9,160000,somebody/tests",
    )
    one, two = read_timings(file)
    assert one.predicted == pytest.approx(8.4e-6 + 7 * 3.4e-6 + 7 / 8 * 8 / 240)
    assert one.seconds == pytest.approx(0.03)
    latency = 8.4e-6 + 14 * 3.4e-6 + 14e-6
    assert two.predicted == pytest.approx(latency + 15 / 16 * 8 / 48)


def test_a_row_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"collectives\.csv, line 2: "):
        read_timings(table(tmp_path, "all_gather,V900,1,8,wire,8e9,1,somebody"))
