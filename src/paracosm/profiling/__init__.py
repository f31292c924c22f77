"""How long ops, transfers and iterations take: measured, kept in a database, estimated."""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from

if TYPE_CHECKING:
    from paracosm.profiling.database import ProfileDatabase
    from paracosm.profiling.environment import Environment, environment_here
    from paracosm.profiling.profiler import ModelProfile, Profile, Settings, profile, profile_model
    from paracosm.profiling.samples import OpTiming

__all__ = [
    "Environment",
    "ModelProfile",
    "OpTiming",
    "Profile",
    "ProfileDatabase",
    "Settings",
    "environment_here",
    "profile",
    "profile_model",
]

__getattr__ = exported_from(
    __name__,
    {
        "database": ("ProfileDatabase",),
        "environment": ("Environment", "environment_here"),
        "profiler": ("ModelProfile", "Profile", "Settings", "profile", "profile_model"),
        "samples": ("OpTiming",),
    },
)
