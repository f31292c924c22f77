"""The former name of `paracosm.replays`, for one version."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    return getattr(import_module("paracosm.replays"), name)
