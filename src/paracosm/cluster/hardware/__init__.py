"""Commercial hardware: datasheets, nodes, and the efficiencies that ops reach."""

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
