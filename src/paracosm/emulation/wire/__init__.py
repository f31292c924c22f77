"""Wire mode: the emulated peers of a real gloo process group, over TCP."""
