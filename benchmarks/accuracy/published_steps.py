"""Training steps that others published, as questions: a model, a strategy, a device and a stack.

`read_rows` reads a table `e2e_*.csv`, a run a row: a model by its sizes, batches, how ranks share
them, the GPU, the stack, and the seconds of a step. What a table does not say is as the stack's
recipes have it: which collectives overlap. Of MaxText's runs on TPUs the table has today's scripts;
the figures were printed in 2023, and are asked with the sizes, batches and ways that its repository
had then (`MAXTEXT_TPU`).
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

from paracosm.cluster.hardware import Stack, find_hardware, find_stack
from paracosm.errors import InputError
from paracosm.graphs.transformer import Transformer, architecture
from paracosm.jobs.strategies.strategy import Strategy

A3 = "H100-SXM (GCP A3, TCPX)"
DEVICES = {
    "A100-SXM": "a100-sxm-80gb",
    "B200": "b200-sxm",
    "B200 (power limited)": "b200-sxm-750w",
    "GB200": "gb200",
    "H100": "h100-sxm",
    "H100 (80 GB; not named in the table)": "h100-sxm",
    "H100 96GB HBM2e 500 W": "h100-sxm-96gb",
    "H100-SXM": "h100-sxm",
    A3: "a3-highgpu-8g",
    "H200": "h200-sxm",
    "MI300X": "mi300x",
    "MI355X": "mi355x",
    "NVIDIA H100-PCIe-80GB": "h100-pcie",
    "NVIDIA H100-SXM-80GB": "h100-sxm",
    "NVIDIA H100-SXM5-80GB": "h100-sxm",
    "NVIDIA H200-SXM5-141GB": "h200-sxm",
    "NVIDIA L40S": "l40s",
    "TPU v4": "tpu-v4",
    "TPU v5e": "tpu-v5e",
    "TPU v5p": "tpu-v5p",
}
"""Devices of the catalogue, by the names of the tables."""

META = ("pytorch/ao", "pytorch/torchtitan")
"""Whose H100 are those of Meta, of 500 W with 96 GB of HBM2e."""

STACKS = (
    ("MaxText", "maxtext"),
    ("PAXML", "maxtext"),
    ("NeMo", "megatron-te"),
    ("NVIDIA NeMo", "nemo-2024"),
    ("Megatron-Core", "megatron-te"),
    ("Primus", "megatron-te"),
    ("torchtitan", "torchtitan"),
    ("litgpt", "litgpt"),
    ("LitGPT", "litgpt"),
    ("Lightning", "lightning"),
    ("DeepSpeed", "deepspeed"),
    ("HF with TE", "megatron-te"),
    ("PyTorch compile", "pytorch-compile"),
    ("PyTorch eager", "pytorch-eager"),
    ("HF", "pytorch-eager"),
)
"""How the name of a stack begins in the tables, and which one of ours it is."""

SHARDINGS = (
    ("zero1", "optimizer"),
    ("zero2", "gradients"),
    ("zero3", "parameters"),
    ("fsdp", "parameters"),
    ("megatron-fsdp", "parameters"),
)
OVERLAPS = ("NeMo", "NVIDIA NeMo", "torchtitan async TP")
"""Stacks that overlap tensor-parallel collectives with products, in all recipes of the tables."""

AGAIN: Mapping[str, bool | str] = {
    "full": True,
    "selective (per op)": "selective",
    "selective": "attention",
    "none": False,
    "minimal_flash": "elementwise",
}
MODELS = {
    "grok1-314b": "grok-1",
    "deepseek-v3": "deepseek-v3",
    "llama4-maverick-400b": "llama-4-maverick",
}
"""Mixtures of experts of the catalogue, by the names of the tables, which have no column for what
sets their layers apart."""

OF_AN_EXPERT = {
    ("grok1-314b", "h100-sxm", "25.05.01"): 1,
    ("grok1-314b", "h100-sxm", "25.05.02"): 1,
    ("deepseek-v3", "gb200", "25.05"): 1,
    ("deepseek-v3", "h100-sxm", "25.05"): 1,
    ("deepseek-v3", "h100-sxm", "25.05.04"): 1,
}
"""Ranks that share an expert, by model, device and release; elsewhere as many as share layers
(dgxc-benchmarking, README.md and launch.sh of each model: ETP)."""

BEFORE_CUDNN_9_11 = ("24.", "25.01", "25.02", "25.03", "25.04", "25.05")
"""Releases of dgxc-benchmarking with NeMo 25.04 or before (their launch.sh)."""

WITHOUT_OVERLAP = ("deepseek-v3",)
"""Models whose recipe overlaps none (NeMo 2.3, pretrain_deepseek_v3.py: `tp_comm_overlap`)."""

RECOMPUTES = {
    ("deepseek-v3", "gb200"): "attention",
    ("deepseek-v3", "h100-sxm"): "latent",
}
"""What recipes compute again, which the tables leave out (dgxc-benchmarking 25.05, launch.sh:
`recompute_modules`)."""

DEFAULT_CHUNKS = {"nemotron4-340b": 12}
"""Chunks of a pipeline that recipes have and one release's table leaves out (dgxc-benchmarking,
nemotron4-340b: `virtual_pipeline_model_parallel_size`)."""


Task = Literal["step", "forward", "without update"]
TASKS: Mapping[str, Task] = {
    "pretrain": "step",
    "pretrain (CI)": "step",
    "fine-tune (full)": "step",
    "lora r=16": "step",
    "forward+backward+AdamW": "step",
    "forward (no grad)": "forward",
    "forward+backward": "without update",
}

MAXTEXT_TPU: Mapping[str, tuple[int, int, int, int, dict[str, tuple[int, int, str]]]] = {
    "maxtext-16b": (32, 5120, 32, 32768, {"v5e": (6, 1, "full")}),
    "maxtext-22b": (48, 6144, 24, 24576, {"v4": (16, 1, "full")}),
    "maxtext-32b": (32, 10240, 32, 32768, {"v5e": (4, 1, "full"), "v5p": (8, 4, "minimal")}),
    "maxtext-52b": (32, 12288, 32, 49152, {"v4": (10, 1, "full")}),
    "maxtext-64b": (64, 10240, 32, 32768, {"v5e": (2, 1, "full"), "v5p": (4, 4, "minimal")}),
    "maxtext-128b": (64, 10240, 64, 65536, {"v5e": (1, 16, "full"), "v5p": (2, 8, "minimal")}),
    "maxtext-256b": (64, 20480, 64, 65536, {"v5p": (2, 8, "minimal")}),
    "maxtext-512b": (128, 20480, 64, 65536, {"v5p": (2, 16, "full")}),
    "maxtext-1024b": (128, 20480, 128, 131072, {"v5p": (2, 16, "full")}),
}
"""Layers, width, heads (each 256 wide) and the perceptron's width, two matrices; by TPU the
examples a device, ways of tensor parallelism, and the policy of recomputation.

