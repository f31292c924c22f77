"""One of two real ranks of a published script: python real_rank.py COUNTS SCRIPT ARGUMENT...

Where the script asks for CUDA devices and NCCL it gets the CPU and gloo, as in wire mode. The
collectives of rank 0 are counted by torch.profiler, and go to the file COUNTS as JSON.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from paracosm.emulation.config import EmulateConfig, Setting
from paracosm.emulation.rank.cuda_on_cpu import use_cpu_for_cuda
from paracosm.emulation.rank.launchers import run_spawned_rank
from paracosm.emulation.rank.main import load_script, run_script

KINDS = {
    "allreduce": "reductions",
    "reduce_scatter": "reductions",
    "allgather": "all_gather",
    "all_gather": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "barrier": "barrier",
    "monitored_barrier": "barrier",
    "send": "send",
    "recv": "recv",
}
"""Of PyTorch's operators `c10d::allreduce_`, `c10d::_allgather_base_`: the longest that fits."""

GLOO = {"all_reduce": "reductions", "all_to_all": "all_to_all", "recvAnySource": "recv"}
"""Of what PyTorch asks of gloo, as `gloo:all_reduce`, where the name is another."""

BYTES = {"float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "int": 4}
BYTES |= {"unsigned char": 1, "signed char": 1, "bool": 1, "short": 2, "short int": 2}
BYTES |= {"c10::complex<float>": 8, "c10::complex<double>": 16}


def main() -> None:
    counts, script, *arguments = sys.argv[1:]
    config = EmulateConfig(
        script=Path(script), world_size=int(os.environ["WORLD_SIZE"]), mode="wire", device="cpu"
    )
    machine = int(os.environ["LOCAL_WORLD_SIZE"])
    config = config.model_copy(update={"local_world_size": machine})

    def refuse(what: str) -> Exception:
        return NotImplementedError(what)

    use_cpu_for_cuda(config, refuse, lambda: None)
    # A rank that the script spawns runs in this process, as an emulated one's would.
    run_spawned_rank(Setting(config, 0, int(os.environ["RANK"]), Path(counts)), print)
    sys.argv[:] = ["-m" if script.startswith("module:") else script, *arguments]
    loaded = load_script(script)
    if os.environ["RANK"] != "0" or os.environ.get("COUNT_COLLECTIVES") == "0":
        run_script(loaded, arguments)
        return
    profiled = profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        experimental_config=_ExperimentalConfig(profile_all_threads=True),
    )
    profiled.start()

    def end() -> None:
        profiled.stop()
        Path(counts).write_text(json.dumps(counted(profiled)))

    atexit.register(end)
    run_script(loaded, arguments)


def counted(profiled: Any) -> dict[str, tuple[int, int]]:
    """Return how many collectives of each kind PyTorch was asked for, and the bytes gloo was."""
    numbers, sizes = dict[str, int](), dict[str, int]()
    for event in profiled.profiler.kineto_results.events():
        library, _, name = event.name().partition(":")
        name = name.strip(":_")
        if library == "c10d":
            fitting = max(filter(name.startswith, KINDS), key=len, default="")
            if fitting:
                kind = KINDS[fitting]
                numbers[kind] = numbers.get(kind, 0) + 1
        elif library == "gloo":
            kind = GLOO.get(name, name)
            given = zip(event.shapes(), event.dtypes(), strict=True)
            size = sum(math.prod(shape) * BYTES[of] for shape, of in given)
            if kind == "scatter":  # what the root holds for all
                size //= max(1, len(event.shapes()))
            sizes[kind] = sizes.get(kind, 0) + size
    return {kind: (number, sizes.get(kind, 0)) for kind, number in sorted(numbers.items())}


if __name__ == "__main__":
    main()
