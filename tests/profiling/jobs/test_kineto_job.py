"""Job profiles from Kineto traces: recorded here, and written by hand with times that are known."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.cli import main
from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile
from paracosm.profiling.jobs.file import load_job_profile
from paracosm.profiling.jobs.kineto import job_profile_of_trace, parameters_of_model

torch = pytest.importorskip("torch")
nn = torch.nn

Event = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Keep the small ops here from waiting for other threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Traces recorded here.


class Block(nn.Module):
    """Two layers and a norm around a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        return self.norm(self.second(self.first(x).relu())) + x


class Deep(nn.Module):
    """Blocks with a frozen and an unused layer, which have no gradients.

    Args:
        shared: whether the first block runs behind each block again.
        reentrant: of checkpoints around the blocks; None for none.
    """

    def __init__(self, shared: bool = False, reentrant: bool | None = None) -> None:
        super().__init__()
        self.entry, self.exit = nn.Linear(16, 32), nn.Linear(32, 5)
        self.blocks = nn.ModuleList(Block(32) for _ in range(3))
        self.frozen = nn.Linear(32, 32).requires_grad_(False)
        self.unused = nn.Linear(7, 7)
        self.shared, self.reentrant = shared, reentrant

    def forward(self, x: Any) -> Any:
        x = self.frozen(self.entry(x))
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.reentrant)
            if self.shared:
                x = self.blocks[0](x)
        return self.exit(x)


