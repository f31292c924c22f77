"""A process of a user's training script: a parameter server, or the worker whose steps are traced.

Its argument is a JSON object, see `script`. It says what there is to say, a line of JSON each, to
what was its standard output; what the script prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import threading
from pathlib import Path
from typing import Any

from paracosm.profiling.answers import answering

__all__ = ["main"]


def main(setup: dict[str, Any]) -> None:
    """Run the script as the task of its cluster that `setup` names."""
    answer = answering()
    os.environ["TF_CONFIG"] = json.dumps(setup["tf_config"])
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    threading.Thread(target=_end_with_parent, daemon=True).start()

    if setup["tf_config"]["task"]["type"] == "worker":
        from paracosm.profiling.jobs.tensorflow.tracing import trace_sessions

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


def _end_with_parent() -> None:
    """End when nobody holds the other end of standard input any more."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
