"""Hardware that is on sale: datasheets, nodes, and what ops reach of the peaks."""

from paracosm.cluster.hardware.catalogue import (
    Hardware,
    add_to_catalogue,
    find_hardware,
    load_catalogue,
)
from paracosm.cluster.hardware.efficiency import Efficiencies, load_efficiencies

__all__ = [
    "Efficiencies",
    "Hardware",
    "add_to_catalogue",
    "find_hardware",
    "load_catalogue",
    "load_efficiencies",
]