AI-Hypercomputer/maxtext: of TPU v4 commit e286533 of March 2023 (MaxText/configs/1xv4-128.sh,
1xv4-384.sh; sequences of 1,024 tokens), of v5e e47fa1b of October 2023 (configs/largest_job), of
v5p 76bd53b of December 2023 (configs/v5p); in all of them base.yml has a vocabulary of 32,768 that
embedding and head share."""


@dataclass(frozen=True)
class Question:
    """What is asked of a run."""

    model: Transformer
    strategy: Strategy
    micro_batch: int
    hardware: str  # of the catalogue
    stack: str  # of ours
    slice: int = 0  # TPUs of a slice; 0 for other nodes
    task: Task = "step"


@dataclass(frozen=True)
class Row(Question):
    """A measured run that can be asked."""

    source: str = ""  # the table
    stack_name: str = ""  # in the table
    model_name: str = ""
    numbers: str = ""  # "bf16", "fp8"
    seconds: float = 0.0
    says_recompute: bool = False
    software: str = ""  # the stack with its version, in the table
    published: str = ""  # repository, commit and file
    licence: str = ""

    @property
    def question(self) -> Question:
        return Question(*(getattr(self, field.name) for field in fields(Question)))

    @property
    def device(self) -> str:
        """The device, whatever node it is in."""
        return find_hardware(self.hardware).name

    @property
    def flops(self) -> float:
        """Of a step and a device: six for each parameter that a token meets, and attention's."""
        model = self.model
        tokens = self.micro_batch * self.strategy.microbatches * self.strategy.data * model.sequence
        attention = 6 * model.layers * model.width * model.sequence * (2 - model.causal)
        each = 4 if model.adapter else 6  # none for gradients of frozen weights
        passes = 1 / 3 if self.task == "forward" else 1
        return passes * (each * model.active_parameters + attention) * tokens / self.strategy.ranks

    @property
    def utilisation(self) -> float:
        """Flops of the model over the peak of its numbers."""
        device = find_hardware(self.hardware).device
        dtype = "float8" if self.strategy.float8 and "float8" in device.peak_tflops else "bfloat16"
        return self.flops / self.seconds / device.peak(dtype)