class Tied(nn.Module):
    """A transformer whose last layer's weight is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(6, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: Any) -> Any:
        x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.layers(x)).flatten(0, 1)


def recorded(
    path: Path,
    model: Any,
    *,
    inputs: Any = None,
    targets: Any = None,
    shapes: bool = True,
    pieces: int = 1,
    clip: bool = False,
    keep_zeros: bool = False,
    steps: int = 2,
) -> Path:
    """Record steps of a model whose modules' and gradients' times are noted by ranges."""
    torch.manual_seed(0)
    inputs = torch.randn(24, 16) if inputs is None else inputs
    targets = torch.randint(5, (24,)) if targets is None else targets
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    note_ranges(model)
    plan = torch.profiler.schedule(wait=0, warmup=1, active=steps, repeat=1)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=plan, record_shapes=shapes
    ) as profiler:
        for _ in range(steps + 1):
            optimizer.zero_grad(set_to_none=not keep_zeros)
            for _ in range(pieces):
                nn.functional.cross_entropy(model(inputs), targets).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return path


def note_ranges(model: Any) -> None:
    """Put a range around what each module does, and an empty one behind each gradient."""

    def enclose(name: str, module: Any) -> None:
        ranges: list[Any] = []

        def enter(*_: Any) -> None:
            ranges.append(torch.profiler.record_function(f"module {name}"))
            ranges[-1].__enter__()

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(lambda *_: ranges.pop().__exit__(None, None, None))

    def made(name: str) -> Callable[[Any], None]:
        def hook(_: Any) -> None:
            with torch.profiler.record_function(f"gradient {name}"):
                pass

        return hook

    for name, module in model.named_modules():
        enclose(name, module)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(made(name))


def annotations(path: Path) -> dict[int, dict[str, list[tuple[float, float]]]]:
    """Return begins and ends (us) of ranges by name, of each step."""
    events = json.loads(path.read_text())["traceEvents"]
    spans = [e for e in events if e["ph"] == "X" and e.get("cat") == "user_annotation"]
    marks = {
        int(e["name"].partition("#")[2]): (e["ts"], e["ts"] + e["dur"])
        for e in spans
        if e["name"].startswith("ProfilerStep")
    }
    found: dict[int, dict[str, list[tuple[float, float]]]] = {}
    for number, (begin, end) in marks.items():
        within: dict[str, list[tuple[float, float]]] = {"": [(begin, end)]}
        for each in sorted(spans, key=lambda e: float(e["ts"])):
            if begin <= each["ts"] < end:
                span = (each["ts"], each["ts"] + each["dur"])
                within.setdefault(each["name"], []).append(span)
        found[number] = within
    return found


def trained(model: Any) -> dict[str, Any]:
    """Return the parameters that get a gradient."""
    return {
        name: parameter
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and not name.startswith("unused")
    }


def moved(profile: JobProfile, resource: int) -> int:
    return int(profile.size[profile.resource == resource].sum())


def seconds(profile: JobProfile, resource: int) -> Any:
    return (profile.end - profile.begin)[:, profile.resource == resource].sum(axis=1)


MODELS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "plain": lambda: (Deep(), {}),
    "shared": lambda: (Deep(shared=True), {}),
    "reentrant checkpoints": lambda: (Deep(reentrant=True), {}),
    "checkpoints": lambda: (Deep(reentrant=False), {}),
    "a batch in pieces": lambda: (Deep(), {"pieces": 3}),
    "gradients set to zero": lambda: (Deep(), {"keep_zeros": True}),
    "half precision": lambda: (
        Deep().to(torch.bfloat16),
        {"inputs": torch.zeros(24, 16, dtype=torch.bfloat16)},
    ),
    "tied": lambda: (
        Tied(),
        {"inputs": torch.randint(50, (4, 6)), "targets": torch.randint(50, (24,))},
    ),
}


@pytest.mark.filterwarnings("ignore:None of the inputs")
@pytest.mark.parametrize("name", MODELS)
def test_recorded_steps(name: str, tmp_path: Path) -> None:
    model, how = MODELS[name]()
    path = recorded(tmp_path / "trace.json", model, **how)
    profile = job_profile_of_trace(path)
    parameters = trained(model)
    size = sum(each.numel() * each.element_size() for each in parameters.values())
    assert moved(profile, DOWNLINK) == moved(profile, UPLINK) == size
    truth = annotations(path)
    for step, number in enumerate(profile.provenance["steps"]):
        ranges = truth[number]
        (whole,), (optimizer,) = ranges[""], ranges["Optimizer.step#SGD.step"]
        # The server does what the optimizer did, and the worker all the rest of the step.
        update = optimizer[1] - optimizer[0]
        assert seconds(profile, SERVER)[step] == pytest.approx(update * 1e-6, rel=1e-3)
        worker = whole[1] - whole[0] - update
        assert seconds(profile, WORKER)[step] == pytest.approx(worker * 1e-6, rel=1e-4)
        check_places(profile, step, model, ranges)


def check_places(
    profile: JobProfile, step: int, model: Any, ranges: dict[str, list[tuple[float, float]]]
) -> None:
    """Compare where transfers stand with where modules ran and gradients were noted.

    Times before the optimizer are the same in the profile and in the trace.
    """
    origin = ranges[""][0][0]
    last = {n: spans[-1][0] for n, spans in ranges.items() if n.startswith("gradient ")}
    order = [n.removeprefix("gradient ") for n in sorted(last, key=last.__getitem__)]
    pushes = np.flatnonzero(profile.resource == UPLINK)
    parameters = trained(model)
    assert sorted(order) == sorted(parameters)
    assert [int(profile.size[op]) for op in pushes] == [
        parameters[name].numel() * parameters[name].element_size() for name in order
    ]
    owners: dict[int, list[str]] = {}
    for module, part in model.named_modules():
        for parameter in part.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append(enclosing(module, ranges))
    firsts = sorted(
        min(ranges[f"module {each}"][0] for each in owners[id(parameter)])
        for parameter in parameters.values()
    )
    for name, push in zip(order, pushes, strict=True):
        (maker,) = profile.waits_for(push)
        made = (last[f"gradient {name}"] - origin) * 1e-6
        assert profile.begin[step, maker] <= made <= profile.end[step, maker] + 1e-9
        assert profile.begin[step, push] == profile.end[step, maker] == profile.end[step, push]
    # Pulls stand in the order of use: each is needed within the module that its place says.
    pulls = np.flatnonzero(profile.resource == DOWNLINK)
    for pull, (begin, end) in zip(pulls, firsts, strict=True):
        (needer,) = [op for op in range(profile.ops) if pull in profile.waits_for(op)]
        assert (begin - origin) * 1e-6 <= profile.begin[step, needer] + 1e-9
        assert profile.end[step, needer] <= (end - origin) * 1e-6 + 1e-9
        assert profile.begin[step, pull] == profile.end[step, pull] == 0


def enclosing(module: str, ranges: dict[str, list[tuple[float, float]]]) -> str:
    """Return the innermost module around one that is run itself: some only hold parameters."""
    while f"module {module}" not in ranges:
        module = module.rpartition(".")[0]
    return module


def test_clipped_gradients_are_pushed_behind_the_clipping(tmp_path: Path) -> None:
    path = recorded(tmp_path / "trace.json", Deep(), clip=True)
    profile = job_profile_of_trace(path)
    pushes = np.flatnonzero(profile.resource == UPLINK)
    makers = {profile.kinds[profile.waits_for(op)[0]] for op in pushes}
    assert len(pushes) == 22
    assert makers <= {"aten::mul_", "aten::_foreach_mul_"}


def test_batch_from_the_first_layer_and_the_loss(tmp_path: Path) -> None:
    assert job_profile_of_trace(recorded(tmp_path / "rows.json", Deep())).batch == 24
    model, how = MODELS["tied"]()
    path = recorded(tmp_path / "tokens.json", model, **how)
    assert job_profile_of_trace(path).batch is None
    assert job_profile_of_trace(path, batch=4).batch == 4


def test_without_shapes_the_model_tells_the_bytes(tmp_path: Path) -> None:
    options = CaptureOptions("mlp", shape=(16,), classes=5)
    parameters = parameters_of_model(options)
    from paracosm.graphs.models.mlp import mlp

    paths = [
        recorded(tmp_path / f"{shapes}.json", mlp((16,), 5), shapes=shapes)
        for shapes in (False, True)
    ]
    with pytest.raises(InputError, match="record_shapes=True, or name the model"):
        job_profile_of_trace(paths[0])
    bare, full = (job_profile_of_trace(path, parameters=parameters) for path in paths)
    assert bare.names == full.names
    assert np.array_equal(bare.size, full.size)
    assert np.array_equal(bare.dependencies, full.dependencies)
    model = mlp((16,), 5)
    assert {n: int(s) for n, s in zip(bare.names, bare.size, strict=True) if s} == {
        f"{way} {name}": 4 * parameter.numel()
        for way in ("pull", "push")
        for name, parameter in model.named_parameters()
    }
    with pytest.raises(InputError, match=r"gradient 0 of a step has the shape 5, but the model"):
        job_profile_of_trace(
            paths[1], parameters=parameters_of_model(CaptureOptions("mlp", shape=(16,), classes=6))
        )
    with pytest.raises(InputError, match="but the model has 62: name the model that was traced"):
        job_profile_of_trace(paths[1], parameters=parameters_of_model(CaptureOptions("resnet18")))


# Traces written by hand. Times are in microseconds.


def span(name: str, begin: float, length: float, **arguments: Any) -> Event:
    """Return an op of the loop's thread."""
    where = {"pid": 1, "tid": 1, "ts": begin, "dur": length}
    return {"ph": "X", "cat": "cpu_op", "name": name, **where, "args": arguments}


