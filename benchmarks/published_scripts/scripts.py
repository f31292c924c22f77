"""The scripts that `published_scripts.py` runs: where each is, its flags, and made-up data."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Data = Callable[[Path, int], None]  # makes data in a folder, enough for so many ranks


def no_data(folder: Path, world: int) -> None:
    """Make nothing."""


@dataclass(frozen=True)
class Script:
    repository: str  # name of its checkout
    path: str  # of the script in it
    what: str  # what it asks of torch.distributed
    # Flags and variables may hold {world}, {work} (a folder of its own) and {checkout}; {machine}
    # and {machines} are the ranks of a machine and how many machines there are, {rank} its number.
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    module: str = ""  # run as python -m would, in the place of `path`
    folder: str | None = None  # in the checkout, where it runs; None for its own
    search: tuple[str, ...] = ()  # folders of the checkout to import from
    needs: tuple[str, ...] = ()  # modules
    machine: int = 8  # ranks of one machine, at most
    fewest: int = 2  # ranks with which it runs
    data: Data = no_data
    # torch.profiler keeps references to tensors, which modules on the device "meta" that become
    # real refuse to swap.
    is_counted: bool = True
    stub: str = ""  # in `made_up`: what puts data where the script would fetch some


def characters(folder: Path, world: int) -> None:
    """Write a text that has a few batches for each rank."""
    words = random.Random(0).choices(("to", "be", "or", "not", "that", "is", "the", "king"), k=600)
    (folder / "input.txt").write_text(" ".join(words))


def lines(folder: Path, world: int) -> None:
    """Write the three files of wikitext."""
    for part in ("train", "valid", "test"):
        (folder / f"{part}.txt").write_text("the king is not \n" * 400)


def tokens(folder: Path, world: int) -> None:
    """Write nanoGPT's files of tokens."""
    import numpy as np

    made = np.random.default_rng(0).integers(0, 64, 20_000, dtype=np.uint16)
    for part in ("train", "val"):
        (folder / "made_up").mkdir(exist_ok=True)
        made.tofile(folder / "made_up" / f"{part}.bin")


def images(folder: Path, world: int) -> None:
    """Write folders of two classes of images: six for each rank, and two to validate with."""
    import numpy as np
    from PIL import Image

    numbers = np.random.default_rng(0)
    for part, count in (("train", 3 * world), ("val", world)):
        for kind in ("cat", "dog"):
            into = folder / part / kind
            into.mkdir(parents=True)
            for i in range(count):
                made = numbers.integers(0, 255, (48, 48, 3), dtype=np.uint8)
                Image.fromarray(made).save(into / f"{i}.jpg")


_MINGPT = "distributed/minGPT-ddp/mingpt"
_TITAN = ("--model.name", "llama3", "--model.flavor", "debugmodel", "--training.steps", "4")
_TITAN += ("--training.dataset", "c4_test", "--training.seq_len", "64")
_TITAN += ("--training.local_batch_size", "2", "--lr_scheduler.warmup_steps", "1")
_TITAN += ("--model.hf_assets_path", "tests/assets/tokenizer", "--job.dump_folder", "{work}")


def _titan(what: str, *arguments: str) -> Script:
    """Return the last torchtitan whose debug model attends without FlexAttention.

    PyTorch's FlexAttention has no backward pass on a CPU.
    """
    return Script(
        "torchtitan-0.2.2",
        "torchtitan/train.py",
        what,
        (*_TITAN, *arguments),
        module="torchtitan.train",
        folder="",
        search=("",),
        needs=("torchdata", "tyro", "datasets", "triton"),
    )


def _cifar_by_deepspeed(stage: int) -> Script:
    return Script(
        "DeepSpeedExamples",
        "training/cifar/cifar10_deepspeed.py",
        f"ZeRO {stage}, on the CPU",
        ("--stage", str(stage), "--dtype", "fp32", "--epochs", "1"),
        (("DS_ACCELERATOR", "cpu"),),
        needs=("deepspeed", "torchvision"),
        stub="small_images.py",
    )


