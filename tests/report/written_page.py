"""A report as it is written: its page without Plotly's code, its figures, its text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from paracosm.report import write_report
from paracosm.studies.run_folder import RunFolder


def page_of(tmp_path: Path, *runs: RunFolder) -> str:
    """Return the page without the third of it that is Plotly's code."""
    write_report([RunFolder.open(run.path) for run in runs], tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    return re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)


def figures_of(html: str) -> dict[str, Any]:
    """Return what Plotly is given, by name; nothing where the page has no figures."""
    found = re.search(r'id="figures-data">(.*?)</script>', html, re.DOTALL)
    return json.loads(found[1]) if found else {}


def text_of(html: str) -> str:
    """Return the words of the page, separated by single spaces."""
    return " ".join(re.sub(r"<[^>]+>", " ", html.split("<script")[0]).split())