def mark(name: str, begin: float, length: float) -> Event:
    return {**span(name, begin, length), "cat": "user_annotation"}


def forward(name: str, begin: float, length: float, number: int, *shapes: list[int]) -> Event:
    dims = {"Input Dims": list(shapes), "Input type": ["float"] * len(shapes)}
    return span(name, begin, length, **{"Sequence number": number, "Fwd thread id": 0}, **dims)


def backward(begin: float, length: float, number: int) -> Event:
    numbers = {"Sequence number": number, "Fwd thread id": 1}
    return span("autograd::engine::evaluate_function: MmBackward0", begin, length, **numbers)


def gradient(begin: float, length: float, shape: list[int], kind: str = "float") -> list[Event]:
    dims = {"Input Dims": [shape], "Input type": [kind]}
    name = "torch::autograd::AccumulateGrad"
    return [
        span(f"autograd::engine::evaluate_function: {name}", begin, length),
        span(name, begin, length, **dims),
    ]


def step_of(number: int, at: float, **changes: float) -> list[Event]:
    """Return a step of 100 us and two layers, the first of 3x2 and the second of 5x3 numbers.

    5 us nothing, 10 first, 5 nothing, 20 second, 20 its backward, 10 gradient, 2 nothing, 8 the
    first's backward, 5 gradient, 1 nothing, 10 optimizer, 4 nothing.
    """
    return [
        mark(f"ProfilerStep#{number}", at, 100),
        forward("aten::first", at + 5, 10, 2 * number, [4, 2], [3, 2]),
        forward("aten::second", at + 20, 20, 2 * number + 1, [4, 3], [5, 3]),
        backward(at + 40, 20, 2 * number + 1),
        *gradient(at + 60, 10, [5, 3]),
        backward(at + 72, 8, 2 * number),
        *gradient(at + 80, 5, [3, 2]),
        mark("Optimizer.step#SGD.step", at + 86, changes.get("optimizer", 10)),
        span("aten::add_", at + 87, 2),
    ]


