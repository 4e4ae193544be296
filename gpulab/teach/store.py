"""What a learner has predicted, passed and answered, kept in memory and in one small JSON file."""

from __future__ import annotations

import contextlib
import functools
import json
import os
from pathlib import Path
from typing import Any

from platformdirs import user_data_path

from virtualgpu.compile.cache import replace_file

FILE_NAME = "learner.json"


def data_dir() -> Path:
    """The folder for the learner's own file: ``GPULAB_HOME``, else the platform's data folder."""
    home = os.environ.get("GPULAB_HOME")
    return Path(home).expanduser() if home else user_data_path("gpulab", appauthor=False)


class LearnerStore:
    """Values by section and key. A file that cannot be read or written never stops a lesson."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sections: dict[str, dict[str, Any]] = _read(path)

    def get(self, section: str, key: str) -> Any:
        return self._sections.get(section, {}).get(key)

    def section(self, section: str) -> dict[str, Any]:
        return dict(self._sections.get(section, {}))

    def put(self, section: str, key: str, value: Any) -> None:
        self._merge_from_disk()
        self._sections.setdefault(section, {})[key] = value
        self._write()

    def forget(self, section: str, key: str) -> None:
        self._merge_from_disk()
        self._sections.get(section, {}).pop(key, None)
        self._write()

    def _merge_from_disk(self) -> None:
        # Another notebook may have written since: its keys stay.
        for section, values in _read(self.path).items():
            self._sections[section] = self._sections.get(section, {}) | values

    def _write(self) -> None:
        with contextlib.suppress(OSError, TypeError, ValueError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, json.dumps(self._sections, indent=1, sort_keys=True).encode())


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): values for name, values in found.items() if isinstance(values, dict)}


@functools.cache
def _store_at(path: Path) -> LearnerStore:
    return LearnerStore(path)


def store() -> LearnerStore:
    """The store of the one learner at this machine. It follows ``GPULAB_HOME`` when that changes."""
    return _store_at(data_dir() / FILE_NAME)