def read_rows(file: Path, source: str) -> tuple[list[Row], Counter[tuple[str, str]]]:
    """Return the runs of a table that can be asked, and how many cannot, by the reason."""
    found, refused = list[Row](), Counter[tuple[str, str]]()
    with file.open(encoding="utf-8", newline="") as lines:
        for entry in csv.DictReader(lines):
            try:
                version = " ".join(filter(None, (entry["stack"], entry["stack_version"])))
                origin = {"published": entry["source"], "licence": entry["licence"]}
                found.append(replace(row_of(entry, source), software=version, **origin))
            except InputError as error:
                refused[source, str(error)] += 1
    return found, refused


def row_of(entry: Mapping[str, str], source: str) -> Row:
    """Raise InputError for what is no training step of a decoder whose layout is known."""
    if entry["model"] in MAXTEXT_TPU:
        return _maxtext_row(entry, source)
    if entry["gpu"] == A3:
        entry = _a3(entry)
    if entry["model"].startswith("gpt/gpt3_7b"):
        entry = {**entry, "ffn": "16384", "kv_heads": "8", "vocab": "131072"}
    elif entry["task"] == "pretrain (CI)" and _whole(entry, "width") <= 1024:
        raise InputError("bound by launches of the host, whose cost nobody has published")
    elif entry["model"] == "bert-large (MLPerf)":
        entry = _bert(entry)
    elif entry["task"] == "lora r=16":
        entry = _lora(entry)
    elif entry["model"].startswith("resnet50"):
        raise InputError("convolutions of MXNet, with batch norms in them: no stack has those")
    elif entry["task"] not in TASKS:
        raise InputError(f"task: {entry['task']}")
    if entry["offload"] and not entry["offload"].startswith("AdamW"):
        raise InputError("activations on the host")
    for name in ("layers", "width", "heads", "ffn", "vocab", "seq", "gbs", "mbs", "gpus"):
        if not entry[name]:
            raise InputError(f"does not say {name}")
    if not entry["step_s"]:
        raise InputError("does not say the time of a step")
    stack = next((ours for start, ours in STACKS if entry["stack"].startswith(start)), None)
    hardware = DEVICES.get(entry["gpu"])
    if entry["source"].startswith(META) and hardware == "h100-sxm":
        hardware = "h100-sxm-96gb"
    if stack is None or hardware is None:
        raise InputError(f"{'stack' if stack is None else 'device'}: not known")
    if entry["model"] in MODELS and _release(entry).startswith(BEFORE_CUDNN_9_11):
        stack = "nemo-25.04"
    strategy, micro_batch = _strategy(entry, find_stack(stack), hardware)
    return Row(
        source=source,
        stack_name=entry["stack"],
        model_name=entry["model"],
        model=_model(entry, find_stack(stack)),
        strategy=strategy,
        micro_batch=micro_batch,
        hardware=hardware,
        stack=stack,
        task=TASKS[entry["task"]],
        numbers="fp8" if strategy.float8 else "bf16",
        seconds=float(entry["step_s"]),
        says_recompute=bool(entry["recompute"]),
    )


