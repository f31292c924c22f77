"""Reports of runs: one HTML page that works offline, and its figures as images."""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from

if TYPE_CHECKING:
    from paracosm.report.images import write_images
    from paracosm.report.writing import write_report

__all__ = ["write_images", "write_report"]

__getattr__ = exported_from(
    __name__,
    {
        "images": ("write_images",),
        "writing": ("write_report",),
    },
)
