"""Inputs that once broke something, and others as absurd, with what they are answered.

python tests/robust/corpus.py
"""

from __future__ import annotations

import gzip
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import child
import numpy as np
from fuzz import prepared

TRAIN = "train --timing-only --updates 5"
SELDOM = "train --timing-only --compute 8us --availability onoff(exponential(1us),exponential(1ms))"
OTHER_GPU = "predict --model resnet50 --batch 4 --hardware h100-sxm"
LLAMA = "plan --model llama-8b --hardware h100-sxm --tokens 1e9 --batch-tokens 4e6"
MTX = "%%MatrixMarket matrix coordinate real general\n"

WRITTEN: dict[str, str | bytes] = {
    "list.yaml": "[1, 2]",
    "title.yaml": f"devices: {{mine: {{title: {'a' * 5000}, source: here, memory: 16GiB}}}}\n",
    "model.yaml": "predict: {model: {}, batch: 1}\n",
    "two.yaml": "train: {}\nrelax: {}\n",
    "twice.yaml": "train: {workers: 2, workers: 3}\n",
    "octal.yaml": "train: {workers: 010, timing_only: true}\n",
    "sixty.yaml": "train: {compute: 1:30, timing_only: true}\n",
    "true.yaml": "seed: true\ntrain: {timing_only: true, updates: 5}\n",
    "python.yaml": "train: !!python/object/apply:os.system ['echo']\n",
    "utf16.yaml": "train: {}".encode("utf-16"),
    "nul.yaml": b"train: {workers: 2\0}",
    "path.yaml": "train: {timing_only: true}\nover: {'workers/../../x': [1, 2]}\n",
    "slow.yaml": "topology: switch\nworkers: [{count: 2, speed: 1e-300}]\n",
    "billion.yaml": "topology: switch\nworkers: {count: 1000000000}\n",
    "itself.yaml": "topology: switch\nworkers: 2\nlinks: {default: {latency: 1ms}, overrides: "
    "[{between: [worker0, worker0], latency: 2ms}]}\n",
    "huge.mtx": f"{MTX}2000000000 2000000000 1\n1 1 1\n",
    "nan.mtx": f"{MTX}2 2 2\n1 1 nan\n2 2 1\n",
    "outside.mtx": f"{MTX}2 2 2\n1 1 4\n3 3 1\n",
    "few.mtx": f"{MTX}2 2 99999999999\n1 1 4\n2 2 4\n",
    "text.mtx.gz": gzip.compress(b"hello"),
    "clients.csv": b"client,b\xe9gin,end\n0,0,1\n",
    "late.yaml": "seed: 9223372036854775808\nrelax: {problem: laplace2d:4, time: 1ms}\n",
    "zero.mtx": f"{MTX}2 2 2\n1 1 4\n2 2 \0 4\n",
}
"""Files of the cases."""

