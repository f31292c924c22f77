"""What a timing depends on beside the op: device, framework, threads, allocator."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from paracosm.errors import InputError

__all__ = ["Environment"]


@dataclass(frozen=True, slots=True)
class Environment:
    """Timings of equal environments may be pooled; those of others say nothing here.

    Attributes:
        device: "cpu" or "cuda".
        hardware: the device's own name, "AMD EPYC" with family and model, "NVIDIA H200".
        framework: with its version, "torch 2.13.0".
        threads: of one op (CPU); 0 where the device decides.
        allocator: how memory was handed out, "malloc pinned", "malloc default", "cuda caching".
        denormals: "flushed" or "kept".
    """

    device: str
    hardware: str
    framework: str
    threads: int
    allocator: str
    denormals: str

    def __str__(self) -> str:
        """In words: "AMD EPYC, torch 2.13.0, threads 1, malloc pinned, denormals flushed"."""
        threads = f"threads {self.threads}" if self.threads else ""
        denormals = f"denormals {self.denormals}"
        parts = (self.hardware, self.framework, threads, self.allocator, denormals)
        return ", ".join(part for part in parts if part)

    def to_json(self) -> str:
        """Return the text that a database keys its timings by."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Environment:
        """Return the environment of a text; names that a newer version added are ignored.

        Raises:
            InputError: it is none, or a name is missing.
        """
        try:
            found = json.loads(text)
            return cls(**{part.name: found[part.name] for part in fields(cls)})
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"not an environment of timings ({error}): {text[:200]}") from None

    def differences(self, other: Environment) -> list[str]:
        """Return a phrase for everything in which `other` differs: 'threads 2, not 1'."""
        pairs = (
            (part.name, getattr(self, part.name), getattr(other, part.name))
            for part in fields(self)
        )
        return [f"{name} {theirs}, not {ours}" for name, ours, theirs in pairs if ours != theirs]
