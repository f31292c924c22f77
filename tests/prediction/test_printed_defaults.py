"""Whatever moves an answer by more than a tenth is printed with it, though nobody gave it.

Each default is given another value, one at a time. Where the iteration then takes more than a
tenth longer or shorter, the line of the default must be in what the unchanged command prints.
"""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from paracosm.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@cache
def printed(*flags: str) -> str:
    """Return the standard output of a prediction; it does not depend on the folder or the test."""
    with redirect_stdout(io.StringIO()) as out:
        assert main(["predict", *flags]) == 0
    return out.getvalue()


def time(flags: list[str]) -> float:
    return float(json.loads(printed(*flags, "--json"))["iteration_time"])


def rows(flags: list[str]) -> dict[str, str]:
    """Return what a prediction prints below its first line, by the names of the rows; and what that
    line says, its computation and strategy.
    """
    answer, _, *lines = printed(*flags).splitlines()
    parts = [line.split("  ", 1) for line in takewhile(bool, lines)]
    parts += [[name, answer] for name in ("dtype", "optimizer", "strategy")]
    return {name.strip(): text.strip() for name, text in (part for part in parts if len(part) > 1)}


CAPTURED = ["--model", "gpt-small", "--hardware", "t4"]
JOB = ["--model", "mpt-125m", "--hardware", "t4", "--batch", "1", "--workers", "8"]
FLAT = [*JOB, "--bandwidth", "10Gbit/s"]
DDP, FSDP = [*JOB, "--strategy", "ddp"], [*JOB, "--strategy", "fsdp"]
H100 = ["--model", "mpt-125m", "--hardware", "h100-sxm", "--workers", "2", "--strategy", "ddp"]
PIPELINE = [*JOB, "--strategy", "pp=4, dp=2"]
SEVERAL = [*JOB, "--strategy", "pp=4, dp=2, microbatches=4"]
TENSOR = [*JOB, "--strategy", "tp=4, dp=2"]

DEFAULTS: list[tuple[list[str], list[str], str, str]] = [
    # Of a captured step on one device.
    (CAPTURED, ["--batch", "8"], "batch", "64"),
    (CAPTURED, ["--dtype", "float16"], "dtype", "float32"),
    (CAPTURED, ["--no-train"], "by default", "train yes"),
    ([*CAPTURED, "--batch", "1"], ["--launch", "200us"], "launching an op", "5 us"),
    # Of a job.
    (JOB, ["--strategy", "fsdp"], "strategy", "dp=8"),
    (JOB, ["--duration-cv", "0.5"], "by default", "duration cv 0"),
    (JOB, ["--slowdown", "1.6"], "computing beside collectives", "1.189 times"),
    (FLAT, ["--latency", "10ms"], "cluster", "latency 0 s"),
    (FLAT, ["--sharing", "serial"], "cluster", "fair sharing"),
    # Of a strategy; what is after the comma is added to it.
    (PIPELINE, [", microbatches=8"], "strategy by default", "microbatches=1"),
    (PIPELINE, [", recompute=yes"], "strategy by default", "recompute=no"),
    (DDP, [", zero=3"], "strategy by default", "zero=0"),
    (DDP, [", all_reduce=tree"], "strategy by default", "all_reduce=auto"),
    (TENSOR, [", sp=yes"], "strategy by default", "sp=no"),
    (H100, [", float8=yes"], "strategy by default", "float8=no"),
]
MORE: list[tuple[list[str], list[str], str, str]] = [
    # They move an answer, and are printed, by what the others are.
    (CAPTURED, ["--shape", "64"], "shape", "128"),
    (CAPTURED, ["--optimizer", "adam"], "optimizer", "sgd"),
    (CAPTURED, ["--foreach"], "by default", "foreach no"),
    (CAPTURED, ["--dropout"], "by default", "dropout no"),
    (JOB[:-4] + JOB[-2:], ["--batch", "4"], "batch", "1"),
    (JOB, ["--shape", "512"], "shape", "2048"),
    (FLAT, ["--overhead", "10ms"], "cluster", "overhead 0 s"),
    (FLAT, ["--duplex", "half"], "cluster", "full duplex"),
    ([*FLAT, "--latency", "3ms"], ["--no-pipelined"], "cluster", "pipelined"),
    ([*FLAT, "--strategy", "ps"], ["--servers", "4"], "strategy", "servers=1"),
    (PIPELINE, [", overlap=no"], "strategy by default", "overlap=yes"),
    (DDP, [", bucket=2GiB"], "strategy by default", "bucket=25MiB"),
    (DDP, [", offload=1GB/s"], "strategy by default", "offload=no"),
    (FSDP, [", prefetch=0"], "strategy by default", "prefetch=1"),
    (FSDP, [", shard=4"], "strategy by default", "shard=all"),
    (H100, [", offload_optimizer=yes"], "strategy by default", "offload_optimizer=no"),
    (SEVERAL, [", gpipe"], "strategy by default", "1f1b"),
]


@pytest.mark.parametrize(
    ("flags", "other", "row", "value"),
    [
        pytest.param(*each, id=" ".join([*each[0][1:2], *each[1]]), marks=marks)
        for defaults, marks in ((DEFAULTS, ()), (MORE, pytest.mark.slow))
        for each in defaults
    ],
)
def test_a_default_that_moves_the_answer_is_printed(
    flags: list[str], other: list[str], row: str, value: str
) -> None:
    changed = [*flags[:-1], flags[-1] + other[0]] if other[0].startswith(",") else [*flags, *other]
    if abs(time(changed) / time(flags) - 1) > 0.1:
        assert value in rows(flags)[row]


