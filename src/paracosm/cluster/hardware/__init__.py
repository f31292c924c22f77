"""Commercial hardware: datasheets, nodes, and the efficiencies that ops reach."""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from

if TYPE_CHECKING:
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

__getattr__ = exported_from(
    __name__,
    {
        "catalogue": (
            "Device",
            "Hardware",
            "HostRates",
            "find_hardware",
            "load_catalogue",
        ),
        "efficiency": (
            "Efficiencies",
            "load_efficiencies",
        ),
        "stacks": (
            "Stack",
            "add_to_catalogue",
            "find_stack",
            "load_stacks",
        ),
    },
)
