"""What scripts ask of a GPU beside training, a function for each; a line says how each went."""

import contextlib
import copy
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
folder = Path(tempfile.mkdtemp())


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).to(device)


@contextlib.contextmanager
def refused(text: str) -> Iterator[None]:
    said = ""
    try:
        yield
    except RuntimeError as error:
        said = str(error)
    assert text in said


def devices() -> None:
    assert torch.cuda.is_available()
    assert torch.accelerator.is_available()
    assert torch.cuda.device_count() == torch.accelerator.device_count() == 8
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    before = torch.cuda.current_device()
    with torch.cuda.device(3):
        assert torch.cuda.current_device() == 3
        assert torch.ones(1, device="cuda").device.index == 3
    assert torch.cuda.current_device() == before
    with torch.accelerator.device_index(2):
        assert torch.accelerator.current_device_index() == 2
    assert torch.cuda.current_device() == before


def properties() -> None:
    found = torch.cuda.get_device_properties(device)
    assert found.name == torch.cuda.get_device_name() == "NVIDIA H100 80GB HBM3"
    assert (found.major, found.minor) == torch.cuda.get_device_capability() == (9, 0)
    assert found.total_memory == torch.cuda.mem_get_info()[1] == 80 << 30
    assert found.multi_processor_count == 132
    assert found.warp_size == 32


def tensors() -> None:
    x = torch.ones(2, 3, device=device)
    assert x.is_cuda
    assert x.device == device
    assert x.get_device() == device.index
    assert x.cpu().device.type == "cpu"
    assert x.to("cpu").numpy().shape == (2, 3)
    assert x.type() == "torch.cuda.FloatTensor"
    assert torch.zeros(2).cuda().device == device
    assert x.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert "device='cuda:" in repr(x)
    x.record_stream(torch.cuda.current_stream())
    assert torch.zeros(2).pin_memory().is_pinned()


def current_streams() -> None:
    default = torch.cuda.default_stream()
    assert torch.cuda.current_stream() == default
    one, other = torch.cuda.Stream(), torch.cuda.Stream(device=device, priority=-1)
    assert one != other
    assert hash(one) != hash(other)
    assert one.device == device
    with torch.cuda.stream(one):
        assert torch.cuda.current_stream() == one
        with torch.cuda.stream(other):
            assert torch.accelerator.current_stream() == other
        assert torch.cuda.current_stream() == one
    with one:
        assert torch.cuda.current_stream() == one
    assert torch.cuda.current_stream() == default
    other.wait_stream(one)
    one.synchronize()
    assert one.query()


def backward_on_a_stream() -> None:
    stream = torch.cuda.Stream()
    seen = []
    x = torch.ones(3, device=device, requires_grad=True)
    x.register_hook(lambda gradient: seen.append(torch.cuda.current_stream()))
    with torch.cuda.stream(stream):
        (x * 2).sum().backward()
    assert seen == [stream]


def events() -> None:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    x = torch.ones(512, 512, device=device)
    x @ x
    end.record()
    end.synchronize()
    assert end.query()
    assert begin.elapsed_time(end) > 0
    stream = torch.cuda.Stream()
    event = stream.record_event()
    torch.cuda.current_stream().wait_event(event)
    event.wait(stream)
    generic = torch.Event(device="cuda")
    generic.record()
    generic.synchronize()
    assert torch.Stream(device="cuda").device.type == "cuda"


def memory() -> None:
    before = torch.cuda.memory_allocated()
    x = torch.empty(1 << 20, device=device)
    assert torch.cuda.memory_allocated() == before + (4 << 20)
    assert torch.accelerator.memory_allocated() == before + (4 << 20)
    del x
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() >= before + (4 << 20)
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    assert free == total - before
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == before
    assert stats["num_ooms"] == 0
    assert stats["num_alloc_retries"] == 0
    assert "Allocated memory" in torch.cuda.memory_summary()
    assert torch.cuda.memory_reserved() >= before
    assert torch.cuda.memory_snapshot() == []
    torch.cuda.list_gpu_processes()


