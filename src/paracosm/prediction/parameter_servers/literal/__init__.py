"""Algorithm 3.1 of Li et al. 2020 without haste: the reference that tests compare others with."""

from paracosm.prediction.parameter_servers.literal.sharing import (
    Flow,
    Ports,
    Sharing,
    equal_rates,
    max_min,
    two_server_rates,
)
from paracosm.prediction.parameter_servers.literal.simulation import simulate_literally

__all__ = [
    "Flow",
    "Ports",
    "Sharing",
    "equal_rates",
    "max_min",
    "simulate_literally",
    "two_server_rates",
]
