"""Commercial hardware: datasheets, nodes, and the efficiencies that ops reach."""

from paracosm.cluster.hardware.catalogue import (
    Device,
    Hardware,
    HostRates,
    find_hardware,
    load_catalogue,
)
from paracosm.cluster.hardware.efficiency import Efficiencies, load_efficiencies
from paracosm.cluster.hardware.stacks import Stack, add_to_catalogue, find_stack, load_stacks

__all__ = [
    "Device",
    "Efficiencies",
    "Hardware",
    "HostRates",
    "Stack",
    "add_to_catalogue",
    "find_hardware",
    "find_stack",
    "load_catalogue",
    "load_efficiencies",
    "load_stacks",
]