def _maxtext_row(entry: Mapping[str, str], source: str) -> Row:
    """Return a run of MaxText on TPUs, whose table has the rate that MaxText prints: six flops for
    each parameter and token, and, since the summer of 2023, attention's without its mask."""
    layers, width, heads, inner, ways = MAXTEXT_TPU[entry["model"]]
    tpu = entry["gpu"].removeprefix("TPU ")
    batch, tensor, policy = ways[tpu]
    model = Transformer(
        layers=layers,
        width=width,
        heads=heads,
        head=256,
        sequence=1024 if tpu == "v4" else 2048,
        vocabulary=32_768,
        inner=inner,
        rotary=True,
        rms=True,
        bias=False,
        recipe=find_stack("maxtext").recipe,
    )
    ranks, slices = _whole(entry, "gpus"), int(entry["note"].split()[0])
    attention = 0 if tpu == "v4" else 12 * layers * heads * 256 * model.sequence
    flops = (6 * model.parameters + attention) * batch * model.sequence
    strategy = Strategy(
        data=ranks // tensor,
        tensor=tensor,
        sequence=tensor
        > 1,  # whose collectives do not overlap: decided on 32B, on one slice of v5p
        sharding="parameters",
        shard=ranks // tensor // slices if slices > 1 else 0,
        recompute={"full": True, "minimal": "except-products"}[policy],
    )
    return Row(
        source=source,
        stack_name=entry["stack"],
        model_name=entry["model"],
        model=model,
        strategy=strategy,
        micro_batch=batch * tensor,
        hardware=DEVICES[entry["gpu"]],
        stack="maxtext",
        numbers="bf16",
        seconds=flops / (float(entry["value"]) * 1e12),
        says_recompute=True,
        slice=ranks // slices,
    )


def _a3(entry: Mapping[str, str]) -> dict[str, str]:
    """Return a run of Llama 2 7B on Google's A3 as its script has it (AI-Hypercomputer/maxtext,
    commit efb6d9e, MaxText/configs/a3/llama_2_7b): four examples a GPU, shards in a node, attention
    and products are kept. The rate that MaxText prints has six flops for each parameter and token,
    and half of attention's."""
    model = _model(entry, find_stack("maxtext"))
    attention = 6 * model.layers * model.width * model.sequence
    flops = (6 * model.parameters + attention) * 4 * model.sequence
    return {
        **entry,
        "mbs": "4",
        "gbs": str(4 * _whole(entry, "gpus")),
        "sharding": "fsdp, within a node",
        "recompute": "minimal_flash",
        "step_s": str(flops / (float(entry["value"]) * 1e12)),
    }


