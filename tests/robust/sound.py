"""Small sound files of every format that Paracosm reads, by the names that commands call them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from child import run_here
from scipy import sparse
from scipy.io import savemat

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data"

KEPT = {
    "matrix": "matrices/gr_30_30.mtx.gz",
    "profile": "psthroughput/profile.json.gz",
    "onnx": "importers/convnet.onnx",
    "graph_def": "importers/convnet_sgd.pb",
    "saved_model": "importers/saved_model.pb",
    "steps": "importers/convnet_step.pb",
    "tf_timeline": "importers/convnet_timeline.json.gz",
    "execution": "importers/linear_et.json.gz",
    "jaxpr": "importers/step_jaxpr.json.gz",
    "chakra": "chakra/cycle.et",
    "chakra_json": "chakra/feeder.json",
    "job_steps": "tensorflow_job/mlp.pb.gz",
    "trace": "kineto/resnet.json.gz",
}
"""Files that other programs wrote, in `tests/data`."""

TEXTS = {
    "study.yaml": "train: {workers: 2, timing_only: true, updates: 20}\nover: {seed: [0, 1]}\n",
    "relax.yaml": "seed: 1\nrelax: {problem: 'laplace2d:4', processors: 2, time: 1ms}\n",
    "predict.yaml": "predict: {model: llama-8b, batch: 1, hardware: h100-sxm, workers: 8, "
    "strategy: ddp}\n",
    "cluster.yaml": "topology: star\nworkers: [{count: 1, speed: 2}, {count: 1}]\nservers: 1\n"
    "links: {default: {latency: 1ms, bandwidth: 1Gbit/s, sharing: fair}}\n",
    "ring.yaml": "topology: ring\nworkers: 2\nlinks: {default: {latency: 1ms}, "
    "overrides: [{between: [worker0, worker1], bandwidth: 1MB/s}]}\n",
    "node.yaml": "bandwidth_out: 900Mbit/s\nbandwidth_in: 900Mbit/s\nduplex: 1.5\nuneven: 0.1\n"
    "alpha: 0.3ns/B\nbeta: 1ms\nwindow: 16MB\n",
    "order.txt": "\n".join(f"pull/layers.{n}.{w}" for n in (0, 2) for w in ("weight", "bias")),
    "availability.csv": "client,begin,end\n"
    + "".join(f"{client},0s,{client + 1}h\n" for client in range(9)),
    "weights.csv": "0.75,0.25\n0.25,0.75\n",
    "datasheet.yaml": "devices: {mine: {title: Mine, source: here, peak_tflops: {float32: 10, "
    "float16: 20}, memory: 16GiB, memory_bandwidth: 500GB/s, node: box}}\n"
    "nodes: {box: {title: Box, source: here, devices: [mine], count: 1, outer: wire}}\n"
    "interconnects: {wire: {title: Wire, source: here, bandwidth: 10Gbit/s, usable: 9Gbit/s, "
    "latency: 10us}}\n",
}

SCRIPT = """import torch, torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(4):
    dist.all_reduce(torch.ones(10))
dist.destroy_process_group()
"""

LEAF = json.dumps(
    {
        "users": ["a", "b"],
        "num_samples": [2, 1],
        "user_data": {"a": {"x": [[0, 1], [1, 0]], "y": [0, 1]}, "b": {"x": [[1, 1]], "y": [1]}},
    }
)

RUNS = {
    "run": "train --timing-only --updates 20 --timeline",
    "scheduled": "train --timing-only --updates 20 --workers 2 --no-timeline",
    "sweep": "train {study}",
    "relaxation": "relax --problem laplace2d:4 --processors 2 --time 1ms --timeline 1000",
    "prediction": "predict --model llama-8b --batch 1 --hardware h100-sxm --workers 8 --strategy "
    "fsdp",
    "throughput": "predict {job} --workers 1,2 --bandwidth 1Gbit/s",
    "replayed": "replay {trace}",
}
"""Run folders of every kind that takes less than a second."""


def sound_files(folder: Path) -> dict[str, Path]:
    """Write them, and return where each lies."""
    files = {name: folder / Path(path).name for name, path in KEPT.items()}
    for name, path in KEPT.items():
        shutil.copy(DATA / path, files[name])
    for file, text in TEXTS.items():
        files[Path(file).stem] = folder / file
        (folder / file).write_text(text)
    files["script"] = folder / "script.py"
    files["script"].write_text(SCRIPT)
    files["vector"] = folder / "vector.npy"
    np.save(files["vector"], np.ones(900))
    _write_matrices(files, folder)
    files["ids"], files["leaf"] = folder / "ids.npy", folder / "leaf"
    np.save(files["ids"], np.arange(1437) % 2)  # of the digits
    for part in ("train", "test"):
        (files["leaf"] / part).mkdir(parents=True)
        (files["leaf"] / part / "users.json").write_text(LEAF)
    _write_objects(files, folder)
    for name, command in RUNS.items():
        files[name] = folder / name
        _run(command, files, "--out", str(files[name]))
    files["schedule"] = files["scheduled"] / "schedule.parquet"
    files["graph"], files["exported"] = folder / "a.graph", folder / "exported.parquet"
    _run("graph import {onnx}", files, "--out", str(files["graph"]))
    _run("db export {db}", files, "--out", str(files["exported"]))
    return files


def _write_matrices(files: dict[str, Path], folder: Path) -> None:
    """Write one system in every format but Matrix Market's."""
    A = sparse.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(9, 9), format="csr")
    for kind in ("npz", "npy", "mat"):
        files[kind] = folder / f"system.{kind}"
    sparse.save_npz(files["npz"], A)
    np.save(files["npy"], A.toarray())
    savemat(files["mat"], {"A": A, "b": np.ones(9)})


def _run(command: str, files: Mapping[str, Path], *more: str) -> None:
    assert run_here([*(word.format(**files) for word in command.split()), *more]) == 0, command


def _write_objects(files: dict[str, Path], folder: Path) -> None:
    """Write what tests of other rooms make up."""
    for room in ("planning", "profiling", "report", "relaxation/threads"):
        sys.path.append(str(TESTS / room))
    from profiled_network import save_network
    from some_timings import iteration, link, some
    from synthetic_emulation import make_emulation
    from test_measured_times import MEASURED

    from paracosm.profiling.database import ProfileDatabase
    from paracosm.timing.parse import save_recording

    files["job"] = save_network(folder)
    files["db"] = folder / "a.db"
    with ProfileDatabase.open(files["db"], create=True) as database:
        database.add(some(5))
        database.add_links([link("a")])
        database.add_iterations([iteration("b")])
    files["emulated"] = make_emulation(folder / "emulated").path
    files["measured"] = folder / "measured.json"
    MEASURED.save(files["measured"])
    files["recording"] = folder / "recording.json"
    save_recording(files["recording"], {f"worker{n}": [1e-3] * 40 for n in range(2)})
