"""How messages share links: the stations of a cluster, and the rules of sharing."""

from paracosm.network.stations import Stations

__all__ = ["Stations"]
