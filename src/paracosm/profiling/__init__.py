"""How long ops, transfers and iterations take: measured, kept in a database, estimated."""

from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.environment import Environment
from paracosm.profiling.here import environment_here
from paracosm.profiling.model import ModelProfile, profile_model
from paracosm.profiling.profile import Profile, Settings, profile
from paracosm.profiling.samples import IterationTiming, LinkTiming, OpTiming, Spread

__all__ = [
    "Environment",
    "IterationTiming",
    "LinkTiming",
    "ModelProfile",
    "OpTiming",
    "Profile",
    "ProfileDatabase",
    "Settings",
    "Spread",
    "environment_here",
    "profile",
    "profile_model",
]