CASES = (
    ("train {list}", "a study has one of the keys"),
    ("hardware show {title}", "title: string should have at most 200"),
    ("predict {model}", "model: input should be a valid string"),
    ("train {two}", "got train and relax"),
    ("train {twice}", "is given twice"),
    ("train {octal}", "no decimal number"),
    ("train {sixty}", "no decimal number"),
    ("train {true}", "seed: input should be a number, got true"),
    ("train {python}", "could not determine a constructor"),
    ("train {utf16}", "not UTF-8"),
    ("train {nul}", "special characters"),
    ("train {path} --out {out}/a", "unknown key"),
    ("train {run}", "Is a directory"),
    ("train {relax}", "this is a relax study, not a train study"),
    (f"{TRAIN} --cluster {{slow}}", "speed: input should be greater"),
    (f"{TRAIN} --cluster {{billion}}", "less than or equal to 1000000"),
    (f"{TRAIN} --cluster {{itself}}", "no link is between them"),
    (f"{TRAIN} --timeline --no-timeline", None),
    (f"{TRAIN} --log --quiet", "--log prints and --quiet does not"),
    (f"{TRAIN} --servers 1000000", "less than or equal to 10000"),
    (f"{TRAIN} --latency 1e308s", "a duration of at most 1e+15 s"),
    (f"{TRAIN} --compute 1e308s", "a duration of at most 1e+15 s"),
    (f"{TRAIN} --what-if worker~1:~compute~1e300x~slower", "a factor is 1e-09 to 1e+09"),
    (f"{TRAIN} --latency 1ms --fault lose(100%) --resend-after 1us", "however often"),
    (f"{TRAIN} --clients 9 --availability onoff(1ns,1ns)", "comes once in 1 ms or more"),
    (f"{TRAIN} --clients 9 --availability onoff(1ns,1000000h)", "1e-06 of the time or more"),
    (f"{TRAIN} --out a:b", None),
    (f"{TRAIN} --out \udcff", "not UTF-8 text"),
    (f"{TRAIN} --out /dev/full", "cannot write a run folder here"),
    (f"{TRAIN} --out {{study}}/inside", "Not a directory"),
    (f"{TRAIN} --clients 9 --availability onoff(1us,1ms)", "the job makes no progress"),
    (f"{SELDOM} --clients 9", "the job makes no progress"),
    (SELDOM, "the job makes no progress"),
    (f"{TRAIN} --clients 9 --availability {{clients}}", "cannot be read as a table"),
    (f"{TRAIN} --workers 1000000", "a training has 100,000 at most"),
    ("train --timing-only --compute 1ms --until 1000000h", "updates by then"),
    ("train --timing-only --workers 1,2,4..1000000", "needs a folder to write"),
    ("train --updates 5 --shards sizes(1e9)", "at most 10"),
    ("train --updates 5 --shards bootstrap(999999999999)", "at most 10,000,000"),
    ("train --updates 5 --privacy examples(clip=1,noise=1e308)", "at most 1e+09"),
    ("train --updates 5 --batch 1000000000000", "a minibatch has at most 1,000,000 examples"),
    ("train --updates 5 --schedule {scheduled}/metrics.parquet", "cannot be read as a schedule"),
    ("relax --matrix {huge}", "some rows are empty"),
    ("relax --matrix {nan}", "1 entry is NaN or infinite"),
    ("relax --matrix {outside}", "of a matrix of 2 x 2"),
    ("relax --matrix {few}", "cut off"),
    ("relax --matrix {text}", "not a Matrix Market file"),
    ("relax --matrix {zero}", "is no entry"),
    ("relax --problem laplace2d:4 --rhs {broken}", "not a NumPy file of numbers"),
    ("relax --problem laplace2d:4 --speeds 1,1,nan,1", "speeds: must be finite"),
    ("relax --problem laplace2d:4 --processors 2 --latency 1e12s", "are under way on one link"),
    ("relax --problem laplace2d:4 --max-sweeps 1e12 --tolerance 0", "or equal to 1000000000"),
    ("relax --problem laplace2d:0", ""),
    ("relax --problem laplace2d:100000000000", ""),
    ("relax measure --problem laplace2d:4 --threads 1 --repeats 1000000000", "1 to 10,000"),
    ("calibrate serve --port 0 --timeout 1s --host ../..", "cannot listen on ../..:0"),
    ("calibrate link {out}/a.yaml --timeout 0", "1 s or more, not 0 s"),
    (f"{LLAMA} --max-workers 8 --shape 20", "tasks are more than a rank may have"),
    ("measure link --kinds host-copy --seconds 1000000s", "--seconds: a week at most"),
    ("tune {relax} --trials 1000000 --tune processors=1..2 --out {out}/a", "or equal to 10000"),
    ("profile job mlp --framework pytorch --steps 1000000000", "or equal to 1000000"),
    ("tune {late} --seeds 1 --trials 1 --tune processors=1..2 --out {out}/a", None),
    ("predict {job} --workers 1 --bandwidth 1Gbit/s --order {sparse}", "larger than 16 MiB"),
    ("emulate --world-size 1000000 --bandwidth 1Gbit/s {script}", "100,000 at most"),
    ("predict --model llama-8b --batch 1 --hardware nothing --workers 8 --strategy ddp", ""),
    (f"{OTHER_GPU} --measured resnet50,~batch~1e-308:~180~ms", "measured: batch: input should be"),
    ("report {forged} --out {out}/a.html", "damaged: it is not what was written"),
    ("report {odd} --out {out}/a.html", None),
    (
        "emulate --world-size 4 --bandwidth 1Gbit/s --compare {forged} {script}",
        "damaged: it is not what was written",
    ),
)  # fmt: skip
"""Commands (`~` is a blank), and a part of the line that refuses them; None of those that run."""


def failures() -> Iterator[str]:
    """Run all cases; yield a line for each that is not answered as it should be."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = prepared(folder, long=True)
        for file, content in WRITTEN.items():
            path = files[file.partition(".")[0]] = folder / file
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        files["broken"] = folder / "broken.npy"
        np.save(files["broken"], np.ones(16))
        files["broken"].write_bytes(files["broken"].read_bytes().replace(b"(16,)", b"(-4,)"))
        files["forged"] = Path(shutil.copytree(files["run"], folder / "forged"))
        summary = files["forged"] / "summary.json"
        summary.write_text(summary.read_text().replace('"updates": 20', '"updates": 21'))
        files["sparse"] = folder / "sparse"
        with files["sparse"].open("wb") as file_of_zeros:
            file_of_zeros.truncate(100 << 30)
        files["odd"] = Path(shutil.copytree(files["replayed"], folder / "odd"))
        (files["odd"] / "study.yaml").write_text("seed: {a: 1}\nreplay: {what_if: [[]]}\n")
        for number, (command, message) in enumerate(CASES):
            place = folder / str(number)
            place.mkdir()
            words = [word.replace("~", " ").format(**files, out=place) for word in command.split()]
            outcome = child.run(words, place)
            wanted = "ran" if message is None else "refused"
            if outcome.kind != wanted or (message or "") not in outcome.said:
                yield f"{command!a}: {outcome.kind}, not {wanted}: {outcome.said[-500:]}"


if __name__ == "__main__":
    found = list(failures())
    print(*found, f"{len(CASES)} cases, {len(found)} failures", sep="\n")
    sys.exit(bool(found))