def generators() -> None:
    torch.cuda.manual_seed_all(7)
    assert torch.cuda.initial_seed() == 7
    state = torch.cuda.get_rng_state()
    torch.cuda.set_rng_state(state)
    assert len(torch.cuda.get_rng_state_all()) == 8
    torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert generator.initial_seed() == 3
    assert generator.device.type == "cuda"
    assert torch.randn(2, device=device, generator=generator).shape == (2,)
    assert torch.randperm(4, device=device, generator=generator).shape == (4,)
    with torch.random.fork_rng(devices=[device.index]):
        torch.manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
    generator.set_state(generator.get_state())


def autocast() -> None:
    x = torch.ones(4, 4, device=device)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        assert (x @ x).pow(2).dtype == torch.float32
        assert (x @ x).sum().dtype == torch.float32
        assert torch.is_autocast_enabled("cuda")
        assert torch.is_autocast_enabled()
        with torch.autocast("cuda", enabled=False):
            assert (x @ x).dtype == torch.float32
    with torch.cuda.amp.autocast():  # as it was spelt before
        assert (x @ x).dtype == torch.float16
    scaler = torch.cuda.amp.GradScaler()
    assert scaler.is_enabled()
    assert torch.get_autocast_gpu_dtype() == torch.float16


class Scaled(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x, weight):
        assert not torch.is_autocast_enabled("cuda")
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.t(), x.t() @ gradient


class OldScaled(Scaled):
    @staticmethod
    @torch.cuda.amp.custom_fwd
    def forward(ctx, x, weight):
        assert torch.is_autocast_enabled("cuda")
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @torch.cuda.amp.custom_bwd
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.t(), x.t() @ gradient


def custom_functions() -> None:
    for function, dtype in ((Scaled, torch.float32), (OldScaled, torch.bfloat16)):
        x = torch.ones(4, 4, device=device, requires_grad=True)
        weight = torch.ones(4, 4, device=device, requires_grad=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = function.apply(x, weight)
        assert y.dtype == dtype
        y.sum().backward()
        assert weight.grad.shape == x.grad.shape == (4, 4)
        assert x.grad.device == device


def checkpointing() -> None:
    for reentrant in (False, True):
        block = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 8)).to(device)
        x = torch.ones(2, 8, device=device, requires_grad=True)
        checkpoint(block, x, use_reentrant=reentrant, preserve_rng_state=True).sum().backward()
        assert block[0].weight.grad is not None


def saving() -> None:
    net, path = model(), folder / "model.pt"
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.ones(2, 8, device=device)).sum().backward()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    for where in (None, device, "cuda", "cpu", {"cuda:0": "cuda:0"}, lambda held, place: held):
        held = torch.load(path, map_location=where, weights_only=where not in (None,))
        expected = "cpu" if where == "cpu" or callable(where) else "cuda"
        assert held["epoch"] == 3
        assert {each.device.type for each in held["model"].values()} == {expected}
        assert held["model"]["0.weight"].shape == (8, 8)
        net.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
    buffer = io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    again = torch.load(buffer, map_location=device, weights_only=False)
    assert next(again.parameters()).device == device
    assert again(torch.ones(2, 8, device=device)).shape == (2, 4)
    torch.save(torch.ones(3), path)
    assert torch.load(path, map_location="cuda").device.type == "cuda"
    assert torch.load(path).tolist() == [1, 1, 1]


def distributed_checkpoints() -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard

    net = fully_shard(model())
    optimizer = torch.optim.AdamW(net.parameters())
    states, of_optimizer = get_state_dict(net, optimizer)
    dcp.save({"model": states, "optimizer": of_optimizer}, checkpoint_id=folder / "dcp")
    dcp.load({"model": states, "optimizer": of_optimizer}, checkpoint_id=folder / "dcp")
    set_state_dict(net, optimizer, model_state_dict=states, optim_state_dict=of_optimizer)


