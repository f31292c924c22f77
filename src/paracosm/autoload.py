"""Emulation under the user's own launch line: `PARACOSM_WORLD_SIZE=64 torchrun train.py`.

PyTorch loads this with every `import torch`, in every process where Paracosm is installed: it
must cost nothing unless it is used.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from paracosm.emulation.config import Setting


def autoload() -> None:
    """Make this process the real rank of an emulated job, if its environment asks for that.

    The environment must name the world size, PARACOSM_WORLD_SIZE, or the port of an emulator that
    serves this rank, PARACOSM_SERVED. The process must be a rank: RANK is set, as torchrun does for
    the processes that it starts but not for itself, or Python runs a script. Processes that a rank
    starts, such as workers of a DataLoader, inherit its settings and are left alone. An error is
    one line and ends the process with exit code 2.
    """
    environment = os.environ
    if "PARACOSM_EMULATION" in environment:
        return
    if "PARACOSM_WORLD_SIZE" in environment and ("RANK" in environment or _is_script()):
        from paracosm.emulation.rank.launched import become_rank

        become_rank(_finish)
    elif "PARACOSM_SERVED" in environment and "RANK" in environment:
        from paracosm.emulation.rank.launched import become_served_rank

        become_served_rank(environment["PARACOSM_SERVED"])


def _is_script() -> bool:
    """Whether this process runs a script that no launcher started; warn if it runs none."""
    program = sys.argv[0] if sys.argv else ""
    if program in ("", "-c"):
        line = "paracosm: PARACOSM_WORLD_SIZE has no effect: name a script, python train.py"
        print(line, file=sys.stderr)
    return program.endswith(".py") and "-packages" not in program


def _finish(setting: Setting, records: Path, out: Path | None, exit_code: int) -> None:
    from paracosm.cli.emulate import finish

    finish(setting, records, out, exit_code)
