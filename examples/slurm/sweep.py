"""Run a study on a Slurm cluster: workers are Slurm jobs, which dask-jobqueue submits.

    pip install dask-jobqueue
    python examples/slurm/sweep.py examples/demo.yaml runs/demo --workers 32 --queue short

It is run on a login node, which writes the results; the nodes need the same environment and no
shared disk but for that. The same command resumes where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import paracosm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=8, help="Slurm jobs of one core")
    parser.add_argument("--queue", help="partition")
    parser.add_argument("--memory", default="4GB", help="of a worker")
    parser.add_argument("--walltime", default="02:00:00", help="of a worker")
    options = parser.parse_args()
    try:
        from dask_jobqueue import SLURMCluster
    except ModuleNotFoundError:
        sys.exit("this example needs dask-jobqueue: pip install dask-jobqueue")

    with SLURMCluster(
        queue=options.queue,
        cores=1,
        processes=1,  # one thread each: runs take turns in a process
        memory=options.memory,
        walltime=options.walltime,
    ) as cluster:
        cluster.scale(jobs=options.workers)
        cluster.wait_for_workers(1)
        sweep = paracosm.study(
            options.study, out=options.out, backend="dask", scheduler=cluster.scheduler_address
        )
    print(sweep.sentence)


if __name__ == "__main__":
    main()
