"""Job profiles from what TensorFlow traces of its steps."""

from paracosm.profiling.jobs.tensorflow.read import read_steps
from paracosm.profiling.jobs.tensorflow.script import ScriptSettings, profile_script

__all__ = ["ScriptSettings", "profile_script", "read_steps"]
