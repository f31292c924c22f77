"""Strategies as text: what parses, comes back and is refused."""

from __future__ import annotations

from typing import Any

import pytest
from four_ops import two_layers
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster import switch
from paracosm.errors import InputError
from paracosm.jobs.strategies.build import build_job
from paracosm.jobs.strategies.strategy import (
    ALL_REDUCES,
    SCHEDULES,
    SHARDINGS,
    Strategy,
    parse_strategy,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "workers", "strategy"),
    [
        ("single", 1, Strategy()),
        ("ddp", 8, Strategy(data=8)),
        (
            "dp=64, tp=8, pp=4, schedule=1f1b, microbatches=32",
            2048,
            Strategy(data=64, tensor=8, pipeline=4, microbatches=32),
        ),
        ("tp=8,pp=4", 64, Strategy(data=2, tensor=8, pipeline=4)),
        ("tp=8", None, Strategy(tensor=8)),
        ("fsdp, dp=4, prefetch=2", None, Strategy(data=4, sharding="parameters", prefetch=2)),
        ("zero2, tp=2", 8, Strategy(data=4, tensor=2, sharding="gradients")),
        ("dp=2, zero=1", None, Strategy(data=2, sharding="optimizer")),
        ("ps, servers=2", 3, Strategy(data=3, servers=2)),
        (
            "ps-async, iterations=10",
            3,
            Strategy(data=3, servers=1, asynchronous=True, iterations=10),
        ),
        ("gpipe, pp=4, microbatches=8", 4, Strategy(pipeline=4, schedule="gpipe", microbatches=8)),
        (
            "interleaved, pp=2, chunks=3, microbatches=4",
            2,
            Strategy(pipeline=2, schedule="interleaved", chunks=3, microbatches=4),
        ),
        ("ddp, bucket=10MiB", 2, Strategy(data=2, bucket=10 * MIB)),
        ("pp=2, cut=h.6, recompute=yes", 2, Strategy(pipeline=2, cut=("h.6",), recompute=True)),
        ("tp=4, sp=yes, cp=2", 16, Strategy(data=2, tensor=4, sequence=True, context=2)),
        ("cp=2, cp_form=gather", 2, Strategy(context=2, context_form="gather")),
        (
            "ep=4, routing=zipf(1.2), capacity=1.25",
            8,
            Strategy(data=8, expert=4, routing="zipf(1.2)", capacity=1.25),
        ),
        ("fsdp, shard=4", 8, Strategy(data=8, sharding="parameters", shard=4)),
        ("recompute=selective, dp=1", None, Strategy(recompute="selective")),
        ("zero-bubble, pp=2", 2, Strategy(pipeline=2, schedule="zero-bubble")),
        ("states=bfloat16, dp=2", 2, Strategy(data=2, states="bfloat16")),
        ("offload=25GB/s, float8=yes", 1, Strategy(offload=25e9, float8=True)),
        ("offload_optimizer=yes, dp=2", 2, Strategy(data=2, offload_optimizer=True)),
    ],
)
def test_what_texts_mean(text: str, workers: int | None, strategy: Strategy) -> None:
    assert parse_strategy(text, workers) == strategy
    assert parse_strategy(str(strategy)) == strategy


@st.composite
def sound(draw: st.DrawFn) -> Strategy:
    """Draw a strategy in which everything that is given has an effect."""
    data, pipeline = draw(st.integers(2, 9)), draw(st.integers(1, 5))
    values: dict[str, Any] = {"data": data, "microbatches": draw(st.integers(1, 40))}
    values["recompute"] = draw(st.booleans())
    sizes = {"bucket": draw(st.integers(1, 1 << 30)), "first_bucket": draw(st.integers(1, 1 << 30))}
    if draw(st.booleans()):
        values |= {"servers": draw(st.integers(1, 3)), "iterations": draw(st.integers(1, 9))}
        return Strategy(**values, **sizes, asynchronous=draw(st.booleans()))
    values |= {"tensor": draw(st.integers(1, 9)), "pipeline": pipeline}
    sharding = draw(st.sampled_from(SHARDINGS))
    if pipeline > 1:
        values["overlap"] = draw(st.booleans())
        values["schedule"] = draw(st.sampled_from(SCHEDULES))
        if values["schedule"] == "interleaved":
            values |= {"chunks": draw(st.integers(2, 3)), "microbatches": 2 * pipeline}
        stages = pipeline * values.get("chunks", 1)
        if draw(st.booleans()):
            values["cut"] = tuple(f"h.{n}" for n in range(1, stages))
    if sharding == "parameters":
        return Strategy(**values, sharding=sharding, prefetch=draw(st.integers(0, 3)))
    if sharding == "none":
        values["all_reduce"] = draw(st.sampled_from(ALL_REDUCES))
    return Strategy(**values, sharding=sharding, **sizes)


