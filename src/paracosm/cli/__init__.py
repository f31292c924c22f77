"""The command line: one file a verb."""

from paracosm.cli.app import main

__all__ = ["main"]
