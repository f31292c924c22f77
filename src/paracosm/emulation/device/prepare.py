"""Prepare this process to be a rank whose device is not there."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import distributed as data_parallel
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from paracosm.emulation.backend.install import install
from paracosm.emulation.config import RecordedDevice, Setting
from paracosm.emulation.device.assumptions import assumptions_of
from paracosm.emulation.device.clock import VirtualClock, show_virtual_time
from paracosm.emulation.device.collectives import FunctionalCollectives, RecordingRuntime
from paracosm.emulation.device.compiled_regions import CompiledRegions
from paracosm.emulation.device.config import DeviceEmulateConfig
from paracosm.emulation.device.cuda_graphs import have_cuda_graphs
from paracosm.emulation.device.durations import OpSeconds
from paracosm.emulation.device.guard import install_guard
from paracosm.emulation.device.host import ADVICE, HostMemory, make_parameters_fake
from paracosm.emulation.device.kernels import choose_attention_as_gpus, have_kernels_of_gpus
from paracosm.emulation.device.memory import DeviceMemory
from paracosm.emulation.device.modules import Modules
from paracosm.emulation.device.own_ops import OwnOps
from paracosm.emulation.device.presence import Properties, show_device
from paracosm.emulation.device.program import CollectiveCosts
from paracosm.emulation.device.recording import STEP, RecordingWriter
from paracosm.emulation.device.saving import save_stand_ins
from paracosm.emulation.device.state import Device
from paracosm.emulation.device.step_graph import StepGraph
from paracosm.emulation.device.streams import Streams
from paracosm.emulation.device.surroundings import Surroundings
from paracosm.emulation.device.tensors import answer_for_tensors
from paracosm.emulation.device.tracer import Tracer
from paracosm.emulation.device.values import Values
from paracosm.emulation.device.waiting import Reads
from paracosm.emulation.rank.launchers import keep_device
from paracosm.emulation.rank.messages import Messages
from paracosm.emulation.rank.refusals import refuser
from paracosm.emulation.records import Iteration, Note, RecordWriter
from paracosm.errors import InputError
from paracosm.simulation.caching_allocator import VARIABLES, CachingAllocator, parse_settings


def prepare_device(
    setting: Setting,
    device: RecordedDevice,
    recorder: RecordWriter,
    watch_groups: Callable[[], None],
) -> None:
    """Record what the script does with its device, and end it after some iterations.

    Of a GPU "cuda" is made the device; a CPU is there already.

    Raises:
        InputError: this PyTorch cannot be told of a device that is not there.
    """
    arguments = DeviceEmulateConfig.model_validate(device.arguments)
    kind = "cpu" if device.is_host else "cuda"
    if kind == "cuda":
        install_guard(setting.config.ranks_per_machine)
    why = f"nothing is computed on {device.name}, which is not there"
    refuse = refuser(recorder, setting.rank, why)
    framework = f"torch {torch.__version__.split('+')[0]}"
    assume = tuple(map(str, arguments.assume))
    writer = RecordingWriter(setting.rank, setting.config.world, device.name, framework, assume)
    local = setting.rank % setting.config.ranks_per_machine
    clock: VirtualClock | None = None
    if arguments.clock == "virtual":
        cluster = arguments.resolve_cluster()
        costs = CollectiveCosts(cluster, arguments.algorithm, arguments.of_collectives)
        writer.clock = clock = VirtualClock(
            OpSeconds(arguments.device, arguments.db, arguments.cost),
            costs,
            setting.rank,
            arguments.launch_or_assumed,
            refuse,
            is_device=kind == "cpu",
        )
    streams = Streams(writer, local)
    if clock is not None:
        streams.events = clock.events
    modules = Modules()
    writer.modules, writer.allocator = modules.names, _allocator_settings()
    allocator = CachingAllocator(parse_settings(writer.allocator))
    memory = DeviceMemory(
        lambda: len(writer), lambda: streams.current, lambda: modules.current, allocator
    )
    values = Values(
        Reads(writer, refuse).assume, refuse, assumptions_of(arguments.assume), setting.seed
    )
    graph = None if device.graph is None else StepGraph()
    state = Device(writer, streams, memory, values, modules, graph, kind)
    writer.place = state.place
    messages = Messages(device.messages, setting.rank)
    runtime = RecordingRuntime(setting, recorder, refuse, state, messages)
    process = os.getpid()

    def save() -> None:
        if os.getpid() == process and not writer.is_finished:
            writer.is_finished, writer.batch = True, modules.batch
            error = getattr(sys, "last_value", None)
            if error is not None and not isinstance(error, NotImplementedError):
                first, *_ = str(error).splitlines() or [""]
                recorder.append(Note(setting.rank, True, f"{type(error).__name__}: {first}"))
            writer.recording(list(memory.storages())).save(device.recording)
            messages.save()

    atexit.register(save)
    answer_for_tensors(state, refuse)
    if kind == "cuda":
        properties = Properties(
            device.title, device.capability, device.memory, setting.config.ranks_per_machine
        )
        show_device(properties, writer, streams, memory, refuse)
        have_kernels_of_gpus()
        choose_attention_as_gpus(device.capability)
    else:
        make_parameters_fake(state)
        state.surroundings = Surroundings(writer)
    compiled = CompiledRegions(state)
    compiled.install()
    own_ops = OwnOps(state, arguments.cost, refuse)
    tracer = Tracer(state, FunctionalCollectives(state, runtime), compiled, own_ops)
    if kind == "cuda":
        tracer.on_host = HostMemory(refuser(recorder, setting.rank, ADVICE)).before

    def copied(tensor: torch.Tensor) -> None:
        if kind == "cuda":
            tracer.record_copy("DtoH", tensor, waits=True)

    save_stand_ins(values, copied)
    install(runtime)
    _answer_data_parallel(refuse)
    ended = _mark_iterations(setting.rank, device, state, recorder, save)
    modules.install(lambda tensors: memory.call(tensors, "parameters"), memory.hand_on)
    if kind == "cuda":
        have_cuda_graphs(state, runtime.next_number, ended)
        streams.follow_backward()
    keep_device()
    if setting.config.world > 1:
        watch_groups()
    if clock is not None:
        show_virtual_time(clock)
    tracer.__enter__()  # type: ignore[no-untyped-call]


def _answer_data_parallel(refuse: Callable[[str], Exception]) -> None:
    """Do what DistributedDataParallel does in C++ with values, or with timers of the device."""
    module: Any = data_parallel
    module._verify_param_shape_across_processes = lambda *arguments, **options: None
    module._sync_module_states = lambda *arguments, **options: None
    logger: Any = dist.Logger  # type: ignore[attr-defined]
    logger.set_runtime_stats_and_log = lambda logger: None
    threaded: Any = torch.nn.DataParallel
    forward = threaded.forward

    def on_many(model: Any, *inputs: Any, **options: Any) -> Any:
        if len(model.device_ids) > 1:
            raise refuse(
                f"torch.nn.DataParallel over {len(model.device_ids)} devices of one process (write "
                "DistributedDataParallel, with a process for each)"
            )
        return forward(model, *inputs, **options)

    threaded.forward = on_many


def _mark_iterations(
    rank: int,
    wanted: RecordedDevice,
    device: Device,
    recorder: RecordWriter,
    save: Callable[[], None],
) -> Callable[[], None]:
    """Mark where iterations end; when there were enough, save what is recorded and end the script.

    An iteration ends with the step of the optimizer that stepped first. Return what ends one
    without such a step.
    """
    numbers = itertools.count()
    counted: weakref.ref[Optimizer] | None = None
    writer, memory, graph = device.writer, device.memory, device.graph

    def begin(optimizer: Any, args: Any, kwargs: Any) -> None:
        device.in_optimizer += 1
        if graph is not None:
            graph.meet(optimizer)
        parameters = [
            parameter for group in optimizer.param_groups for parameter in group["params"]
        ]
        for parameter in parameters:
            module = device.modules.of_parameter(parameter)
            memory.call([parameter], "parameters", module)
            memory.call([parameter.grad], "gradients", module)

    def end(optimizer: Any, args: Any, kwargs: Any) -> None:
        nonlocal counted
        device.in_optimizer -= 1
        for parameter, state in optimizer.state.items():
            memory.call(state.values(), "optimizer", device.modules.of_parameter(parameter))
        first = None if counted is None else counted()
        if first is None:
            counted = weakref.ref(optimizer)
        elif first is not optimizer:
            return
        if writer.captured is not None:  # replays end iterations
            writer.add(STEP, device.streams.current)
        else:
            ended()

    def ended() -> None:
        writer.add(STEP, device.streams.current)
        if device.surroundings is not None:
            device.surroundings.iteration_ended()
        now, cpu = time.monotonic(), time.process_time()
        recorder.append(Iteration(rank, next(numbers), now, cpu, memory.highest))
        if graph is not None and writer.steps + 1 == wanted.iterations:
            graph.begin(memory.alive())
        # On another stream than that of replays a script may only prepare for CUDA graphs.
        may_prepare = device.streams.current != 0 and writer.steps < wanted.iterations + _PREPARES
        if writer.steps >= wanted.iterations and not may_prepare:
            save()
            if graph is not None and wanted.graph is not None:
                try:
                    graph.save(wanted.graph, {"framework": writer.framework})
                except InputError as error:
                    recorder.append(Note(rank, True, str(error)))
            recorder.flush()
            raise SystemExit(0)

    register_optimizer_step_pre_hook(begin)
    register_optimizer_step_post_hook(end)
    return ended


_PREPARES = 20  # iterations that a script may run before it captures: 11 with DDP, says PyTorch


def _allocator_settings() -> str:
    return next((os.environ[name] for name in VARIABLES if os.environ.get(name)), "")