@given(strategy=sound())
def test_every_strategy_comes_back_from_its_text(strategy: Strategy) -> None:
    assert parse_strategy(str(strategy)) == strategy
    assert hash(parse_strategy(str(strategy))) == hash(strategy)


@pytest.mark.parametrize(
    ("text", "workers", "message"),
    [
        ("", None, "empty"),
        ("microbatch=4", None, 'unknown key "microbatch": did you mean "microbatches"?'),
        ("fdsp", 4, 'unknown name "fdsp": did you mean "fsdp"?'),
        ("dp=four", None, 'dp: cannot read "four" as a number'),
        ("dp=2.5", None, "dp must be a whole number, not 2.5"),
        ("dp=0", None, "dp must be 1 or more, not 0"),
        ("dp=inf", None, "dp must be a whole number, not inf"),
        ("dp=2, dp=3", None, '"dp=2" and "dp=3" set the same thing twice'),
        ("zero=1, dp=2, fsdp", None, '"fsdp" and "zero=1" set the same thing twice'),
        ("gpipe, 1f1b, pp=2", None, '"gpipe" and "1f1b" set the same thing twice'),
        ("ddp, fsdp, dp=2", None, '"ddp" and "fsdp" are two ways to spread a job: choose one'),
        ("ps-async, ps, dp=2", None, '"ps-async" and "ps" are two ways to spread a job'),
        ("ps, ps, dp=2", None, '"ps" and "ps" set the same thing twice'),
        ("dp, tp=2", None, "dp needs a value: write dp=..."),
        ("single, dp=2", None, '"single" cannot be combined'),
        ("dp=2, bucket=1 Mug", None, 'unknown size unit "Mug"'),
        ("dp=2, bucket=0", None, "bucket must be above 0"),
        ("dp=3, tp=4", 16, "dp=3 x tp=4 = 12 ranks, but the cluster has 16 workers: dp=4 fits"),
        ("tp=2", 7, "tp=2: 2 ranks, which does not divide 7 workers: tp=1 or 8 workers fits"),
        ("tp=4, pp=3", 16, "which does not divide 16 workers: pp=2 or 12 workers fits"),
        ("tp=3, pp=4, zero1", 16, "which does not divide 16 workers: tp=2 or 12 workers fits"),
        ("dp=3, tp=5", 19, "15 ranks, but the cluster has 19 workers: 20 workers would fit"),
        ("dp=3, tp=5", 16, "15 ranks, but the cluster has 16 workers: 15 workers would fit"),
        ("tp=5", 16, "tp=5: 5 ranks, which does not divide 16"),
        ("tp=0", 16, "tp must be 1 or more"),
        ("ddp", None, "ddp needs a number of workers: add --workers 8, or dp=8"),
        ("fsdp", 1, "zero=3 has no effect with dp=1: give dp=2 or more"),
        ("dp=2, zero=4", None, "ZeRO has stages 0, 1, 2 and 3"),
        ("dp=2, zero=optimiser", None, 'zero: cannot read "optimiser"'),
        ("tp=2, bucket=1MiB", None, "bucket has no effect with dp=1"),
        ("dp=2, prefetch=2", None, "prefetch has an effect with zero=3 (fsdp) only"),
        ("fsdp, dp=2, bucket=1MiB", None, "bucket has no effect with zero=3"),
        ("zero1, dp=2, all_reduce=tree", None, "all_reduce=tree has no effect with zero"),
        ("dp=2, all_reduce=rung", None, 'unknown all_reduce "rung": did you mean "ring"?'),
        ("gpipe", 1, "schedule=gpipe has no effect with pp=1"),
        ("pp=2, schedule=1b1f", None, 'unknown schedule "1b1f": did you mean "1f1b"?'),
        ("pp=2, chunks=2", None, "chunks=2 belongs to schedule=interleaved"),
        ("pp=2, schedule=interleaved", None, "schedule=interleaved needs chunks=2 or more"),
        (
            "pp=4, interleaved, microbatches=6",
            None,
            "microbatches that pp=4 divides, not 6: microbatches=8 fits",
        ),
        ("pp=3, cut=h.1", None, "cut has 1 layers, but 3 stages are cut at 2"),
        ("dp=2, overlap=no", None, "overlap has no effect with pp=1"),
        ("sp=yes", 2, "sp=yes has no effect with tp=1: give tp=2 or more"),
        ("dp=4, ep=3", None, "out of dp x cp = 4, which 3 does not divide: ep=2 fits"),
        ("dp=4, capacity=2", None, "capacity has no effect with ep=1"),
        ("dp=4, routing=zipf(1)", None, "routing has no effect with ep=1"),
        ("dp=4, ep=2, capacity=1.5", None, "no effect with routing=uniform"),
        ("dp=4, shard=2", None, "shard has an effect with zero only: add zero=3"),
        ("fsdp, dp=8, shard=3", None, "shard=3 must divide dp x cp = 8, and be less: shard=2 fits"),
        ("fsdp, dp=3, shard=3", None, "be less: leave it out"),
        ("fsdp, dp=8, shard=2, ep=2", None, "two ways to group replicas: choose one"),
        ("zero-bubble", 2, "schedule=zero-bubble has no effect with pp=1"),
        ("cp=2, cp_form=rings", 2, 'cp_form: unknown form "rings": did you mean "ring"'),
        ("dp=2, states=bf16", 2, 'states: unknown type of number "bf16"'),
        ("dp=2, cp_form=ring", 2, "cp_form has no effect with cp=1"),
        ("cp=3, tp=2", 16, "tp=2 x cp=3 = 6 ranks, which does not divide 16 workers: cp=2 or"),
        ("offload=0, dp=2", None, "offload must be above 0, not 0"),
        ("dp=2, offload_optimizer=cpu", None, 'offload_optimizer is "yes" or "no", not "cpu"'),
        ("ps, dp=2, offload_optimizer=yes", None, "no effect where parameter servers update"),
        ("dp=2, recompute=maybe", None, "recompute is one of no, yes, selective"),
        ("dp=4, ep=3", None, "ep=3 ranks share experts out of dp x cp = 4"),
        ("dp=2, tp=2, sp=yes, ep=3, etp=1", None, "ep x etp = 3 does not divide dp x cp x tp = 4"),
        ("dp=2, tp=2, ep=2, etp=1", None, "part of the sequence: add sp=yes"),
        ("dp=2, etp=-1", None, "etp: a number must be 0 or more, not -1"),
        ("dp=2, iterations=3", None, "iterations has an effect with parameter servers only"),
        ("ps, dp=2, tp=2", None, "parameter servers go with dp alone"),
        ("ps, dp=2, servers=1001", None, "at most 1,000 servers, not 1,001"),
        ("ps, dp=2, servers=0", None, "ps needs servers=1 or more"),
    ],
)
def test_what_is_refused(text: str, workers: int | None, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_strategy(text, workers)
    assert message in str(caught.value)
    assert str(caught.value).startswith("strategy: ")
    assert "\n" not in str(caught.value)


def test_a_cluster_of_another_size_is_refused() -> None:
    with pytest.raises(InputError, match="dp=2: 2 ranks, but the cluster has 3 workers: dp=3 fits"):
        build_job(two_layers(), switch(3), Strategy(data=2))


@pytest.mark.parametrize(
    ("text", "workers", "words"),
    [(5, 8, "write it as a text"), ("ddp", "8", "is whole"), ("ddp", 2.5, "is whole")],
)
def test_values_of_other_types_are_refused(text: Any, workers: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_strategy(text, workers=workers)
    assert str(parse_strategy("ddp", workers=8.0)) == "dp=8"  # type: ignore[arg-type]
