"""From measured layers of a model, as Sailor publishes them, to plans on many GPUs."""

from layer_profiles.bandwidth import Bandwidth, Network, read_network
from layer_profiles.job import plan_job
from layer_profiles.plan import Plan, Stage, Worker, read_plan
from layer_profiles.profiles import LayerTimes, Profiles, read_profiles
from layer_profiles.replica import replica_of
from layer_profiles.sizes import LayerSizes, Sizes, read_sizes
from layer_profiles.strategy import plan_strategy

__all__ = [
    "Bandwidth",
    "LayerSizes",
    "LayerTimes",
    "Network",
    "Plan",
    "Profiles",
    "Sizes",
    "Stage",
    "Worker",
    "plan_job",
    "plan_strategy",
    "read_network",
    "read_plan",
    "read_profiles",
    "read_sizes",
    "replica_of",
]
