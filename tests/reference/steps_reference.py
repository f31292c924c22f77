"""Algorithm 3.1 of Li et al. 2020 without haste: the reference that tests compare others with."""

from steps_sharing import (
    Flow,
    Ports,
    Sharing,
    equal_rates,
    max_min,
    two_server_rates,
)
from steps_simulation import port_bandwidths, simulate_literally

__all__ = [
    "Flow",
    "Ports",
    "Sharing",
    "equal_rates",
    "max_min",
    "port_bandwidths",
    "simulate_literally",
    "two_server_rates",
]
