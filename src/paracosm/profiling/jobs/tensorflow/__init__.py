"""Job profiles from TensorFlow's traces of its steps."""

from paracosm.profiling.jobs.tensorflow.read import ScriptSettings, profile_script, read_steps

__all__ = ["ScriptSettings", "profile_script", "read_steps"]
