"""What a page says of predictions: the answer, key figures, remarks, tables."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import PurePath
from typing import Any

from paracosm.cluster.description import cluster_text
from paracosm.prediction.charts import ranks_name, sections
from paracosm.prediction.parameter_servers import view as servers
from paracosm.prediction.replica import BY_DEFAULT, ONE_EACH
from paracosm.prediction.worker_charts import ideal_examples
from paracosm.price import cost_text
from paracosm.results import (
    IterationSummary,
    JobSummary,
    RankedStrategy,
    StrategyPlanSummary,
    StrategySearch,
    Summary,
    ThroughputRow,
    ThroughputSummary,
)
from paracosm.results.charts import PARTS, shown_parts
from paracosm.results.comparison import best_sentence
from paracosm.results.hardware import (
    Offer,
    best_offers,
    compares_hardware,
    hardware_side_by_side,
    measured_text,
    nearest_text,
)
from paracosm.results.summaries import DeviceMemory, Measured, OneReplica
from paracosm.results.view import (
    Figure,
    Known,
    Quantity,
    Run,
    Table,
    Trial,
    Trials,
    View,
    assumed_hardware,
    assumed_values,
    assuming,
    counted,
    figure,
    percent,
    table,
    unless_failed,
)
from paracosm.units import format_between, format_duration, format_energy, format_size

HALF = 0.5  # of ideal: the efficiency up to which numbers of workers are counted as good
ROWS = 10  # of a table of ops or places
RANK_ROWS = 16  # kinds of ranks in a table
MOST = 0.5  # share of the time, estimated, that is worth a remark
LEAST = 0.005  # share of an iteration below which a cause of its time has no column


def iteration_sentence(summary: IterationSummary) -> str:
    """Say how long an iteration on one device takes, and what limits it."""
    interval = summary.interval
    time, within = format_between(
        interval.low, summary.iteration_time, interval.high, format_duration
    )
    text = f"An iteration of {summary.model} takes {time} ({within}){step_text(summary)}."
    return " ".join(filter(None, (text, _assuming(summary), summary.bottleneck)))


def job_sentence(summary: JobSummary) -> str:
    """Say what the most workers give, from where on more of them lose, and what would help."""
    rows, last = summary.throughput, summary.throughput[-1] if summary.throughput else None
    rate = summary.examples_per_second
    chosen = "" if summary.search is None else ", the fastest strategy that fits"
    how = f"({summary.strategy}{chosen})"
    time, workers = format_duration(summary.iteration_time), counted(summary.workers, "worker")
    if rate is None or last is None:
        text = f"With {workers} {how} an iteration takes {time}{step_text(summary)}."
    else:
        share = "" if last.efficiency is None else f", {percent(last.efficiency)} of ideal"
        give = "gives" if summary.workers == 1 else "give"
        digits = f"{rate:,.0f}" if rate >= 1000 else _few_digits(rate)
        text = (
            f"{workers} {give} {digits} examples/s{share}: an iteration takes {time} "
            f"{how}{step_text(summary)}."
        )
    efficient = _efficient_up_to(rows)
    energy = None if last is None else last.energy
    gain = None if last is None else (last.if_twice_as_fast or {}).get("links")
    sentences = [
        text,
        _assuming(summary),
        None if energy is None else f"An iteration takes {format_energy(energy)}.",
        None if efficient is None else f"Efficiency is at least {HALF:.0%} {efficient}.",
        summary.bottleneck,
        None if gain is None else f"Links twice as fast: {gain:+.0%}.",
    ]
    return " ".join(filter(None, sentences))


def _assuming(summary: IterationSummary | JobSummary) -> str | None:
    return assuming(what_is_assumed(summary.durations or {}, summary.bottleneck.partition(":")[0]))


def what_is_assumed(origins: Mapping[str, str], limit: str) -> list[str]:
    """Return what nobody has given, and moves the answer by more than a tenth.

    More sequences a device, or another stack, nearly always do; what the host takes to launch an
    op, or a link, where the device waits for it. `limit` is what limits the job, in one word.
    """
    parts = [ONE_EACH] * (ONE_EACH in origins)
    parts += ["the default software"] * (BY_DEFAULT in origins.get("software", ""))
    launching = assumed_values(origins, ["launching an op"] if limit == "Launching" else [])
    parts += [f"{text} to launch an op" for text in launching]
    return parts + assumed_hardware(origins, waits_for_links=limit == "Communication")


def step_text(summary: IterationSummary | JobSummary | StrategyPlanSummary) -> str:
    """Return ", in bfloat16 with adamw, by pytorch-compile", as far as that is known."""
    dtype = "" if summary.dtype is None else f", in {summary.dtype}"
    stack = "" if summary.stack is None else f", by {summary.stack}"
    match summary.optimizer:
        case None:
            return f"{dtype}{stack}"
        case "none":
            return f"{dtype}, without an update{stack}"
    text = f"{dtype} with {summary.optimizer}" if dtype else f", with {summary.optimizer}"
    return f"{text}{stack}"


def _efficient_up_to(rows: Sequence[ThroughputRow]) -> str | None:
    """Say up to which of several numbers of workers at least half of the ideal is kept."""
    known = [row for row in rows if row.efficiency is not None]
    if len(known) < 2:
        return None
    good = list(takewhile(lambda row: (row.efficiency or 0.0) >= HALF, known))
    if not good:
        return "with none of these numbers of workers"
    most = ", the most that were tried" if len(good) == len(known) else ""
    return f"up to {counted(good[-1].workers, 'worker')}{most}"


def _interval(summary: Any) -> str | None:
    interval = summary.get("interval")
    if interval is None:
        return None
    low, high = interval["low"], interval["high"]
    return format_between(low, summary["iteration_time"], high, format_duration)[1]


def _measured(measured: Measured) -> str:
    time, spread = format_between(
        measured["p10"], measured["iteration_time"], measured["p90"], format_duration
    )
    return f"{time} ({spread})"


def _coverage(coverage: Mapping[str, float]) -> str | None:
    shares = {source: f"{s:.1%}" if s >= 0.0005 else "<0.1%" for source, s in coverage.items()}
    return ", ".join(f"{share} {source}" for source, share in shares.items()) or None


def _unchanged(summary: Known) -> str | None:
    before = summary.get("unchanged") or {}
    for key, write in (
        ("iteration_time", format_duration),
        ("steps_per_second", "{:.4g} steps/s".format),
    ):
        if before.get(key) is not None and summary.get(key) is not None:
            ratio = summary[key] / before[key] - 1 if before[key] else 0.0
            return f"{write(before[key])} (with the changes {_signed(ratio)})"
    return None


def _of_job(text: Callable[[JobSummary], str | None]) -> Figure:
    return lambda summary: text(summary) if isinstance(summary, JobSummary) else None


def _joules(summary: Known) -> float | None:
    return rows[-1].energy if (rows := summary.get("throughput")) else None


def _energy(summary: Summary) -> str | None:
    joules = _joules(summary)
    step = "a step" if isinstance(summary, ThroughputSummary) else "an iteration"
    return None if joules is None else f"{format_energy(joules)} {step}"


def _memory_needed(summary: Known) -> str | None:
    """Return "fits: 45 GB of 85.9 GB"; what tensors hold alone where no device is known."""
    if (memory := summary.get("memory")) is None:
        peak, fits = summary.get("peak_memory"), summary.get("fits")
        if peak is None:
            return None
        verdict = "" if fits is None else "fits: " if fits else "does not fit: "
        return f"{verdict}{format_size(peak)} in tensors"
    total, capacity = format_size(memory["total"]), format_size(memory["capacity"])
    return f"{memory['verdict']}: {total} of {capacity}"


FIGURES: Mapping[str, Figure] = {
    "Batch": figure("batch", "n"),
    "Shape": figure("shape"),
    "Dtype": figure("dtype"),
    "Optimizer": figure("optimizer"),
    "Software": figure("stack"),
    "Strategy": figure("strategy"),
    "Workers": figure("workers", "n"),
    **servers.FIGURES,
    "Examples an iteration": _of_job(lambda s: f"{s.examples:,}" if s.examples else None),
    "Iteration time": figure("iteration_time", "s"),
    "Unchanged": _unchanged,
    "Interval": _interval,
    "Measured": figure("measured", _measured),
    "Error": figure("measured.error", "{:+.1%}".format),
    "Energy": _energy,
    "Examples/s": figure("examples_per_second", lambda rate: _few_digits(rate)),
    "Tokens/s": figure("tokens_per_second", "{:,.0f}".format),
    "Cost": lambda summary: _priced(summary),
    "Efficiency": figure("efficiency", "%"),
    f"At least {HALF:.0%} efficient": _of_job(lambda s: _efficient_up_to(s.throughput)),
    "Memory": _memory_needed,
    "Coverage": figure("coverage", _coverage),
}


def _number(key: str) -> Any:
    return unless_failed(lambda summary: summary.get(key))


def _exposed(summary: Known) -> float | None:
    """Return the share of an iteration in which a worker of a job waits for communication."""
    mean = (summary.get("breakdown") or {}).get("mean") or {}
    return mean["exposed_communication"] / summary["iteration_time"] if mean else None


QUANTITIES = (
    Quantity("throughput", "Throughput", _number("examples_per_second"), "examples/s"),
    Quantity("steps", "Steps of all workers", _number("steps_per_second"), "steps/s"),
    Quantity("iteration", "Iteration time", _number("iteration_time"), "s"),
    Quantity("varied_efficiency", "Efficiency", _number("efficiency"), "%"),
    Quantity("exposed", "Exposed communication", unless_failed(_exposed), "%"),
    Quantity("peak_memory", "Peak memory", _number("peak_memory"), "B"),
    Quantity("energy", "Energy of an iteration, or a step", unless_failed(_joules), "J"),
)


def _quantities(trials: Trials) -> Sequence[Quantity]:
    """Return what is drawn of several runs: of different hardware also tokens/s and their cost."""
    if not compares_hardware(trials):
        return QUANTITIES
    known = trials.runs[0].summary
    money = "worker-hours" if known.get("price") is None else known.get("currency") or "money"
    tokens = Quantity("tokens", "Tokens/s", _number("tokens_per_second"), "tokens/s")
    cost = Quantity("cost", f"Cost of {_per(known)}", _number("cost"), money)
    throughput, *others = QUANTITIES
    first = throughput if known.get("tokens_per_second") is None else tokens
    return (first, cost, *others)


def _trials(runs: Sequence[Run]) -> Trials:
    """Return runs side by side; those of different hardware with the fastest first."""
    chosen = all(run.arguments.get("strategy") == "auto" for run in runs)
    trials = hardware_side_by_side(runs, *(("batch",) if chosen else ()))
    if not compares_hardware(trials):
        return trials
    return replace(trials, runs=sorted(trials.runs, key=_slowness))


def _slowness(trial: Trial) -> float:
    rate = trial.summary.get("examples_per_second")
    unfit = trial.failure is not None or not rate or trial.summary.get("fits") is False
    return math.inf if unfit else 1 / rate


def _offers(trials: Trials) -> list[Offer]:
    return [
        Offer(
            devices=trial.summary.get("workers") or 1,
            hardware=trial.summary.hardware,
            stack=trial.summary.stack,
            speed=trial.summary.examples_per_second,
            fast=_rate(trial.summary),
            cost=None if trial.summary.get("price") is None else trial.summary.cost,
            cheap=_cost(trial.summary),
        )
        for trial in trials.runs
        if _slowness(trial) < math.inf and trial.summary.get("cost") is not None
    ]


def _device_name(summary: Known) -> str:
    return f"{summary.get('workers') or 1:,} x {summary['hardware']}"


def _rate(summary: Known) -> str:
    tokens = summary.get("tokens_per_second")
    if tokens is not None:
        return f"{tokens:,.0f} tokens/s"
    return f"{_few_digits(summary['examples_per_second'])} examples/s"


def _cost(summary: Any) -> str:
    return f"{cost_text(summary, summary.cost)} {_per(summary)}"


def _per(summary: Known) -> str:
    known = summary.get("tokens_per_second") is not None
    return f"a million {'tokens' if known else 'examples'}"


def _priced(summary: Summary) -> str | None:
    is_priced = summary.get("price") is not None and summary.get("cost") is not None
    return _cost(summary) if is_priced else None


def _rate_of_each(summary: Any) -> str | None:
    """Return the tokens/s of one device."""
    rate = summary.tokens_per_second
    return None if rate is None else f"{rate / (summary.get('workers') or 1):,.0f}"


def _examples_per_second(summary: Any) -> str | None:
    """Return the examples/s of what has no tokens."""
    rate, has_tokens = summary.examples_per_second, summary.tokens_per_second is not None
    return None if rate is None or has_tokens else _few_digits(rate)


def _ranked(trials: Trials) -> Table | None:
    """Return a table of different hardware, the fastest first."""
    if not compares_hardware(trials):
        return None
    shown = [trial.summary for trial in trials.runs if trial.summary.get("hardware") is not None]
    if not shown:
        return None
    return table(
        "Hardware, fastest first",
        shown,
        {
            "hardware": _device_name,
            "software": figure("stack"),
            "tokens/s": figure("tokens_per_second", "{:,.0f}".format),
            "of a device": _rate_of_each,
            "examples/s": _examples_per_second,
            f"cost, {_per(shown[0])}": lambda s: None if s.cost is None else cost_text(s, s.cost),
            "iteration": figure("iteration_time", "s"),
            "90 %": _interval,
            "memory": figure("peak_memory", "B"),
            "fits": figure("fits", lambda fits: "yes" if fits else "no"),
            "nearest measured": nearest_text,
            "strategy": lambda s: s.get("strategy"),
        },
    )


def _compare(trials: Trials) -> str | None:
    """Say which of several runs has the highest throughput, and which hardware costs least."""
    if compares_hardware(trials):
        unfit = sum(trial.summary.get("fits") is False for trial in trials.runs)
        if (text := best_offers(_offers(trials), unfit)) is not None:
            return text
    rates = {"examples_per_second": "examples/s", "steps_per_second": "steps/s"}
    key = next((key for key in rates if all(t.summary.get(key) for t in trials.runs)), None)
    if key is None:
        return None
    return best_sentence(
        trials,
        "Highest throughput with",
        lambda summary: 1 / summary[key],
        lambda cost: f"{_few_digits(1 / cost)} {rates[key]}",
    )


def _name(known: Known) -> str | None:
    model, batch = known.get("model"), known.get("batch")
    if model is None:
        return servers.name(known)
    parts = [PurePath(str(model)).stem if str(model).endswith(".graph") else str(model)]
    parts += [] if batch is None else [f"batch {batch}"]
    if isinstance(workers := known.get("workers"), int):
        strategy, rows = str(known.get("strategy") or ""), list(known.get("throughput") or [])
        if len(rows) > 1:  # what the strategy says of data parallelism is of the last of them
            strategy = re.sub(r"\bdp=\d+", "dp", strategy)
        first = f"{rows[0]['workers']:,} to " if len(rows) > 1 else ""
        parts += [strategy, f"{first}{workers:,} workers"]
    return ", ".join(part for part in parts if part)


def _remarks(summary: Summary) -> Mapping[str, str | None]:
    match summary:
        case ThroughputSummary():
            return {**_of_cluster(summary), **servers.remarks(summary)}
        case JobSummary():
            defaults = (summary.strategy_defaults or {}).items()
            devices = summary.devices.items()
            return {
                **_of_cluster(summary),
                "strategy by default": ", ".join(f"{key}={value}" for key, value in defaults),
                "strategies": None if summary.search is None else search_text(summary.search),
                "one replica": _replica(summary.replica),
                "baselines, one replica": _baselines(summary, summary.replica.iteration_time),
                "devices": "; ".join(f"{device}: {origin}" for device, origin in devices),
                **_of_timings(summary),
            }
        case IterationSummary():
            return {
                "bottleneck": summary.bottleneck,
                "baselines, the iteration": _baselines(summary, summary.iteration_time),
                "machine": _machine(summary.measured),
                **_of_timings(summary),
            }
    return {}


def _of_cluster(summary: JobSummary | ThroughputSummary) -> dict[str, str | None]:
    return {
        "bottleneck": summary.bottleneck,
        "unchanged bottleneck": (summary.unchanged or {}).get("bottleneck"),
        "cluster": cluster_text(summary.cluster or {}),
    }


def search_text(search: StrategySearch | StrategyPlanSummary) -> str:
    """State how many strategies were considered, and whether another can be faster."""
    rest = "no other can be faster" if search.complete else "others may be faster"
    return (
        f"{search.candidates:,} considered, {search.too_large:,} too large for the memory, "
        f"{search.predicted:,} predicted; {rest}"
    )


def _replica(replica: OneReplica) -> str:
    time, rate = format_duration(replica.iteration_time), replica.examples_per_second
    if (replica.split or 1) > 1:
        return f"{time} of computing on each of the {replica.split} devices that split it"
    measured = replica.measured
    return (
        f"{time} on one device"
        + ("" if measured is None else f" (measured: {format_duration(measured)})")
        + ("" if rate is None else f", {_few_digits(rate)} examples/s")
    )


def _baselines(summary: IterationSummary | JobSummary, time: float) -> str:
    errors = {} if summary.measured is None else summary.measured.baseline_errors
    return ", ".join(
        f"{name} {format_duration(seconds)}" + (f" ({_signed(errors[name])})" if errors else "")
        for name, seconds in (summary.baselines or {}).items()
        # On a CPU ops add up: such a baseline is the prediction itself.
        if not math.isclose(seconds, time)
    )


def _machine(measured: Measured | None) -> str | None:
    slower = None if measured is None else measured.slower
    if measured is None or slower is None or abs(slower) < 0.005:
        return None
    error = measured.error_at_its_speed
    at_it = "" if error is None else f": at that speed the prediction is {_signed(error)} off"
    return f"{_signed(slower)} time for the same work when the iteration was measured{at_it}"


def _of_timings(summary: IterationSummary | JobSummary) -> dict[str, str | None]:
    """Return how durations are known, and how far those of measured runs are off."""
    differences = f" ({summary.differences})" if summary.differences else ""
    return {
        "nearest measured": measured_text(summary.nearest),
        "graph": f"{summary.model}: from {summary.source}" if summary.source else None,
        "timings of": f"{summary.environment or ''}{differences}",
        "profiled now": _profiled(summary),
    }


def _warnings(summary: Summary) -> dict[str, str | None]:
    """Return what does not fit into memory, and what is not known of the device."""
    if not isinstance(summary, IterationSummary | JobSummary):
        return {}
    other_device = summary.captured_for not in (None, summary.device)
    misfits = summary.misfits[1:3] if isinstance(summary, JobSummary) else ()
    return {
        "too large": " ".join(misfits),
        "to measure": _to_measure(summary),
        "captured for": f"{summary.captured_for}: the timed device may run other ops"
        if other_device
        else None,
        "not timed": _untimed(summary.untimed or ()),
    }


def _to_measure(summary: IterationSummary | JobSummary) -> str | None:
    """Suggest a measurement where most of the time is estimated for this machine."""
    coverage, count = summary.coverage or {}, summary.estimated_ops or 0
    share = sum(coverage.get(source, 0.0) for source in ("interpolated", "estimated", "unknown"))
    here = summary.differences == ""
    if not here or not count or share <= MOST or summary.not_profiled:
        return None
    return f"{count:,} ops, {share:.0%} of the time: --exact times them here, on this machine"


def _profiled(summary: IterationSummary | JobSummary) -> str:
    count = summary.profiled or 0
    parts = [f"{count:,} ops, added to the database"] if count else []
    refused = (summary.not_profiled or {}).items()
    return "; ".join([*parts, *(f"not {op}: {reason}" for op, reason in islice(refused, 3))])


def _untimed(names: Sequence[str]) -> str | None:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(names[:5])}{more}: host-only ops, counted as launches" if names else None


def _tables(summary: Summary) -> list[Table]:
    match summary:
        case ThroughputSummary():
            return servers.tables(summary)
        case JobSummary():
            ranked = [] if summary.search is None else summary.search.ranked
            several = summary.throughput if len(summary.throughput) > 1 else []
            return [
                strategies_table("Fastest strategies", ranked, {}),
                _scaling(several),
                _ranks(summary.breakdown["ranks"]),
                *_memory(summary.memory),
                *_times(summary, ", one replica"),
            ]
        case IterationSummary():
            return [*_memory(summary.memory), *_times(summary, "")]
    return []


def _memory(memory: DeviceMemory | None) -> list[Table]:
    if memory is None:
        return []
    columns: Mapping[str, Figure] = {
        "held for": figure("what"),
        "bytes": figure("bytes", "B"),
        "by": figure("source"),
    }
    tables = [table(f"Memory of {memory.rank}", memory.lines, columns)]
    if memory.on_host:
        tables.append(table(f"Memory of the host for {memory.rank}", memory.on_host, columns))
    return tables


def strategies_table(
    title: str, ranked: Sequence[RankedStrategy], first: Mapping[str, Figure]
) -> Table:
    """Return a table of strategies with their shares of an iteration, the best first; behind
    other columns, if any.
    """

    def share(cause: str) -> Callable[[RankedStrategy], str]:
        return lambda design: f"{design.causes.get(cause, 0.0) / design.iteration_time:.0%}"

    causes = dict.fromkeys(
        cause
        for design in ranked
        for cause, seconds in design.causes.items()
        if seconds >= LEAST * design.iteration_time
    )
    an_example: Mapping[str, Figure] = {
        "an example": lambda design: f"{design.iteration_time / design.examples:.4g} s"
    }
    return table(
        title,
        ranked,
        {
            **first,
            "strategy" if first else title: figure("strategy"),
            "micro-batch": figure("micro_batch", "n"),
            "iteration": figure("iteration_time", "s"),
            **({} if first else an_example),
            "memory": figure("peak_memory", "B"),
            **{cause: share(cause) for cause in causes},
        },
    )


def _scaling(rows: Sequence[ThroughputRow]) -> Table:
    def share(part: str) -> Callable[[ThroughputRow], str | None]:
        return lambda row: f"{(row.breakdown or {})[part] / (row.iteration_time or 1.0):.1%}"

    has_bubble = any((row.breakdown or {})["bubble"] > 0 for row in rows)
    parts = {"exposed": "exposed_communication", "waiting": "waiting"}
    parts |= {"bubble": "bubble"} if has_bubble else {}
    return table(
        "Scaling",
        rows,
        {
            "workers": figure("workers", "n"),
            "iteration": figure("iteration_time", "s"),
            "examples/s": figure("examples_per_second", _few_digits),
            "ideal": lambda row: _few_digits(ideal_examples(row)),
            "efficiency": figure("efficiency", "%"),
            **{header: share(part) for header, part in parts.items()},
        },
    )


def _ranks(ranks: Sequence[Mapping[str, Any]]) -> Table:
    return table(
        "Time by rank",
        ranks,
        {
            "rank": ranks_name,
            **{PARTS[part][0]: figure(part, "s") for part in shown_parts(ranks)},
            "peak memory": figure("peak_memory", "B"),
        },
        RANK_ROWS,
        lambda rest: f"{sum(group['ranks'] for group in rest):,} other ranks",
    )


def _times(summary: IterationSummary | JobSummary, of_what: str) -> list[Table]:
    """Return the largest times by phase, op type and place, and the sum of the others."""
    titles = {"phase": "Time by phase", "op": "Time by op type", "place": "Time by place"}
    tables = []
    for key, title in titles.items():
        times = (summary.breakdown or {}).get(key) or {}
        total = sum(times.values()) or 1.0
        shown = dict(islice(times.items(), ROWS))
        if len(times) > ROWS:
            others = counted(len(times) - ROWS, "other")
            shown[others] = sum(times.values()) - sum(shown.values())
        rows = [(name, seconds, seconds / total) for name, seconds in shown.items()]
        columns: Mapping[str, Figure] = {
            key: lambda row: row[0],
            "time": lambda row: format_duration(row[1]),
            "share": lambda row: f"{row[2]:.1%}",
        }
        tables.append(table(f"{title}{of_what}", rows, columns))
    return tables


def _few_digits(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:,.1f}" if rate >= 10 else f"{rate:.3g}"


def _signed(error: float) -> str:
    return f"{error:+.1%}"


VIEW = View(
    figures=FIGURES,
    sections=sections,
    trials=_trials,
    ranked=_ranked,
    quantities=_quantities,
    compare=_compare,
    subject=figure("environment"),
    name=_name,
    remarks=_remarks,
    warnings=_warnings,
    tables=_tables,
    decisive=frozenset(
        {
            *(
                "Batch",
                "Shape",
                "Unchanged",
                "Saturates at",
                "Interval",
                "Measured",
                "Error",
                "Energy",
            ),
            *("Examples/s", "Tokens/s", "Cost", "Memory", "Coverage"),
            *("cluster", "target", "strategy by default", "launching an op", "links"),
            *("experts", "splitting layers"),
            *("computing beside collectives", "Fastest strategies", "Scaling", "Throughput"),
        }
    ),
    endings={
        "interrupted": lambda summary: (
            f"The run was interrupted. These are the predictions up to {summary.workers:,} workers."
        )
    },
)
