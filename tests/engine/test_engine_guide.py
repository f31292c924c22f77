"""Every snippet of docs/engine.md runs and prints what stands below it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).parents[2] / "docs" / "engine.md"


def test_the_snippets_print_what_the_guide_says() -> None:
    snippets = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(snippets) == GUIDE.read_text().count("```python")
    names: dict[str, Any] = {}
    for code, expected in snippets:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        assert printed.getvalue() == expected
