"""A sound command for each form of each verb: `{name}` stands for a file of `sound.py`."""

from __future__ import annotations

from dataclasses import dataclass

TIMING = "train --timing-only --updates 20 --workers 2"
SMALL = "--updates 4 --workers 2"
FAULTY = (
    "--problem laplace2d:4 --processors 2 --time 1ms --fault uniform(-1,1)~every~10ms "
    "--checkpoint omega=10s,cost=1ms"
)
PLANNED = "--model mlp --data digits --bandwidth 10MB/s --target loss<=1.9 --updates 20 --seeds 1"

QUICK = (
    f"{TIMING} --latency 1ms",
    f"{TIMING} --bandwidth 1Gbit/s --message-size 1MB --timeline",
    "train --timing-only --updates 20 --algorithm ssp --cluster {cluster}",
    f"{TIMING} --clients 9 --availability {{availability}}",
    f"{TIMING} --clients 9 --availability repeat({{availability}}) --algorithm fedavg(take=1)",
    f"{TIMING} --algorithm d-psgd(graph={{weights}})",
    f"{TIMING} --algorithm asgd,feddyn --lr-scaling inverse --out {{out}}/list",
    "train {study} --out {out}/runs",
    "relax --problem laplace2d:4 --processors 2 --time 1ms",
    "relax --problem laplace2d:4 --processors 2 --time {measured}",
    "relax --problem laplace2d:4 --processors 2 --memory distributed --cluster {ring}",
    "relax {relax}",
    "relax --matrix {matrix} --rhs {vector} --start {vector} --processors 2 --max-sweeps 100",
    "relax --matrix {npz} --processors 2 --speeds uniform(0.5,2)",
    "relax --matrix {npy} --processors 2 --max-sweeps 100",
    "relax --matrix {mat} --rhs {mat} --processors 2 --max-sweeps 100",
    f"relax tune {FAULTY} --seeds 1 --trials 2 --tune alpha=1.05..20",
    "tune {relax} --seeds 1 --trials 2 --tune processors=1..2 --out {out}/tuned",
    "predict {profile} --workers 1,2 --bandwidth 1Gbit/s --node {node}",
    "predict {job} --workers 1,2 --bandwidth 1Gbit/s --order {order}",
    "predict --model llama-8b --batch 1 --hardware h100-sxm --workers 8 --strategy fsdp",
    "predict --model llama-8b --batch 1 --hardware h100-sxm --lora 16 --shape 512",
    "predict --model bert-large --batch 1 --hardware h100-sxm --no-train",
    (
        "predict --model llama-8b --batch 1 --hardware h100-sxm,l4 --workers 8 --strategy fsdp "
        "--price h100-sxm:2/h,l4:1/h --stack megatron-te"
    ),
    "predict --graph {graph} --hardware {datasheet} --workers 2 --strategy ddp",
    "predict {predict}",
    "graph show {graph}",
    "graph export {graph} --out {out}/a.et",
    "graph import {onnx} --train --out {out}/a.graph",
    "graph import {graph_def} --out {out}/a.graph",
    "graph import {saved_model} --size batch=8 --out {out}/a.graph",
    "graph import {steps} --out {out}/a.graph",
    "graph import {tf_timeline} --out {out}/a.graph",
    "graph import {execution} --out {out}/a.graph",
    "graph import {chakra} --drop-missing --data-only --out {out}/a.graph",
    "graph import {chakra_json} --drop-missing --out {out}/a.graph",
    "graph import {jaxpr} --out {out}/a.graph",
    "graph import {trace} --out {out}/a.graph",
    "replay {trace}",
    "hardware list",
    "hardware show {datasheet}",
    "hardware stacks",
    "hardware add {datasheet}",
    "hardware add {db} --stack mine --hardware cpu-2-core --force",
    "report {run}",
    "report {sweep} --out {out}/page.html",
    "report {relaxation} --out {out}/page.html",
    "report {prediction} --out {out}/page.html",
    "report {throughput} --out {out}/page.html",
    "report {replayed} --out {out}/page.html",
    "report {emulated} --out {out}/page.html",
    "trace {run}",
    "db show {db}",
    "db check {db}",
    "doctor",
    "db export {db} --out {out}/a.parquet",
    "db merge {db} {exported} --out {out}/b.db",
    "profile import {job_steps} --out {out}/a.profile",
    "doctor --details",
)
"""Commands of less than a second."""

LONG = (
    "calibrate {job} --out {out}/node.yaml",
    "plan --model llama-8b --hardware h100-sxm --tokens 1e9 --batch-tokens 4e6 --max-workers 8",
    f"train {SMALL} --model mlp --compute 1ms",
    f"train {SMALL} --algorithm fedavg --export flower {{out}}/app",
    f"train {SMALL} --profile {{job}} --model mlp --data digits --bandwidth 10MB/s",
    "train --schedule {schedule} --updates 4",
    f"train {SMALL} --shards {{ids}}",
    f"train {SMALL} --data leaf --data-dir {{leaf}}",
    f"plan {{job}} {PLANNED} --workers 1,2",
    "relax measure --problem laplace2d:4 --threads 1,2 --repeats 1 --tolerance 1e-2 --details",
    "profile ops --model mlp --shape 4 --db {db} --budget 0.2s --no-iterations",
    "profile job mlp --framework pytorch --steps 2 --shape 4 --out {out}/a.profile",
    "graph capture mlp --batch 4 --out {out}/a.graph",
    "measure link --kinds host-copy --sizes 1KiB --seconds 10ms",
    "calibrate --seconds 1s --connections 1 --parsing none",
    "calibrate link {out}/link.yaml --seconds 0.05s",
    "emulate --kinds --world-size 4 --bandwidth 1Gbit/s {script}",
    "emulate --world-size 4 --mode wire {script}",
    "emulate {emulated} --world-size 8 --bandwidth 1Gbit/s",
)
"""Commands that start processes, or compute for seconds."""

WAITING = (
    "calibrate serve --port 0 --timeout 1s",
    "emulate serve --world-size 2 --port 29511",
)
"""Commands that wait for somebody until a signal ends them."""


@dataclass(frozen=True)
class Command:
    """A sound command, in words; `~` stands for a blank inside one."""

    text: str

    @property
    def words(self) -> list[str]:
        return [word.replace("~", " ") for word in self.text.split()]

    def verb(self, verbs: object) -> str:
        """Return which of `verbs` it is: the longest of those that it begins with."""
        two = " ".join(self.words[:2])
        return two if two in verbs else self.words[0]  # type: ignore[operator]


COMMANDS = tuple(map(Command, (*QUICK, *LONG, *WAITING)))
