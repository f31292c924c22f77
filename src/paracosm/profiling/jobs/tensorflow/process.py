"""A process of a user's training script: a parameter server, or the worker whose steps are traced.

Its argument is a JSON object, see `script`. It answers in lines of JSON on what was its standard
output; the script's output goes to standard error.
"""

import importlib
import json
import os
import runpy
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from paracosm.errors import require
from paracosm.profiling.processes import Answer, answering


def main(setup: dict[str, Any]) -> None:
    answer = answering()
    os.environ["TF_CONFIG"] = json.dumps(setup["tf_config"])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

    if setup["tf_config"]["task"]["type"] == "worker":
        trace_sessions(Path(setup["folder"]), setup["steps"], setup["warmup"], answer)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # a server would take the worker's accelerator
    sys.argv = [setup["script"], *setup["arguments"]]
    sys.path[0] = str(Path(setup["script"]).resolve().parent)
    try:
        runpy.run_path(setup["script"], run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    answer(ended=True)
    threading.Event().wait()


_GRAPHS = 3  # steps whose partitioned graphs are asked for: all have the same, and they are large


def trace_sessions(folder: Path, steps: int, warmup: int, answer: Answer) -> None:
    """Trace every `Session.run` of this process, and keep those that are training steps.

    A training step has transfers in both directions. `answer` gets of each: "step" its number,
    "span" nanoseconds of its request and end, "pause" seconds that keeping it took; and "done" at
    the end, when there are enough and the process ends.
    """
    tensorflow = require("tensorflow", "tensorflow", "profiling a TensorFlow job")
    config = tensorflow.compat.v1
    session = importlib.import_module("tensorflow.python.client.session").BaseSession
    original, lock, trained = session.run, threading.Lock(), 0

    def run(
        self: Any,
        fetches: Any,
        feed_dict: Any = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        run_options = config.RunOptions()
        if options is not None:
            run_options.CopyFrom(options)
        run_options.trace_level = config.RunOptions.FULL_TRACE
        run_options.output_partition_graphs |= trained < warmup + _GRAPHS
        metadata = config.RunMetadata()
        begin = time.time_ns()
        result = original(self, fetches, feed_dict, run_options, metadata)
        end = time.time_ns()
        if run_metadata is not None:
            run_metadata.CopyFrom(metadata)
        with lock:
            if _is_training(metadata):
                keep(metadata, begin, end)
        return result

    def keep(metadata: Any, begin: int, end: int) -> None:
        nonlocal trained
        trained += 1
        number = trained - warmup - 1
        if number < 0:
            return
        (folder / f"step-{number}.pb").write_bytes(metadata.SerializeToString())
        answer(step=number, span=[begin, end], pause=(time.time_ns() - end) / 1e9)
        if number + 1 == steps:
            answer(done=True)
            _end()

    session.run = run
    _refuse_coordinators(answer)
    answer(framework=f"TensorFlow {tensorflow.__version__}")


def _is_training(metadata: Any) -> bool:
    """Whether both the worker and a server received a tensor."""
    received = {
        device.device.startswith("/job:ps/")
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        if node.node_name == "RecvTensor"
    }
    return len(received) == 2


def _refuse_coordinators(answer: Answer) -> None:
    strategies = importlib.import_module(
        "tensorflow.python.distribute.parameter_server_strategy_v2"
    )

    def refuse(*_: Any, **__: Any) -> NoReturn:
        answer(
            refused=f"{sys.argv[0]}: ParameterServerStrategy runs no sessions, and TensorFlow "
            "keeps step statistics of sessions only: profile a script with "
            "tf.compat.v1.train.Server and a Session or MonitoredTrainingSession"
        )
        _end()

    strategies.ParameterServerStrategyV2.__init__ = refuse


def _end() -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
