"""The process of a real rank: `python -m paracosm.emulation.rank.main SCRIPT ARGS...`."""

from __future__ import annotations

import sys

from paracosm.emulation.rank.orphan import end_with_parent
from paracosm.emulation.setting import Setting
from paracosm.errors import InputError

__all__ = ["main"]

_BAD_INPUT = 2


def main() -> None:
    """Prepare this process as its environment says, run the script, and end as the script ends."""
    end_with_parent()
    from paracosm.emulation.rank.prepare import prepare
    from paracosm.emulation.rank.script import load_script, run_script, show

    try:
        setting = Setting.from_environment()
        prepare(setting)
        script = load_script(sys.argv[1])
    except InputError as error:
        print(f"paracosm: {error}", file=sys.stderr)
        sys.exit(_BAD_INPUT)
    except SyntaxError as error:
        show(error)
        sys.exit(1)
    run_script(script, sys.argv[2:])


if __name__ == "__main__":
    main()