def written(folder: Path, events: list[Event], **header: Any) -> Path:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events, **header}))
    return path


def test_two_layers_by_hand(tmp_path: Path) -> None:
    profile = job_profile_of_trace(written(tmp_path, step_of(0, 0) + step_of(1, 103)))
    assert profile.names == (
        *("pull first 3x2", "pull second 5x3"),
        *("host", "aten::first", "host#2", "aten::second", "host#3", "MmBackward0", "host#4"),
        *("torch::autograd::AccumulateGrad", "host#5", "MmBackward0#2", "host#6"),
        *("torch::autograd::AccumulateGrad#2", "host#7", "host#8"),
        *("push second 5x3", "push first 3x2", "update second 5x3", "update first 3x2"),
    )
    assert profile.size.tolist() == [24, 60, *[0] * 14, 60, 24, 0, 0]
    assert [profile.waits_for(op).tolist() for op in range(profile.ops)] == [
        *([], [], [], [2, 0], [3], [4, 1]),
        *([op - 1] for op in range(6, 15)),
        # What follows the optimizer waits for the updates.
        *([14, 18, 19], [9], [13], [16], [17]),
    ]
    # 10 us of the optimizer: 60 of 84 bytes, and 24 of them.
    long, short = 10 * 60 / 84, 10 * 24 / 84
    begin = [0, 0, 0, 5, 15, 20, 40, 40, 60, 60, 70, 72, 80, 80, 85, 85 + short + 1 - 1]
    end = [0, 0, 5, 15, 20, 40, 40, 60, 60, 70, 72, 80, 80, 85, 86, 85 + short + 4]
    for times, worker, servers in (
        (profile.begin, begin, [70, 85, 70, 85]),
        (profile.end, end, [70, 85, 70 + long, 85 + short]),
    ):
        for step in times:
            assert step * 1e6 == pytest.approx([*worker, *servers])
    assert profile.step_begin * 1e6 == pytest.approx([0, 85 + short + 4 + 3])
    assert profile.step_end * 1e6 == pytest.approx([85 + short + 4, 2 * (85 + short + 4) + 3])
    assert profile.provenance["placed"] == {"sequence number": 2}