def test_most_of_these_defaults_do_move_the_answer() -> None:
    """Else the table would hold nothing; by hand, a pipeline of 4 stages and one micro-batch is
    idle three quarters of the time, and eight micro-batches take less than eight times as long.
    """
    several = [*PIPELINE[:-1], PIPELINE[-1] + ", microbatches=8"]
    assert 1.1 < time(several) / time(PIPELINE) < 4
    assert time([*FLAT, "--latency", "10ms"]) > 1.1 * time(FLAT)
    assert time([*CAPTURED, "--dtype", "float16"]) < 0.9 * time(CAPTURED)


MACHINES: dict[str, Any] = {
    "topology": "hierarchical",
    "workers": 16,
    "group_size": 8,
    "links": {"default": {"bandwidth": "200GB/s"}, "between_groups": {"bandwidth": "100Gbit/s"}},
}


def on(cluster: dict[str, Any]) -> list[str]:
    """Return the flags of a job on a cluster file, whose name is that of its content."""
    text = json.dumps(cluster)
    path = Path(f"{crc32(text.encode()):x}.yaml")
    path.write_text(text)
    job = ["--model", "mpt-125m", "--hardware", "h100-sxm", "--batch", "1"]
    return [*job, "--cluster", str(path)]


def test_the_cards_of_a_machine_are_given_or_refused(capsys: Capture) -> None:
    """Eight cards or one between eight workers: what leaves a machine takes eight times as long."""
    assert main(["predict", *on(MACHINES)]) == 2
    assert ".yaml: cards: missing: how many network cards the 8 workers" in capsys.readouterr().err
    found = {}
    for cards in (8, 1):
        job = on(MACHINES | {"cards": cards})
        found[cards] = time(job)
        assert rows(job)["cluster"].endswith(f"; cards {cards}")
    assert found[1] > 2 * found[8]
    # One group, or one worker in each: nobody shares a card.
    for change in ({"workers": 8}, {"group_size": 1}):
        assert time(on(MACHINES | change)) > 0


@pytest.mark.parametrize(("device", "cards"), [("h100-sxm", 8), ("dgx-1-v100", 4)])
def test_or_they_are_those_of_the_node_in_the_catalogue(
    device: str, cards: int, capsys: Capture
) -> None:
    """A DGX H100 has eight cards for eight devices, a DGX-1 four."""
    nodes = {"count": 16, "device": device}
    job = on(MACHINES | {"workers": nodes})
    assert rows(job)["cluster"].endswith(f"; cards {cards}")
    assert main(["predict", *on(MACHINES | {"workers": nodes, "group_size": 4})]) == 2
    assert "cards: missing" in capsys.readouterr().err


def test_what_a_flag_replaces_is_said_and_nothing_else_is_replaced() -> None:
    """NVLink too is as slow as --bandwidth says; memory stays that of the device."""
    job = ["--model", "mpt-125m", "--hardware", "dgx-h100", "--batch", "1", "--workers", "16"]
    plain, flat = rows(job), rows([*job, "--bandwidth", "100Gbit/s"])
    assert "links" not in plain
    assert flat["links"] == (
        "--bandwidth in place of those of the NVIDIA DGX H100: 2.966 Tbit/s within it, 384 Gbit/s "
        "a card, 8 cards for 8: all 16 are joined by one kind of link, also within a node"
    )
    assert "links of 100 Gbit/s" in flat["cluster"]
    assert flat["memory"].partition(":")[0] == plain["memory"].partition(":")[0] == "fits"
    assert time([*job, "--bandwidth", "100Gbit/s"]) > time(job)


def test_too_large_a_model_does_not_fit_whatever_flags_say_of_links() -> None:
    """Of 8 B parameters, 16 bytes each, 128 GB: on no 80 GiB."""
    job = ["--model", "llama-8b", "--hardware", "h100-sxm", "--batch", "1", "--workers", "2"]
    assert rows([*job, "--bandwidth", "1Tbit/s"])["memory"].partition(":")[0] == "does not fit"
    Path("two.yaml").write_text("{topology: switch, workers: 2, links: {default: {}}}")
    assert rows([*job[:-2], "--cluster", "two.yaml"])["memory"].partition(":")[0] == "does not fit"


def test_the_study_of_a_run_gives_its_answer_again() -> None:
    """Links of the node are not written down as flags, which would replace them."""
    job = ["--model", "mpt-125m", "--hardware", "dgx-h100", "--batch", "1", "--workers", "16"]
    assert main(["predict", *job, "--out", "run", "--quiet"]) == 0
    assert time(["run/study.yaml"]) == time(job)


@pytest.mark.parametrize("verb", ["train", "predict", "plan"])
def test_the_summary_has_the_defaults_in_effect_and_no_others(verb: str, capsys: Capture) -> None:
    flags = {
        "train": ["--updates", "4", "--workers", "2", "--timing-only"],
        "predict": [*CAPTURED, "--batch", "2"],
        "plan": [
            *("--model", "mpt-125m", "--hardware", "t4", "--max-workers", "1"),
            *("--tokens", "1e9", "--batch-tokens", "1e5"),
        ],
    }[verb]
    assert main([verb, *flags, "--json"]) == 0
    defaults = json.loads(capsys.readouterr().out)["defaults"]
    match verb:
        case "train":
            assert (defaults["algorithm"], defaults["servers"]) == ("asgd", "1")
            assert defaults["compute"] == "lognormal(20ms, 0.1)"
            assert not {"workers", "updates", "lr"} & defaults.keys()  # given, given, of no effect
        case "predict":
            assert (defaults["dtype"], defaults["optimizer"]) == ("float32", "sgd")
            assert not {"batch", "workers", "duration_cv", "latency"} & defaults.keys()
        case "plan":
            assert defaults == {}
