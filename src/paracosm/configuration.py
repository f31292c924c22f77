"""The base of every configuration: how it says that a field has no effect."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Configuration(BaseModel):
    """The arguments of a run, or some fields of them.

    `SYNONYMS` has other names of fields, such as "processors" for workers, by what is written.
    """

    # A model is compiled when it first reads arguments, and so never for a help.
    model_config = ConfigDict(defer_build=True)

    SYNONYMS: ClassVar[dict[str, str]] = {}

    def idle(self) -> dict[str, set[str]]:
        """Return the fields that have no effect on this run, whatever their values, by reason."""
        return {}

    def without_effect(self) -> set[str]:
        """Return the fields that have no effect on this run, whatever their values."""
        return set[str]().union(*self.idle().values())

    def refuse_idle(self) -> None:
        """Refuse fields that were given and have no effect; a validator calls it."""
        for reason, fields in self.idle().items():
            if given := sorted(fields & self.model_fields_set):
                raise ValueError(f"{', '.join(given)}: has no effect, leave it out: {reason}")
