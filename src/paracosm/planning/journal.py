"""What was run already: a line of JSON for each run, so that a plan can go on where it stopped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paracosm.data_files import parse_json
from paracosm.results import to_builtin


class Journal:
    """Results by key, in memory and, where there is a file, at the end of it at once.

    A last line that was cut off is passed over: that run is made again.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._found: dict[str, Mapping[str, Any]] = {}
        if path is None or not path.exists():
            return
        whole = path.read_bytes()
        ended = whole[: whole.rfind(b"\n") + 1]
        for line in ended.decode("utf-8").splitlines():
            entry = parse_json(line, str(path))
            self._found[entry["key"]] = entry["result"]
        if len(ended) < len(whole):
            path.write_bytes(ended)

    def __len__(self) -> int:
        return len(self._found)

    def get(self, key: str) -> Mapping[str, Any] | None:
        return self._found.get(key)

    def add(self, key: str, result: Mapping[str, Any]) -> None:
        """Keep a result; what was there under the key is replaced."""
        plain = to_builtin(result)
        self._found[key] = plain
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "result": plain}) + "\n")