def test_servers_get_parameters_by_bytes(tmp_path: Path) -> None:
    profile = job_profile_of_trace(written(tmp_path, step_of(0, 0)), servers=2)
    # The first layer's 24 bytes go to the first server, the second's 60 to the other.
    assert profile.server[:2].tolist() == [0, 1]
    assert profile.server[-4:].tolist() == [1, 0, 1, 0]
    with pytest.raises(InputError, match="servers: 0, but at least 1 is needed"):
        job_profile_of_trace(written(tmp_path, step_of(0, 0)), servers=0)


def test_a_trace_without_an_optimizer_has_updates_of_no_time(tmp_path: Path) -> None:
    events = [each for each in step_of(0, 0) if "Optimizer" not in each["name"]]
    profile = job_profile_of_trace(written(tmp_path, events))
    assert seconds(profile, SERVER).tolist() == [0]
    assert seconds(profile, WORKER) == pytest.approx([100e-6])
    assert "no optimizer" in profile.provenance["updates"]


def test_steps_of_other_ops_are_left_out_and_counted(tmp_path: Path) -> None:
    odd = [*step_of(1, 100), span("aten::item", 197, 1)]
    bare = [each for each in step_of(3, 300) if "Accumulate" not in each["name"]]
    events = [*step_of(0, 0), *odd, *step_of(2, 200), *bare]
    profile = job_profile_of_trace(written(tmp_path, events))
    assert profile.provenance["steps"] == [0, 2]
    assert profile.dropped == {"no gradients": 1, "other ops than in most steps": 1}


def kernel(name: str, begin: float, length: float, number: int, stream: int = 7) -> Event:
    event = span(name, begin, length, device=0, stream=stream, correlation=number)
    return {**event, "cat": "kernel", "pid": 0, "tid": stream}


def launch(begin: float, number: int) -> Event:
    return {**span("cudaLaunchKernel", begin, 1, correlation=number), "cat": "cuda_runtime"}


def test_on_a_device_the_worker_is_what_ran_there(tmp_path: Path) -> None:
    """The device is 100 us behind the host: its first step is longer by that."""

    def launched(step: int) -> list[Event]:
        at, first = 100 * step, 10 * step
        return [
            # The first layer launches two kernels, of which the other's stream is beside the first,
            # the gradients' ops none; the optimizer's range has one.
            *(launch(at + 6, first), launch(at + 8, first + 1), launch(at + 21, first + 2)),
            *(launch(at + 41, first + 3), launch(at + 73, first + 4), launch(at + 88, first + 5)),
            kernel("a", at + 110, 10, first),
            kernel("b", at + 115, 10, first + 1, stream=8),
            kernel("c", at + 130, 20, first + 2),
            kernel("d", at + 150, 15, first + 3),
            kernel("e", at + 165, 20, first + 4),
            kernel("f", at + 185, 15, first + 5),
        ]

    events = [*step_of(0, 0), *launched(0), *step_of(1, 100), *launched(1)]
    profile = job_profile_of_trace(written(tmp_path, events))
    assert profile.provenance["device"] == "cuda"
    work = profile.resource == WORKER
    assert [name for name, mine in zip(profile.names, work, strict=True) if mine] == [
        *("host", "aten::first", "host#2", "aten::second", "host#3", "MmBackward0"),
        *("host#4", "MmBackward0#2", "host#5", "host#6"),
    ]
    lasted = (profile.end - profile.begin)[:, work] * 1e6
    assert lasted[0] == pytest.approx([110, 15, 5, 20, 0, 15, 0, 20, 0, 0])
    # The second step begins on the device when it has done the first: 200 us from the origin.
    assert lasted[1] == pytest.approx([10, 15, 5, 20, 0, 15, 0, 20, 0, 0])
    assert seconds(profile, SERVER) == pytest.approx([15e-6, 15e-6])
    waits = {
        profile.names[op]: [profile.names[d] for d in profile.waits_for(op)]
        for op in range(profile.ops)
    }
    assert waits["aten::first"] == ["host", "pull first 3x2"]
    assert waits["aten::second"] == ["host#2", "pull second 5x3"]
    assert waits["push second 5x3"] == ["MmBackward0"]
    assert waits["push first 3x2"] == ["MmBackward0#2"]
    assert waits["host#6"] == ["host#5", "update second 5x3", "update first 3x2"]