def averages() -> None:
    net = model()
    average = torch.optim.swa_utils.AveragedModel(
        net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99)
    )
    average.update_parameters(net)
    average.update_parameters(net)
    twin = copy.deepcopy(net)
    for mine, theirs in zip(twin.parameters(), net.parameters(), strict=True):
        assert mine is not theirs
        assert mine.device == device
        assert mine.untyped_storage()._cdata != theirs.untyped_storage()._cdata
        mine.data.mul_(0.9).add_(theirs.data, alpha=0.1)
    assert next(average.parameters()).device == device


class Adapter(nn.Module):
    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.plain = plain.requires_grad_(False)
        self.down = nn.Linear(plain.in_features, 2, bias=False, device=plain.weight.device)
        self.up = nn.Linear(2, plain.out_features, bias=False, device=plain.weight.device)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.plain(x) + self.up(self.down(x))


def adapters() -> None:
    net = model()
    net[0] = Adapter(net[0])
    net(torch.ones(2, 8, device=device)).sum().backward()
    assert net[0].plain.weight.grad is None
    assert net[0].up.weight.grad is not None


def made_on_meta() -> None:
    with torch.device("meta"):
        net = nn.Linear(8, 8)
    net = net.to_empty(device=device)
    net.reset_parameters()
    assert net.weight.device == device
    assert net(torch.ones(1, 8, device=device)).device == device
    with torch.device("cuda"):
        assert nn.Linear(8, 8).weight.is_cuda
    held = {name: torch.zeros(each.shape) for name, each in net.state_dict().items()}
    with torch.device("meta"):
        net = nn.Linear(8, 8)
    net.load_state_dict({name: each.cuda() for name, each in held.items()}, assign=True)
    assert net.weight.is_cuda


def loaders() -> None:
    data = TensorDataset(torch.zeros(16, 8), torch.zeros(16, dtype=torch.long))
    loader = DataLoader(data, 4, shuffle=True, num_workers=2, pin_memory=True)
    for x, y in loader:
        assert x.to(device, non_blocking=True).is_cuda
        assert y.cuda().is_cuda


def replays() -> None:
    static = torch.zeros(4, 8, device=device)
    net = model()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        net(static)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        out = net(static)
        with refused("not permitted when stream is capturing"):
            out.sum().item()
    assert not torch.cuda.is_current_stream_capturing()
    static.copy_(torch.ones(4, 8))
    graph.replay()
    assert out.shape == (4, 4)
    graph.reset()
    graphed = torch.cuda.make_graphed_callables(model(), (torch.zeros(4, 8, device=device),))
    graphed(torch.ones(4, 8, device=device)).sum().backward()


def data_parallel() -> None:
    with refused("DistributedDataParallel"):
        nn.DataParallel(model())(torch.ones(16, 8, device=device))


CHECKS: tuple[Callable[[], None], ...] = (
    *(devices, properties, tensors, current_streams, backward_on_a_stream, events, memory),
    *(generators, autocast, custom_functions, checkpointing, saving, distributed_checkpoints),
    *(averages, adapters, made_on_meta, loaders, replays, data_parallel),
)

if __name__ == "__main__":
    chosen = sys.argv[1:]
    for check in CHECKS:
        if chosen and check.__name__ not in chosen:
            continue
        try:
            check()
        except Exception as error:
            import traceback

            where = traceback.extract_tb(error.__traceback__)[1].lineno
            print(f"check {check.__name__}: line {where}: {type(error).__name__} {error}")
            if chosen:
                traceback.print_exc()
        else:
            print(f"check {check.__name__}: fine", flush=True)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        net(torch.ones(2, 8, device=device)).sum().backward()
        optimizer.step()
