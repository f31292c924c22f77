"""Hardware that is on sale: datasheets, nodes, and what ops reach of the peaks."""

from paracosm.cluster.hardware.catalogue import (
    Catalogue,
    Device,
    Hardware,
    add_to_catalogue,
    find_hardware,
    load_catalogue,
    user_folder,
)
from paracosm.cluster.hardware.efficiency import (
    OP_CLASSES,
    Efficiencies,
    Efficiency,
    OpTime,
    load_efficiencies,
    op_time,
)

__all__ = [
    "OP_CLASSES",
    "Catalogue",
    "Device",
    "Efficiencies",
    "Efficiency",
    "Hardware",
    "OpTime",
    "add_to_catalogue",
    "find_hardware",
    "load_catalogue",
    "load_efficiencies",
    "op_time",
    "user_folder",
]