def without(events: list[Event], word: str) -> list[Event]:
    return [each for each in events if word not in each["name"]]


REFUSED: dict[str, tuple[list[Event], dict[str, Any], str]] = {
    "ranks": (
        step_of(0, 0),
        {"distributedInfo": {"rank": 1, "world_size": 4}},
        "rank 1 of a job of 4 ranks, which communicates already: record one process",
    ),
    "collective": (
        [*step_of(0, 0), span("nccl:all_reduce", 81, 1)],
        {},
        "nccl:all_reduce: the job communicates already",
    ),
    "gloo": ([*step_of(0, 0), span("gloo:all_reduce", 81, 1)], {}, "communicates already"),
    "devices": (
        [
            *step_of(0, 0),
            kernel("a", 1, 1, 1),
            {**kernel("b", 1, 1, 2), "args": {"device": 1, "stream": 7, "correlation": 2}},
        ],
        {},
        "it computes on devices 0, 1: record one process",
    ),
    "no training": (
        without(step_of(0, 0), "Accumulate"),
        {},
        r"no gradients \(torch::autograd::AccumulateGrad\): .* ProfilerActivity.CPU",
    ),
    "no marks": (
        without([*step_of(0, 0), *step_of(1, 100)], "ProfilerStep"),
        {},
        r"where its steps begin is not marked \(no ProfilerStep\): call profiler.step\(\)",
    ),
    "gradients outside the marks": (
        [*without(step_of(0, 0), "ProfilerStep"), *without(step_of(1, 200), "Accumulate")],
        {},
        "none of the 1 steps that are marked has gradients",
    ),
    "optimizer first": (
        [*without(step_of(0, 0), "Optimizer"), mark("Optimizer.step#SGD.step", 1, 2)],
        {},
        "step 0: the optimizer runs before the last gradient is there",
    ),
    "two losses": (
        [
            *step_of(0, 0),
            forward("aten::third", 85.1, 0.1, 90, [4, 2], [7, 2]),
            backward(85.3, 0.1, 90),
            *gradient(85.5, 0.1, [7, 2]),
        ],
        {},
        "step 0 has 2 backward passes, of 2 and 1 gradients that are not the same",
    ),
    "batches in pieces of a step each": (
        [*without(step_of(0, 0), "Optimizer"), *step_of(1, 100)],
        {},
        "1 of 2 steps have the optimizer's: call profiler.step",
    ),
    "no type": (
        [
            *without(step_of(0, 0), "Accumulate"),
            *gradient(60, 10, [5, 3], "what"),
            *gradient(80, 5, [3, 2], "what"),
        ],
        {},
        "how large the parameters are is not recorded",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    events, header, message = REFUSED[name]
    path = written(tmp_path, events, **header)
    with pytest.raises(InputError, match=message) as error:
        job_profile_of_trace(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, step_of(0, 0) + step_of(1, 103))
    out = tmp_path / "job.profile"
    assert (
        main(["profile", "import", str(path), "--servers", "2", "--out", str(out), "--quiet"]) == 0
    )
    kept, made = load_job_profile(out), job_profile_of_trace(path, servers=2)
    assert kept.names == made.names
    assert kept.provenance == made.provenance
    assert np.array_equal(kept.server, made.server)
    assert np.array_equal(kept.end, made.end)
    capsys.readouterr()
    written(tmp_path, step_of(0, 0), distributedInfo={"rank": 1, "world_size": 4})
    assert main(["profile", "import", str(path), "--out", str(tmp_path / "other")]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"paracosm: {path}: rank 1 of a job of 4 ranks")


def test_one_step_without_marks(tmp_path: Path) -> None:
    profile = job_profile_of_trace(written(tmp_path, without(step_of(0, 0), "ProfilerStep")))
    assert profile.steps == 1
    assert moved(profile, UPLINK) == 84


def test_a_trace_that_is_cut_off(tmp_path: Path) -> None:
    path = written(tmp_path, step_of(0, 0))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cut off at byte"):
        job_profile_of_trace(path)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(whole))
    assert job_profile_of_trace(packed).ops == 20


Layer = tuple[list[int], list[int], float]


@settings(deadline=None, max_examples=40)
@given(
    layers=st.lists(
        st.tuples(
            st.lists(st.integers(1, 9), min_size=1, max_size=4),
            # Which layers before it are used once more by this one; their parameters' gradients
            # are whole where they were used first.
            st.lists(st.integers(0, 20), max_size=2),
            st.floats(0.5, 20),
        ),
        min_size=1,
        max_size=6,
    ),
    between=st.floats(0, 3),
    update=st.floats(0.5, 50),
    servers=st.integers(1, 3),
)
def test_any_chain_of_layers(
    layers: list[Layer],
    between: float,
    update: float,
    servers: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("chain")
    profile = job_profile_of_trace(written(path, chain(layers, between, update)), servers=servers)
    sizes = [4 * int(np.prod(shape)) for shape, _, _ in layers]
    pulls, pushes, updates, work = (
        np.flatnonzero(profile.resource == each) for each in (DOWNLINK, UPLINK, SERVER, WORKER)
    )
    assert profile.size[pulls].tolist() == sizes
    assert profile.size[pushes].tolist() == sizes[::-1]
    for at, pull in enumerate(pulls):
        needers = [profile.names[op] for op in work if pull in profile.waits_for(op)]
        assert needers == [f"aten::layer{at}"]
    makers = [int(profile.waits_for(push)[0]) for push in pushes]
    assert makers == sorted(makers)
    assert {profile.kinds[op] for op in makers} == {"torch::autograd::AccumulateGrad"}
    # Nothing is lost: worker and optimizer are the whole step, to the nanosecond of each span.
    spans = 4 * len(layers) + 2
    assert seconds(profile, SERVER)[0] == pytest.approx(update * 1e-6, abs=2e-9)
    total = seconds(profile, WORKER)[0] + seconds(profile, SERVER)[0]
    assert total == pytest.approx(length(layers, between, update) * 1e-6, abs=2e-9 * spans)
    for op in range(profile.ops):
        for before in profile.waits_for(op):
            assert profile.end[0, before] <= profile.begin[0, op] + 1e-12
    # Servers are given bytes evenly, up to one parameter.
    held = [
        int(profile.size[pulls][profile.server[pulls] == each].sum()) for each in range(servers)
    ]
    assert max(held) - min(held) <= max(sizes)
    assert np.array_equal(np.sort(profile.server[pushes]), np.sort(profile.server[updates]))


def length(layers: list[Layer], between: float, update: float) -> float:
    computing = sum(3 * seconds for _, _, seconds in layers)
    return computing + between * (3 * len(layers) + 1) + update


def chain(layers: list[Layer], between: float, update: float) -> list[Event]:
    """Return a step of layers one after another; backward takes as long as forward, twice."""
    now, events = 0.0, []

    def after(seconds: float) -> float:
        nonlocal now
        begin = now + between
        now = begin + seconds
        return begin

    for at, (shape, again, seconds) in enumerate(layers):
        used = [shape, *(layers[each][0] for each in again if each < at)]
        events.append(forward(f"aten::layer{at}", after(seconds), seconds, at, [4, 4], *used))
    for at, (shape, _, seconds) in reversed(list(enumerate(layers))):
        events.append(backward(after(seconds), seconds, at))
        events += gradient(after(seconds), seconds, shape)
    events.append(mark("Optimizer.step#SGD.step", after(update), update))
    return [mark("ProfilerStep#0", 0, now), *events]
