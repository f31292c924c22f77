"""Which nodes of an iteration make a graph: the last of equal micro-batches, and the update."""

from __future__ import annotations

from pathlib import Path

import pytest

from paracosm.cli.app import main
from paracosm.emulation.device.step_graph import _step_of
from paracosm.errors import InputError
from paracosm.graphs import Node, Op

PHASES = {"f": "forward", "b": "backward", "o": "optimizer"}


def nodes(phases: str) -> list[Node]:
    """Return nodes by the first letters of their phases; a product where the letter is large."""
    return [
        Node(
            number,
            Op("aten.mm.default", flops=8) if letter.isupper() else Op("aten.add.Tensor"),
            phase=PHASES[letter.lower()],
        )
        for number, letter in enumerate(phases)
    ]


def test_the_last_of_equal_micro_batches_is_kept() -> None:
    step = _step_of(nodes("FfBFBFBoo"))
    assert step.microbatches == 3
    assert step.kept == [5, 6, 7, 8]
    assert step.backward == range(6, 7)


def test_unequal_passes_stay_one_step() -> None:
    step = _step_of(nodes("FBFFBo"))
    assert step.microbatches == 1
    assert step.kept == list(range(6))


def test_what_follows_the_backward_pass_is_of_the_update() -> None:
    step = _step_of(nodes("FBffo"))
    assert step.phases == dict.fromkeys((2, 3, 4), "optimizer")


def test_the_step_of_another_optimizer_ends_the_graph() -> None:
    """Iterations end with the step of the first one: the others begin the next iteration."""
    step = _step_of(nodes("oofFBo"))
    assert step.kept == [2, 3, 4, 5, 0, 1]
    assert step.moved == {0, 1}


@pytest.mark.parametrize(
    ("phases", "message"),
    [("FBoFB", "updates parameters between backward passes"), ("FFo", "has no backward pass")],
)
def test_what_no_strategy_knows_is_refused(phases: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _step_of(nodes(phases))


SCRIPT = ("graph", "capture", "--script", "train.py")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (SCRIPT, "add --hardware h100-sxm"),
        ((*SCRIPT, "--hardware", "h100-sxm"), "train.py: no such script"),
        ((*SCRIPT, "--hardware", "h100-sxm", "--batch", "4"), "--batch has no effect"),
        ((*SCRIPT, "--hardware", "h100-sxm", "--ranks", "4"), "--script shares its model itself"),
        (("graph", "capture"), "name one model, or a script"),
        (("graph", "capture", "mlp", "--hardware", "h100-sxm"), "are of --script train.py"),
    ],
)
def test_bad_input_is_said_in_a_line(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "world", "message"),
    [("sharded", "4", "shards its gradients between 2 ranks"), ("pipeline", "2", "as a pipeline")],
)
def test_scripts_of_which_strategies_are_not_asked(
    script: str, world: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(Path(__file__).parent / "scripts" / f"{script}.py")
    command = ["graph", "capture", "--script", path, "--hardware", "h100-sxm", "--quiet"]
    assert main([*command, "--world-size", world]) == 1
    assert message in capsys.readouterr().err
