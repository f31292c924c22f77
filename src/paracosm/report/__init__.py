"""Reports of runs: one HTML page that works offline, and its figures as images."""

from paracosm.report.images import write_images
from paracosm.report.writing import write_report

__all__ = ["write_images", "write_report"]
