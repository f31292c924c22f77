"""The former place of `paracosm.profiling.datasheets`, for one version."""

from paracosm.profiling.datasheets import durations_on

__all__ = ["durations_on"]
