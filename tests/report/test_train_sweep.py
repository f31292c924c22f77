"""What several trainings depend on: which is best, where it stops paying, and the charts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import make_run
from written_page import figures_of, page_of, text_of

from paracosm.report.figures import plotly_figure
from paracosm.report.runs import described
from paracosm.report.sweep_charts import as_numbers, sweep_charts
from paracosm.results import TrainingSummary
from paracosm.results.chart import Area, Chart, Curve, Dots
from paracosm.results.comparison import comparisons_of_best
from paracosm.results.view import Goal, Trial, Trials
from paracosm.training.comparison import compare, failure_of, quantities, rounded_up, trials_of

CHANCE = {"accuracy": 0.1, "loss": 2.3, "examples": 400}
LOST = {"final_loss": 2.4, "final_accuracy": 0.1}
GOAL = Goal("accuracy >= 0.95", True)


def trial(
    time: float | None, varied: dict[str, Any], rate: float = 1000.0, **changes: Any
) -> Trial:
    """Return a run that took so long to the goal, at ten updates a second."""
    known = {
        "status": "done",
        "final_loss": 0.1,
        "final_accuracy": 0.96,
        "virtual_time": 20.0,
        "examples_per_second": rate,
        "chance": CHANCE,
    }
    summary = TrainingSummary.from_dict(known | changes)
    return Trial(
        varied, summary, failure_of(summary), time, None if time is None else round(10 * time)
    )


def training_charts(trials: Trials) -> list[Chart]:
    return sweep_charts(trials, quantities(trials))


def by_workers(algorithm: str, times: dict[int, float | None], **changes: Any) -> list[Trial]:
    return [
        trial(time, {"algorithm": algorithm, "workers": workers}, **changes)
        for workers, time in times.items()
    ]


def test_the_best_is_named_with_how_much_and_up_to_where_it_pays() -> None:
    runs = by_workers("ssgd", {1: 40.0, 4: 11.0, 16: 9.0, 64: 8.5})
    runs += by_workers("asgd", {1: 40.0, 4: 10.0, 16: 8.0, 64: None})
    # 16 workers: 8 s, a fifth of 40 s; 64 take 8.5 s at best. ssgd takes 8.5 s.
    assert compare(Trials(runs, GOAL)) == (
        "Accuracy >= 0.95 is reached soonest with asgd, 16 workers: 8 s, 5 times as fast as 1 "
        "worker and 1.1 times as fast as ssgd, 64 workers. More than 16 do not pay."
    )


def test_workers_that_still_pay_are_said() -> None:
    runs = by_workers("ssgd", {1: 40.0, 4: 11.0, 16: 4.0})
    assert compare(Trials(runs, GOAL)) == (
        "Accuracy >= 0.95 is reached soonest with ssgd, 16 workers: 4 s, 10 times as fast as 1 "
        "worker. More workers pay up to 16, the most that were tried."
    )


def test_runs_are_named_by_no_more_than_tells_them_apart() -> None:
    none = {"final_loss": None, "final_accuracy": None, "chance": None}
    runs = [
        trial(6.0, {"algorithm": "asgd", "workers": 4, "lr": 0.1, "batch": 32}),
        trial(3.0, {"algorithm": "asgd", "workers": 8, "lr": 0.2, "batch": 16}),
        # Nothing was computed here, so that it neither reaches the goal nor misses it.
        trial(None, {"algorithm": "ssgd", "workers": 16, "lr": 0.2, "batch": 32}, **none),
    ]
    assert compare(Trials(runs, GOAL)) == (
        "Accuracy >= 0.95 is reached soonest with asgd, 8 workers: 3 s, 2 times as fast as 4 "
        "workers. More workers pay up to 8, the most that were tried."
    )


def test_designs_that_take_as_long_are_as_fast() -> None:
    runs = [trial(5.0, {"what_if": each}) for each in ("none", "links: bandwidth 2x")]
    assert compare(Trials(runs, GOAL)) == (
        "Accuracy >= 0.95 is reached soonest with unchanged: 5 s, as fast as links: bandwidth 2x."
    )


def test_seeds_count_with_their_median_and_those_that_never_come_as_later_than_all() -> None:
    slow = [trial(time, {"lr": 0.1, "seed": seed}) for seed, time in enumerate([6.0, 5.0, 7.0])]
    rash = [trial(time, {"lr": 0.2, "seed": seed}) for seed, time in enumerate([2.0, None, None])]
    assert compare(Trials(slow + rash, GOAL)) == (
        "Accuracy >= 0.95 is reached soonest with lr 0.1: 6 s (median of 3 seeds, 80 % of seeds "
        "within 4.12 to 8.58 s)."
    )


def test_seeds_of_one_design_say_within_which_time_others_reach_the_target() -> None:
    # exp(m +- 1.886 s sqrt(4 / 3)) of the logarithms, whose mean is 1.782 and deviation 0.1685
    seeds = [trial(time, {"seed": seed}) for seed, time in enumerate([6.0, 5.0, 7.0])]
    assert compare(Trials(seeds, GOAL)) == (
        "Accuracy >= 0.95 is reached after 6 s (80 % of seeds within 4.12 to 8.58 s)."
    )
    assert compare(Trials(seeds[:1], GOAL)) is None
    late = [*seeds[:1], *(trial(None, {"seed": seed}) for seed in (1, 2))]
    assert compare(Trials(late, GOAL)) == (
        "Accuracy >= 0.95 is reached by less than half of the seeds."
    )


def test_what_does_not_learn_stands_beside_what_does() -> None:
    runs = by_workers("asgd", {1: 4.0})
    runs += by_workers("asgd", {16: None, 32: None}, **LOST)
    runs += by_workers("staleness-aware", {1: 4.0, 16: 2.0, 32: 1.0})
    said = compare(Trials(runs, GOAL))
    assert said is not None
    assert said.endswith(
        "asgd does not learn with 16 or 32 workers, where staleness-aware does (2 of 6 runs)."
    )


def test_a_few_seeds_that_do_not_learn_are_counted() -> None:
    runs = [trial(4.0, {"lr": lr, "seed": seed}) for lr in (0.1, 0.2) for seed in (0, 1, 2)]
    runs[5] = trial(None, runs[5].varied, status="diverged")
    said = compare(Trials(runs, GOAL))
    assert said is not None
    assert said.endswith("1 of 6 runs do not learn.")


def test_without_a_target_the_lowest_loss_is_said_too() -> None:
    fast = trial(1.0, {"algorithm": "asgd"}, final_loss=0.3, final_accuracy=0.9)
    slow = trial(2.0, {"algorithm": "ssgd"}, final_loss=0.2, final_accuracy=0.93)
    assert compare(Trials([fast, slow], Goal("training loss 0.4", False))) == (
        "Training loss 0.4 (the lowest loss that every learning run reaches) is reached soonest "
        "with asgd: 1 s, 2 times as fast as ssgd. Lowest at "
        "the end: ssgd, loss 0.2 (93 % accuracy) after 20 s."
    )


def test_where_nothing_was_computed_throughput_decides() -> None:
    none = {"final_loss": None, "final_accuracy": None, "chance": None}
    rates = {1: 1000.0, 2: 1900.0, 4: 2000.0}
    runs = [trial(None, {"workers": w}, rate=rate, **none) for w, rate in rates.items()]
    assert compare(Trials(runs, None)) == (
        "Highest throughput with 4 workers: 2,000 examples/s, 2 times as fast as 1 worker. "
        "More than 2 do not pay."
    )
    assert [chart.name for chart in training_charts(Trials(runs, None))] == ["throughput"]


def test_energy_is_drawn_where_the_nodes_power_is_known() -> None:
    runs = [trial(1.0, {"workers": w}, energy=200.0 * w) for w in (1, 2, 4)]
    chart = {chart.name: chart for chart in training_charts(Trials(runs, GOAL))}["energy"]
    line = next(mark for mark in chart.marks if isinstance(mark, Curve))
    assert line.y.tolist() == [200, 400, 800]


def test_nothing_is_compared_where_only_the_seed_differs_and_there_is_no_target() -> None:
    level = replace(GOAL, is_target=False)
    runs = Trials([trial(1.0, {"seed": 0}), trial(2.0, {"seed": 1})], level)
    assert compare(runs) is None
    assert training_charts(runs) == []


def charts_of(runs: list[Trial], goal: Goal | None = GOAL) -> dict[str, Chart]:
    found = {chart.name: chart for chart in training_charts(Trials(runs, goal))}
    for chart in found.values():
        go.Figure(plotly_figure(chart, ["a", "b"]))  # raises for what Plotly does not know
    return found


def test_seeds_are_a_median_with_a_band() -> None:
    times = {1: [30.0, 20.0, 25.0], 4: [6.0, 9.0, 7.0], 16: [3.0, None, 2.0]}
    runs = [
        trial(time, {"workers": workers, "seed": seed})
        for workers, each in times.items()
        for seed, time in enumerate(each)
    ]
    chart = charts_of(runs)["time_to_goal"]
    (curve,) = (mark for mark in chart.marks if isinstance(mark, Curve))
    assert curve.x.tolist() == [1, 4, 16]
    assert curve.y.tolist() == [25, 7, 3]
    (band,) = (mark for mark in chart.marks if isinstance(mark, Area))
    assert band.y.tolist() == [20, 6, 2, 3, 9, 30]
    assert chart.x.log  # 16 times as many workers
    assert chart.y.log  # 15 times as long
    assert chart.caption == (
        "Medians over 3 seeds, with bands from the lowest to the highest. Crosses: 1 of 9 runs "
        "never get there (1 too slow)."
    )
    (dots,) = (mark for mark in chart.marks if isinstance(mark, Dots))
    assert dots.labels[2].endswith("16 workers: 3 s, median of 3 seeds (2 to 3 s); 1 of 3 never")


def test_what_never_gets_there_is_a_cross_beyond_all_that_do() -> None:
    runs = by_workers("asgd", {1: 4.0, 2: 3.0}) + by_workers("asgd", {4: None}, **LOST)
    chart = charts_of(runs)["time_to_goal"]
    (cross,) = (m for m in chart.marks if isinstance(m, Dots) and m.symbol == "cross")
    assert (cross.series, cross.x.tolist()) == ("never", [4.0])
    assert 4.0 < cross.y[0] < (chart.y.limits or (0, 0))[1]
    assert chart.caption == "Crosses: 1 of 3 runs never get there (1 at chance)."
    assert not chart.y.log
    losses = charts_of(runs)["final_loss"]
    (cross,) = (m for m in losses.marks if isinstance(m, Dots) and m.symbol == "cross")
    assert (cross.series, cross.y.tolist()) == ("at chance", [2.4])


def test_algorithms_differ_in_hue_and_workers_in_shade_and_symbol() -> None:
    runs = [
        trial(1.0, {"algorithm": algorithm, "workers": workers, "lr": lr})
        for algorithm in ("asgd", "ssgd")
        for workers in (2, 8, 32)
        for lr in (0.1, 0.2)
    ]
    chart = charts_of(runs)["throughput"]
    curves = [mark for mark in chart.marks if isinstance(mark, Curve)]
    assert [(curve.series, curve.color, curve.shade) for curve in curves] == [
        ("asgd, 2 workers", 0, 0.45),
        ("asgd, 8 workers", 0, pytest.approx(0.725)),
        ("asgd, 32 workers", 0, 1.0),
        ("ssgd, 2 workers", 1, 0.45),
        ("ssgd, 8 workers", 1, pytest.approx(0.725)),
        ("ssgd, 32 workers", 1, 1.0),
    ]
    dots = [mark.symbol for mark in chart.marks if isinstance(mark, Dots)]
    assert dots == 2 * ["diamond", "triangle", "dot"]
    assert chart.x.label == "lr"


def test_a_second_argument_makes_small_multiples_on_the_same_axes() -> None:
    runs = [
        trial(10 * lr if size == "1MB" else 200 * lr, {"lr": lr, "message_size": size})
        for lr in (0.1, 0.2, 0.4)
        for size in ("1MB", "2MB")
    ]
    charts = charts_of(runs)
    one, two = charts["time_to_goal_1"], charts["time_to_goal_2"]
    assert one.title == "Time to accuracy >= 0.95: message size 1MB"
    assert two.title == "Time to accuracy >= 0.95: message size 2MB"
    assert one.y == two.y
    assert one.y.log  # 1 to 80 s


def test_what_is_no_quantity_stands_side_by_side() -> None:
    runs = [trial(time, {"algorithm": name}) for name, time in (("asgd", 2.0), ("ssgd", 3.0))]
    chart = charts_of(runs)["time_to_goal"]
    assert chart.y.names == ("asgd", "ssgd")
    (dots,) = chart.marks
    assert isinstance(dots, Dots)
    assert (dots.x.tolist(), dots.y.tolist()) == ([2.0, 3.0], [0.0, 1.0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.1, 0.2], ("", [0.1, 0.2])),
        (["1ms", "20ms"], ("s", [0.001, 0.02])),
        (["0s", "2ms"], ("s", [0.0, 0.002])),
        (["1Gbit/s", "25Gbit/s"], ("B/s", [1.25e8, 3.125e9])),
        (["100Mbit/s", "inf"], None),
        (["1MB", "25MB"], ("B", [1e6, 25e6])),
        (["iid", "shared"], None),
        ([True, False], None),
        (["1ms", "1MB"], None),
    ],
)
def test_quantities_have_places_on_an_axis(
    values: list[Any], expected: tuple[str, list[float]] | None
) -> None:
    found = as_numbers(values)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found[0] == expected[0]
        assert list(found[1].values()) == pytest.approx(expected[1])


def test_the_goal_is_the_lowest_loss_that_all_reach_that_learn(tmp_path: Path) -> None:
    # The loss is 2.3 / sqrt(update), evaluated every 20 updates of 20 ms each.
    runs = [make_run(tmp_path / str(n), workers=n, updates=20 * n) for n in (2, 4, 8)]
    runs.append(make_run(tmp_path / "diverged", "ssgd", workers=2, status="diverged"))
    found = trials_of(described(runs))
    # The shortest ends at 2.3 / sqrt(40) = 0.36366.
    assert found.goal == Goal("training loss 0.37", False)
    assert [run.updates for run in found.runs] == [40, 40, 40, 40]
    assert found.runs[0].time == pytest.approx(0.8)
    assert found.variables["workers"] == [2, 4, 8]


@given(st.floats(1e-30, 1e30))
def test_a_level_is_round_and_no_run_that_counts_misses_it(value: float) -> None:
    level = rounded_up(value)
    assert value <= level <= 1.21 * value
    assert float(f"{level:.2g}") == level


@pytest.mark.parametrize(("value", "level"), [(0.36366, 0.37), (0.29, 0.29), (97.2, 98)])
def test_levels_have_two_digits(value: float, level: float) -> None:
    assert rounded_up(value) == level


def test_a_page_of_several_begins_with_what_they_depend_on(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(n), workers=n, updates=100) for n in (1, 4, 16)]
    html = page_of(tmp_path, *runs)
    names = list(figures_of(html))
    assert names[:4] == ["final_loss", "time_to_goal", "updates_to_goal", "throughput"]
    text = text_of(html)
    assert text.index("is reached soonest with") < text.index("What it depends on")
    assert text.index("What it depends on") < text.index("Convergence")


def test_runs_of_one_name_are_told_apart_by_what_they_differ_in(tmp_path: Path) -> None:
    import yaml

    runs = [make_run(tmp_path / str(n)) for n in (0, 1)]
    for lr, run in zip((0.1, 0.2), runs, strict=True):
        file = run.path / "study.yaml"
        study = yaml.safe_load(file.read_text())
        file.write_text(yaml.safe_dump({**study, "train": {**study["train"], "lr": lr}}))
        run.__dict__.pop("study", None)
    assert [run.name for run in described(runs)] == [
        "asgd, 4 workers, lr 0.1",
        "asgd, 4 workers, lr 0.2",
    ]


def test_curves_have_the_hue_of_their_algorithm_and_the_shade_and_dashes_of_their_workers(
    tmp_path: Path,
) -> None:
    runs = [
        make_run(tmp_path / f"{algorithm}{workers}{seed}", algorithm, workers=workers, seed=seed)
        for algorithm in ("asgd", "ssgd")
        for workers in (4, 16)
        for seed in (0, 1)
    ]
    styles = [run.style for run in described(runs)]
    pale = 0.45
    assert styles == [
        *((0, pale, 1), (0, pale, 2), (0, 1.0, 0), (0, 1.0, 1)),
        *((1, pale, 1), (1, pale, 2), (1, 1.0, 0), (1, 1.0, 1)),
    ]
    curves = figures_of(page_of(tmp_path, *runs))["loss_time"]["data"]
    shown = {curve["meta"]["run"]: curve["line"] for curve in curves if curve["mode"] == "lines"}
    assert shown[2]["color"] == "#0072B2"
    assert shown[6]["color"] == "#D55E00"
    assert shown[0]["color"] not in (shown[2]["color"], shown[6]["color"])
    assert [shown[run]["dash"] for run in range(4)] == ["dash", "dot", "solid", "dash"]


def test_virtual_time_is_logarithmic_where_runs_differ_by_ten(tmp_path: Path) -> None:
    def axis(*ends: float) -> str:
        runs = [
            make_run(tmp_path / f"{ends}{place}", workers=place + 1, virtual_time=end)
            for place, end in enumerate(ends)
        ]
        return str(figures_of(page_of(tmp_path, *runs))["accuracy_time"]["layout"]["xaxis"]["type"])

    assert axis(2.0, 19.0) == "linear"
    assert axis(2.0, 20.0) == "log"


def test_nothing_is_so_many_times_as_fast_as_what_costs_nothing() -> None:
    designs = {(("lr", rate),): [trial(1.0, {"lr": rate})] for rate in (0.1, 0.2)}
    costs = dict(zip(designs, (0.0, 1.0), strict=True))
    assert comparisons_of_best(designs, costs, "Best with", str) == "Best with lr 0.1: 0.0."
