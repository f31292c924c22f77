"""Who shares a link and how: stations of a cluster, and what messages do to one another there."""

from paracosm.network.stations import Stations

__all__ = ["Stations"]
