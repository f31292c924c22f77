"""A TensorFlow parameter server, or its worker, which fetches variables and says when it had them.

One program for both processes: its argument is a JSON object with the role, the addresses of server
and worker as this process is to use them, and the sizes of the variables; the worker's orders are
indices of variables to fetch at once, and its answers when each was there.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paracosm.factory import one_line
from paracosm.profiling.processes import answering

_EDGE = re.compile(r"(edge_\S+) from ")


def main() -> None:
    setup = json.loads(sys.argv[1])
    answer = answering()
    try:
        fetch = _begin(setup)
        answer(ready=True)
        for line in sys.stdin:
            answer(ended=fetch(json.loads(line)["fetch"]))
    except Exception as error:
        answer(error=one_line(error))
    # Not an orderly end: servers of TensorFlow have none.
    os._exit(0)


def _begin(setup: Mapping[str, Any]) -> Callable[[Sequence[int]], dict[str, float]]:
    """Start this process's server of TensorFlow; return what fetches variables."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    tf: Any = importlib.import_module("tensorflow").compat.v1
    tf.disable_eager_execution()
    addresses = {"ps": [setup["server"]], "worker": [setup["worker"]]}
    server = tf.train.Server(addresses, job_name=setup["role"], task_index=0, protocol="grpc")
    if setup["role"] == "ps":
        return lambda _: {}
    with tf.device("/job:ps/task:0"):
        variables = [
            tf.get_variable(f"variable{at}", shape=[size // 4], initializer=tf.zeros_initializer())
            for at, size in enumerate(setup["sizes"])
        ]
    with tf.device("/job:worker/task:0"):
        fetched = [tf.identity(each, name=f"fetched{at}") for at, each in enumerate(variables)]
        fetches = [tf.group(each) for each in fetched]
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    session = tf.Session(server.target, config=config)
    session.run(tf.global_variables_initializer())
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)

    def fetch(which: Sequence[int]) -> dict[str, float]:
        metadata = tf.RunMetadata()
        session.run([fetches[at] for at in which], options=options, run_metadata=metadata)
        return {
            edge[1]: (node.all_start_micros + node.all_end_rel_micros) * 1e-6
            for device in metadata.step_stats.dev_stats
            if "job:worker" in device.device
            for node in device.node_stats
            if node.node_name == "RecvTensor" and (edge := _EDGE.search(node.timeline_label))
        }

    return fetch


if __name__ == "__main__":
    main()
