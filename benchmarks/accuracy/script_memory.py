"""Memory of torchtitan's own train.py as its authors measured it, beside what is predicted of it.

    python benchmarks/accuracy/script_memory.py CHECKOUT [FOLDER] [--model 8b]

CHECKOUT is torchtitan at the commit that was measured, 9dec370 of December 2024; what it imports
must be there (tiktoken, torchdata, datasets, tensorboard, triton; for float8 torchao 0.8). FOLDER
has llama3_h100_*.csv; without it, the folder `torchtitan` of the one that PARACOSM_DATA names.

Its train.py runs as it is, on text and a tokenizer that are made here, of the same 128,256 tokens.
What it prints and its authors report is what PyTorch's allocator reserves, of the rank that
reserves most. Nothing is fitted. Its launcher lets segments expand, but what was measured fits
segments of a fixed size, PyTorch's default: both are shown. A row marked * is recorded in bfloat16.

Rows with asynchronous tensor parallelism are left out: it asks for symmetric memory by address.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from printing import folder_of, mape, print_table, signed

from paracosm.emulation.device.memory_model import memory_use, played_allocator
from paracosm.emulation.device.recording import Recording, load_recording
from paracosm.errors import InputError

HARDWARE = "hgx-h100-96gb"
GIB = 1 << 30
TOKENS = 128_000  # of Llama 3, without special ones
FLOAT8 = (
    *("--float8.enable_float8_linear", "--float8.enable_fsdp_float8_all_gather"),
    "--float8.precompute_float8_dynamic_scale_for_fsdp",
)


def main() -> int:
    """Record each row, and print measured and predicted memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="of torchtitan")
    parser.add_argument("folder", nargs="?", help="of tables")
    parser.add_argument("--model", default="", help="rows of this one alone: 8b, 70b")
    parsed = parser.parse_args()
    folder = folder_of(parsed, "torchtitan", "measured runs")
    if folder is None:
        return 2
    if not (parsed.checkout / "train.py").is_file():
        raise InputError(f"{parsed.checkout}: no checkout of torchtitan: it has no train.py")
    lines, errors, expanding = [], [], []
    for row in rows_of(folder, parsed.model):
        # torchao of that time has no tensor parallelism with the PyTorch of today.
        for tried in (row, {**row, "float8": "no"})[: 1 + (row["float8"] == "yes")]:
            known = attempted(parsed.checkout, tried)
            if known is not None:
                break
        else:
            continue
        recordings, seconds = known
        measured = float(row["memory_gib"]) * GIB
        allocated = max(memory_use(recording, 1 << 50).allocated for recording in recordings)
        default, expandable = (
            max(
                played_allocator(replace(recording, allocator=to)).highest
                for recording in recordings
            )
            for to in ("", "expandable_segments:True")
        )
        errors.append(default / measured - 1)
        expanding.append(expandable / measured - 1)
        lines.append(
            (
                title(row) + (" *" if tried is not row else ""),
                f"{measured / GIB:.1f} GiB",
                f"{default / GIB:.2f} GiB",
                signed(errors[-1]),
                f"{expandable / GIB:.2f} GiB",
                signed(expanding[-1]),
                f"{allocated / GIB:.2f} GiB",
                f"{seconds:.0f} s",
            )
        )
        print(f"recorded: {title(tried)}", file=sys.stderr)
    if not lines:
        raise InputError("no row could be recorded")
    header = ("run", "measured", "predicted", "error", "expandable", "error", "allocated")
    print_table((*header, "recorded in"), lines)
    print(
        f"\nmean error of {len(errors)} rows: {mape(errors):.1%}, with expandable segments "
        f"{mape(expanding):.1%}; the time is of the processor, and recording took at most "
        f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6:.2f} GB here"
    )
    return 0


def rows_of(folder: Path, model: str) -> list[Mapping[str, str]]:
    """Return the rows of all tables that can be recorded."""
    known = []
    for file in sorted(folder.glob("llama3_h100_*.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            known += list(csv.DictReader(lines))
    rows = [row for row in known if row["async_tp"] == "no" and row["model"].endswith(model)]
    if not rows:
        raise InputError(f"{folder}: no such runs in files llama3_h100_*.csv")
    return rows


def title(row: Mapping[str, str]) -> str:
    ways = [row["model"], f"{row['gpus']} GPUs", row["parallelism"]]
    ways += [name for name in ("compile", "float8") if row[name] == "yes"]
    return ", ".join(ways)


def attempted(checkout: Path, row: Mapping[str, str]) -> tuple[Sequence[Recording], float] | None:
    """Record a row, or say why that is not possible."""
    try:
        with tempfile.TemporaryDirectory() as work:
            return recorded(checkout, Path(work), row)
    except InputError as error:
        print(f"left out: {error}", file=sys.stderr)
        return None


def recorded(
    checkout: Path, work: Path, row: Mapping[str, str]
) -> tuple[Sequence[Recording], float]:
    """Return the recordings of a row, and the seconds of the processor that they took."""
    prepare_inputs(work)
    size = row["model"].rpartition("-")[2]
    degrees = dict(part.strip().split("=") for part in row["parallelism"].split(","))
    arguments = [
        *("--job.config_file", str(checkout / "train_configs" / f"llama3_{size}.toml")),
        *("--job.dump_folder", str(work / "outputs")),
        *("--model.tokenizer_path", str(work / "tokenizer.model")),
        *("--training.dataset", "c4_test", "--training.batch_size", row["local_batch"]),
        *("--training.seq_len", row["sequence"]),
        *("--training.tensor_parallel_degree", degrees.get("tp", "1")),
        *("--activation_checkpoint.mode", row["activation_checkpointing"]),
        *(["--training.compile"] if row["compile"] == "yes" else []),
        *(FLOAT8 if row["float8"] == "yes" else ()),
    ]
    run = work / "run"
    command = [sys.executable, "-m", "paracosm", "emulate", "--hardware", HARDWARE, "--quiet"]
    command += ["--world-size", row["gpus"], "--out", str(run), "--output", "stderr"]
    path = os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH", "")]))
    ended = subprocess.run(
        [*command, str(checkout / "train.py"), *arguments],
        cwd=work,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        lines = ended.stderr.strip().splitlines()
        why = next((line for line in reversed(lines) if "Error" in line), lines[-1])
        raise InputError(f"{title(row)}: {why}")
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    files = sorted(run.glob("device*.parquet"))
    return [load_recording(file) for file in files], summary["recording"]["processor_seconds"]


def prepare_inputs(work: Path) -> None:
    """Write a tokenizer of as many tokens as Llama 3's, and text."""
    tokens = [bytes([value]) for value in range(256)]
    tokens += [b"x" + number.to_bytes(3, "big") for number in range(TOKENS - len(tokens))]
    lines = (b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in enumerate(tokens))
    (work / "tokenizer.model").write_bytes(b"".join(lines))
    data = work / "tests" / "assets" / "c4_test"
    data.mkdir(parents=True)
    text = json.dumps({"text": "abcdefg hijklmn " * 600})
    (data / "data.json").write_text("\n".join([text] * 200), encoding="utf-8")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(error)
        sys.exit(2)
