"""The commands of a page whose cost is measured, and what each of them is run as."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import commands_of, costs

PAGE = """
Run `paracosm doctor`, then

```
make demo
paracosm train --out runs/a
```

```python
import paracosm
```

```console
paracosm report runs/a
paracosm: command not found
```
"""


def test_commands_are_those_in_blocks_in_their_order() -> None:
    assert commands_of(PAGE) == ["paracosm train --out runs/a", "paracosm report runs/a"]


def test_a_command_runs_twice_with_a_cache_of_its_own_and_its_files_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "counted.py"
    package.write_text(
        "import os, pathlib, sys\n"
        "place = pathlib.Path(os.environ['XDG_CACHE_HOME'], 'known')\n"
        "out = pathlib.Path('out')\n"
        "assert not out.exists()\n"
        "out.write_text('')\n"
        "with open('log', 'a') as log:\n"
        "    print(place.exists(), *sys.argv[1:], file=log)\n"
        "place.touch()\n"
    )
    for name in ("b.in", "a.in"):
        (tmp_path / name).touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    first, second = costs("counted *.in --out out", tmp_path)
    lines = (tmp_path / "log").read_text().splitlines()
    assert lines == ["False a.in b.in --out out", "True a.in b.in --out out"]
    assert 0 < first.processor <= 60
    assert second.memory > 1 << 20