def _lora(entry: Mapping[str, str]) -> dict[str, str]:
    """Return a run of Llama 2 70B with adapters as NVIDIA's scripts have it, which all submitters
    ran (training_results_v4.0, NVIDIA/benchmarks/llama2_70b_lora/implementations/nemo): float8,
    scaled by earlier steps, tensor-parallel collectives that overlap (`TP_COMM_OVERLAP`, not on
    L40S), adapters with dropout; ranks that share a model are tp=4, then cp=2 (on H200 tp=2), as
    many as accumulation leaves."""
    ways = _whole(entry, "gpus") * _whole(entry, "accumulation") // _whole(entry, "gbs")
    tensor = min(ways, 4)
    return {
        **entry,
        "stack": "Megatron-Core" if DEVICES.get(entry["gpu"]) == "l40s" else "NeMo",
        "dtype": "fp8 delayed",
        "tp": entry["tp"] or str(tensor),
        "cp": entry["cp"] or str(ways // tensor),
    }


def _bert(entry: Mapping[str, str]) -> dict[str, str]:
    """Return a run of BERT as NVIDIA's scripts have it (training_results_v4.0, NVIDIA/benchmarks/
    bert): two examples are packed into a sequence, or their padding is left out, which is as many
    tokens; Transformer Engine in float8; states of LAMB are sharded within a node (NVIDIA/apex,
    apex/contrib/optimizers/distributed_fused_lamb.py, `dwu_group_size`).

    Raises:
        InputError: a GPU of which no script was published.
    """
    if DEVICES.get(entry["gpu"]) == "l40s":
        raise InputError("does not say its numbers")
    ranks, examples = _whole(entry, "gpus"), _whole(entry, "gbs")
    return {
        **entry,
        "stack": "NeMo",
        "dtype": "fp8 delayed",
        "mbs": str(examples // ranks // 2),
        "gbs": str(examples // 2),
        "sharding": "zero1, within a node",
    }


def _release(entry: Mapping[str, str]) -> str:
    """Return the release of dgxc-benchmarking, as "25.05"; empty for rows of others."""
    name, _, release = entry["stack_version"].rpartition(" ")
    return release if name == "dgxc-benchmarking" else ""


def _model(entry: Mapping[str, str], stack: Stack) -> Transformer:
    if entry["model"] in MODELS:
        known = architecture(MODELS[entry["model"]], _whole(entry, "seq"))
        known = replace(known, recipe=stack.recipe)
        is_cut = "cut to" in entry["note"]
        return replace(known, layers=_whole(entry, "layers")) if is_cut else known
    is_gpt = entry["model"].startswith(("gpt3", "gpt/gpt3", "bert", "t5"))
    return Transformer(
        layers=_whole(entry, "layers"),
        width=_whole(entry, "width"),
        heads=_whole(entry, "heads"),
        sequence=_whole(entry, "seq"),
        vocabulary=_whole(entry, "vocab"),
        kv_heads=_whole(entry, "kv_heads", 0),
        inner=_whole(entry, "ffn"),
        gated=entry["gated"] in ("1", "1.0"),
        rotary=not is_gpt,
        rms=not is_gpt and "nemotron" not in entry["model"],
        bias=is_gpt,
        tied=is_gpt and not entry["model"].startswith("gpt/gpt3_7b"),
        experts=_whole(entry, "experts", 0),
        active=_whole(entry, "top_k", 0),
        causal=not entry["model"].startswith("bert"),
        scored=0.15 if entry["model"].startswith("bert") else 1.0,
        adapter=16 if entry["task"] == "lora r=16" else 0,
        adapter_dropout=entry["task"] == "lora r=16",
        recipe=stack.recipe,
        loss=stack.loss,
        weights=stack.weights,
    )


def _strategy(entry: Mapping[str, str], stack: Stack, hardware: str) -> tuple[Strategy, int]:
    tensor, pipeline, context, expert = (_whole(entry, key, 1) for key in ("tp", "pp", "cp", "ep"))
    chunks = _whole(entry, "vp", 1 if pipeline == 1 else DEFAULT_CHUNKS.get(entry["model"], 1))
    ranks, micro_batch = _whole(entry, "gpus"), _whole(entry, "mbs")
    data, left = divmod(ranks, tensor * pipeline * context)
    if left or not data:
        raise InputError("ways do not divide the devices")
    microbatches, left = divmod(_whole(entry, "gbs"), micro_batch * data)
    if left or not microbatches:
        raise InputError("micro-batches do not divide the batch")
    sharding = next((ours for start, ours in SHARDINGS if start in entry["sharding"]), "none")
    interleaved = pipeline > 1 and chunks > 1
    return (
        Strategy(
            data=data,
            tensor=tensor,
            sequence=tensor > 1 and not entry["model"].startswith("gpt/gpt3_7b"),
            async_tp=tensor > 1
            and entry["stack"].startswith(OVERLAPS)
            and entry["model"] not in WITHOUT_OVERLAP,
            context=context,
            context_form=stack.context if context > 1 else "auto",
            expert=expert,
            expert_tensor=OF_AN_EXPERT.get((entry["model"], hardware, _release(entry)), 0),
            pipeline=pipeline,
            schedule="interleaved" if interleaved else "1f1b",
            chunks=chunks if interleaved else 1,
            microbatches=microbatches,
            sharding=sharding if data * context > 1 else "none",
            shard=8 if "within a node" in entry["sharding"] and data > 8 else 0,
            recompute=RECOMPUTES.get((entry["model"], hardware))
            or AGAIN.get(entry["recompute"], False),
            float8=_scaling(entry["dtype"], stack),
            offload_optimizer=entry["offload"].startswith("AdamW"),
            states="bfloat16" if _in_half_precision(entry) else "float32",
        ),
        micro_batch,
    )


def _whole(entry: Mapping[str, str], key: str, usual: int | None = None) -> int:
    if not entry[key] and usual is not None:
        return usual
    try:
        return int(float(entry[key]))
    except ValueError:
        raise InputError(f"{key}: {entry[key]} is no number") from None


def _in_half_precision(entry: Mapping[str, str]) -> bool:
    """Whether the optimizer keeps nothing in single precision: Lightning's bf16-true, and the
    tutorial of Transformer Engine, which loads weights so (docs/examples/te_llama/utils.py)."""
    return "bf16-true" in entry["dtype"] or "te_llama" in entry["source"]


def _scaling(dtype: str, stack: Stack) -> str | bool:
    if "fp8" not in dtype:
        return False
    known = ("delayed", "tensorwise", "rowwise", "blockwise", "mxfp8")
    return next((name for name in known if name in dtype), stack.float8)
