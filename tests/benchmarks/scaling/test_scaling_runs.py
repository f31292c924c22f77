from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scaling import read_runs

from paracosm.errors import InputError

BERT = Path(__file__).parents[2] / "data" / "pollux" / "bert"


def test_a_placement_says_nodes_and_gpus() -> None:
    runs = read_runs(BERT / "placements.csv")
    row = runs.placement.index("1344")
    assert (runs.nodes[row], runs.replicas[row]) == (4, 12)
    assert runs.batch[row] == 4
    assert runs.step[row] > runs.exposed[row] > 0


def test_counts_in_place_of_a_placement() -> None:
    runs = read_runs(BERT / "scalability.csv")
    assert runs.placement[0] == "8x12"
    assert set(runs.nodes.tolist()) == {8, 16}
    assert set(runs.replicas.tolist()) == {12, 64}


def test_what_is_exposed_need_not_be_known(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("placement,local_bsz,step_time\n12,4,0.5\n")
    assert np.isnan(read_runs(path).exposed).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("placement,step_time\n1,0.5\n", "lacks the column local_bsz"),
        ("local_bsz,step_time\n1,0.5\n", "lacks the column num_nodes, num_replicas"),
        ("placement,local_bsz,step_time\n", "has no rows"),
        ("placement,local_bsz,step_time\n1,4\n", "line 2: is cut off"),
        ("placement,local_bsz,step_time\n102,4,1\n", 'placement "102" is not one digit from 1'),
        ("placement,local_bsz,step_time\n1,four,1\n", "local_bsz: 'four' is no number"),
        ("placement,local_bsz,step_time\n1,4,0\n", "step_time: 0 is not above 0"),
        ("placement,local_bsz,step_time\n1,4,nan\n", "step_time: nan is not 0 or more"),
        ("num_nodes,num_replicas,local_bsz,step_time\n4,2,4,1\n", "2 replicas do not reach 4"),
        ("num_nodes,num_replicas,local_bsz,step_time\n0,2,4,1\n", "num_nodes: '0' is no whole"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=r"runs\.csv") as raised:
        read_runs(path)
    assert said in str(raised.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_runs(tmp_path / "none.csv")
