"""Job profiles from Kineto traces recorded here, beside what was noted while they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from profile_totals import moved, seconds

from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile
from paracosm.profiling.jobs.kineto import job_profile_of_trace, parameters_of_model

torch = pytest.importorskip("torch")
nn = torch.nn


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Keep the small ops here from waiting for other threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
    size = sum(parameter.numel() * parameter.element_size() for parameter in parameters.values())
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
    from paracosm.models.images import mlp

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
