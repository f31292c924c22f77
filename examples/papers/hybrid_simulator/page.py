"""The page of the reproduction, and its findings as Markdown."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from findings import Finding

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; vertical-align: top; padding: .4rem .6rem; border-top: 1px solid #8884 }
td:first-child { white-space: nowrap; font-weight: 600 }
figure { margin: 2rem 0 } img { max-width: 100%; background: white; border-radius: 4px }
.yes { color: #009e73 } .no { color: #d55e00 } .open { color: #888 }
"""
MARKS = {True: "yes", False: "no", None: "open"}


def write_page(
    findings: Sequence[Finding],
    figures: Sequence[tuple[str, str, Path]],
    setting: str,
    path: Path,
) -> None:
    """Write one self-contained HTML page."""
    rows = "".join(
        f'<tr><td class="{MARKS[f.holds]}">{f.verdict}</td><td>{escape(f.claim)}<br>'
        f"<small>{escape(f.evidence)}</small></td></tr>"
        for f in findings
    )
    images = "".join(
        f'<figure><img alt="Figure {number}" src="data:image/png;base64,'
        f'{base64.b64encode(file.read_bytes()).decode()}">'
        f"<figcaption>Figure {number}. {escape(caption)}.</figcaption></figure>"
        for number, caption, file in figures
    )
    path.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>The hybrid simulator, reproduced</title><style>{STYLE}</style>"
        "<h1>The hybrid simulator, reproduced</h1>"
        "<p>Zhang, Tanimura, Nakada: "
        "<i>A Hybrid Simulator to Analyze Gradient Staleness Effect</i>. "
        f"{escape(setting)} Ratios are medians over the seeds, with "
        "their 95 % confidence intervals. Eight of ten seeds lie in the shade of a line.</p>"
        f"<h2>Findings</h2><table>{rows}</table><h2>Figures</h2>{images}</html>",
        encoding="utf-8",
    )


def write_findings(findings: Sequence[Finding], setting: str, path: Path) -> None:
    """Write the findings as a Markdown table."""
    rows = "".join(f"| {f.verdict} | {f.claim} | {f.evidence} |\n" for f in findings)
    path.write_text(f"{setting}\n\n| | finding | here |\n|---|---|---|\n{rows}", encoding="utf-8")