SCRIPTS: dict[str, Script] = {
    "torchtitan": _titan("Llama 3 debug model, FSDP2"),
    "torchtitan-tp": _titan(
        "the same, and tensor parallelism of 2", "--parallelism.tensor_parallel_degree", "2"
    ),
    "imagenet": Script(
        "examples",
        "imagenet/main.py",
        "DDP, nccl, ImageFolder",
        ("{work}", "-a", "resnet18", "-b", "2", "-j", "0", "--epochs", "1", "--dist-url", "env://"),
        needs=("torchvision",),
        data=images,
    ),
    "minGPT-ddp": Script(
        "examples",
        f"{_MINGPT}/main.py",
        "DDP, mixed precision, hydra",
        (
            *("data_config.path={work}/input.txt", "data_config.truncate=1.0"),
            *("data_config.block_size=32", "gpt_config.n_layer=2", "gpt_config.n_head=2"),
            *("gpt_config.n_embd=32", "trainer_config.batch_size=16"),
            *("trainer_config.data_loader_workers=0", "trainer_config.max_epochs=1"),
            "trainer_config.snapshot_path={work}/snapshot.pt",
        ),
        needs=("hydra", "boto3"),
        data=characters,
    ),
    "nanoGPT": Script(
        "nanoGPT",
        "train.py",
        "DDP, nccl, micro-batches",
        (
            *("--dataset={work}/made_up", "--out_dir={work}/out", "--compile=False"),
            *("--max_iters=4", "--gradient_accumulation_steps={world}", "--block_size=32"),
            *("--batch_size=2", "--n_layer=2", "--n_head=2", "--n_embd=32", "--eval_iters=1"),
            "--dtype=float32",
        ),
        folder="",
        data=tokens,
    ),
    "timm": Script(
        "pytorch-image-models",
        "train.py",
        "DDP, loss averaged over ranks",
        (
            *("--data-dir", "{work}", "--val-split", "val", "--model", "test_vit", "-b", "2"),
            *("--epochs", "1", "--cooldown-epochs", "0", "--warmup-epochs", "0", "-j", "1"),
            *("--output", "{work}/out", "--num-classes", "2"),
        ),
        folder="",
        search=("",),
        needs=("torchvision", "timm"),
        data=images,
    ),
    "accelerate": Script(
        "accelerate",
        "examples/nlp_example.py",
        "Accelerator, gather_for_metrics",
        needs=("accelerate", "transformers", "datasets", "evaluate"),
        stub="sentences.py",
    ),
    "deepspeed-1": _cifar_by_deepspeed(1),
    "deepspeed-2": _cifar_by_deepspeed(2),
    "deepspeed-3": _cifar_by_deepspeed(3),
    "open_clip": Script(
        "open_clip",
        "src/open_clip_train/main.py",
        "features gathered with their gradient",
        (
            # 10 batches of each rank
            *("--dataset-type", "synthetic", "--train-num-samples", "{world}0", "--workers", "0"),
            *("--model", "ViT-S-32-alt", "--epochs", "1", "--batch-size", "1", "--warmup", "1"),
            *("--gather-with-grad", "--logs", "{work}", "--force-image-size", "64"),
        ),
        module="open_clip_train.main",
        search=("src",),
        needs=("torchvision", "ftfy", "webdataset"),
    ),
    "dino": Script(
        "dino",
        "main_dino.py",
        "DDP, nccl, centres reduced in the loss",
        (
            *("--arch", "vit_tiny", "--patch_size", "32", "--data_path", "{work}/train"),
            *("--batch_size_per_gpu", "1", "--epochs", "1", "--num_workers", "0"),
            *("--out_dim", "256", "--output_dir", "{work}", "--local_crops_number", "2"),
            *("--warmup_epochs", "0", "--warmup_teacher_temp_epochs", "0", "--use_fp16", "false"),
        ),
        needs=("torchvision",),
        data=images,
        stub="no_hub.py",
    ),
    "SimCLR": Script(
        "SimCLR",
        "main.py",
        "mp.spawn, SyncBatchNorm, features gathered with their gradient",
        (
            *("--nodes", "{world}", "--gpus", "1", "--nr", "{rank}", "--batch_size", "2"),
            *("--workers", "0", "--epochs", "1", "--image_size", "32", "--dataset", "CIFAR10"),
            *("--model_path", "{work}"),
        ),
        folder="",
        needs=("torchvision",),
        machine=1,
        stub="small_images.py",
    ),
    "ddp": Script("examples", "distributed/ddp/example.py", "DDP by torch.accelerator"),
    "FSDP2": Script(
        "examples", "distributed/FSDP2/example.py", "fully_shard, a checkpoint", is_counted=False
    ),
    "FSDP2-dcp": Script(
        "examples",
        "distributed/FSDP2/example.py",
        "the same, in mixed precision, with prefetching and a distributed checkpoint",
        ("--dcp-api", "--mixed-precision", "--explicit-prefetching"),
        is_counted=False,
    ),
    "tensor_parallel": Script(
        "examples", "distributed/tensor_parallelism/tensor_parallel_example.py", "DTensor"
    ),
    "sequence_parallel": Script(
        "examples", "distributed/tensor_parallelism/sequence_parallel_example.py", "DTensor"
    ),
    "fsdp_tp": Script(
        "examples",
        "distributed/tensor_parallelism/fsdp_tp_example.py",
        "a mesh of two dimensions",
        fewest=4,
    ),
    "word_language_model": Script(
        "examples",
        "word_language_model/main.py",
        "one process",
        ("--data", "{work}", "--epochs", "1", "--emsize", "16", "--nhid", "16"),
        data=lines,
    ),
    "pipelining": Script(
        "PiPPy",
        "examples/huggingface/pippy_bert.py",
        "torch.distributed.pipelining, a model cut into stages",
        needs=("transformers",),
        stub="small_bert.py",
    ),
    "composer": Script(
        "composer",
        "examples/custom_models.py",
        "Trainer, DDP",
        needs=("composer", "torchvision"),
        stub="small_images.py",
    ),
    "litgpt": Script(
        "litgpt",
        "litgpt/__main__.py",
        "pretrain, Lightning Fabric, FSDP1 in hybrid shards",
        (
            *("pretrain", "pythia-14m", "--data", "Tokens", "--out_dir", "{work}/out"),
            *("--devices", "{machine}", "--num_nodes", "{machines}", "--precision", "32-true"),
            *("--model_config.name", "small", "--model_config.n_layer", "2"),
            *("--model_config.n_embd", "32", "--model_config.n_head", "2"),
            *("--model_config.block_size", "32", "--model_config.padded_vocab_size", "64"),
            *("--train.global_batch_size", "{world}", "--train.micro_batch_size", "1"),
            *("--train.max_tokens", "8192", "--train.lr_warmup_steps", "1"),
            *("--eval.max_iters", "1", "--logger_name", "csv"),
        ),
        (("TORCH_COMPILE_DISABLE", "1"),),  # its compiler takes minutes here
        module="litgpt",
        search=("",),
        needs=("litgpt", "lightning"),
        stub="tokens.py",
    ),
    "torchft": Script(
        "torchft",
        "train_ddp.py",
        "one replica group, a process group of its own",
        (),
        (("NUM_REPLICA_GROUPS", "1"),),
        needs=("torchft", "torchvision", "torchdata"),
        stub="lighthouse.py",
    ),
}
