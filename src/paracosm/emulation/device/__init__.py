"""A device that is not there: a script runs on it, and what it would do is recorded."""
