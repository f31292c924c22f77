"""The documentation site: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

import paracosm

sys.path.insert(0, str(Path(__file__).parent))

project = "Paracosm"
author = "The Paracosm authors"
copyright = author
version = release = paracosm.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "made_pages",
]
exclude_patterns = ["_build"]
nitpicky = False
smartquotes = False  # they turn "--flag" into a dash
default_role = "literal"  # docstrings are written with single backticks

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "abort_on_example_error": True,
    "show_memory": False,
}

html_theme = "furo"
html_title = "Paracosm"
html_copy_source = False
html_static_path = ["static"]
html_css_files = ["console.css"]
