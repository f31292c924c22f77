"""The shell of the page: one file with style, script, Plotly and the figures in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

__all__ = ["page"]


def page(title: str, subtitle: str, body: str, figures: Mapping[str, Any]) -> str:
    """Return the HTML of a whole page.

    Args:
        title: the heading; plain text.
        subtitle: the line under it; plain text.
        body: HTML, with an element `<figure id=NAME>` that holds a `.plot` for each figure.
        figures: name -> Plotly figure. Plotly is left out where there is none.
    """
    return Template(_read("page.html")).substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        body=body,
        style=_read("page.css"),
        scripts=_scripts(figures) if figures else "",
    )


def _scripts(figures: Mapping[str, Any]) -> str:
    from plotly.offline import get_plotlyjs

    # "</script>" in a name would end the element.
    data = json.dumps(figures, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<script type="application/json" id="figures-data">{data}</script>\n'
        f"<script>{get_plotlyjs()}</script>\n"
        f"<script>{_read('page.js')}</script>"
    )


def _read(name: str) -> str:
    return files("paracosm.report").joinpath(name).read_text(encoding="utf-8")
