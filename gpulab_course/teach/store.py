"""Store of a learner's predictions, exercises and answers: one small JSON file that many notebooks share."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from filelock import FileLock
from platformdirs import user_data_path

from virtualgpu.compile.cache import replace_file

FILE_NAME = "learner.json"
LOCK_S = 10.0
_GONE = object()

Sections = dict[str, dict[str, Any]]


def data_dir() -> Path:
    """The folder for the learner's own file: ``GPULAB_HOME``, else the platform's data folder."""
    home = os.environ.get("GPULAB_HOME")
    return Path(home).expanduser() if home else user_data_path("gpulab", appauthor=False)


class LearnerStore:
    """Values by section and key. A file that cannot be read or written never stops a lesson.

    Every change is made to what the file holds at that moment, under a lock: other notebooks' answers stay.
    What cannot be saved is kept in memory, is tried again with every later change, and is said once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unsaved: dict[tuple[str, str], Any] = {}
        self._told = False

    def get(self, section: str, key: str) -> Any:
        return self._sections().get(section, {}).get(key)

    def section(self, section: str) -> dict[str, Any]:
        return self._sections().get(section, {})

    def put(self, section: str, key: str, value: Any) -> None:
        json.dumps(value)  # what JSON cannot carry is the caller's mistake, and must not spoil later saves
        self._change(section, key, value)

    def forget(self, section: str, key: str) -> None:
        self._change(section, key, _GONE)

    def _change(self, section: str, key: str, value: Any) -> None:
        self._unsaved[section, key] = value
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock():
                text = json.dumps(self._sections(locked=True), indent=1, sort_keys=True)
                replace_file(self.path, text.encode(), durable=True)
        except OSError as error:
            self._tell_unsaved(error)
        else:
            self._unsaved.clear()

    def _sections(self, locked: bool = False) -> Sections:
        """Return the file's contents, with the values that could not be saved."""
        sections: Sections = {}
        try:
            data = self.path.read_bytes()
            sections = _decoded(data)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            if locked:  # never write over what cannot be read
                raise
            self._tell_unsaved(error)
        except ValueError as error:
            self._set_aside(data, error, locked)
        for (section, key), value in self._unsaved.items():
            values = sections.setdefault(section, {})
            values.pop(key, None) if value is _GONE else values.update({key: value})
        return sections

    def _set_aside(self, damaged: bytes, why: ValueError, locked: bool) -> None:
        """Rename a damaged file, so that no later answer is written over it."""
        kept = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y-%m-%d_%H%M%S')}")
        try:
            if locked:
                self.path.rename(kept)
            else:
                with self._lock():
                    if self.path.read_bytes() != damaged:  # another notebook has been faster
                        return
                    self.path.rename(kept)
        except FileNotFoundError:
            return
        except OSError as error:
            if locked:
                raise
            self._tell_unsaved(error)
            return
        _say(f"Your earlier answers in {self.path} cannot be read ({why}). The file is {kept.name} now.")

    def _lock(self) -> FileLock:
        return FileLock(self.path.with_name(f".{self.path.name}.lock"), timeout=LOCK_S)

    def _tell_unsaved(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            _say(
                f"Your answers are not saved and will be gone with this kernel: {self.path} "
                f"({error.strerror or error}). GPULAB_HOME names another folder."
            )


def _decoded(data: bytes) -> Sections:
    """The sections that a file's bytes hold.

    Raises
    ------
    ValueError
        If they are damaged.
    """
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict) or not all(isinstance(values, dict) for values in found.values()):
        raise ValueError("not a table of sections")
    return found


def _say(sentence: str) -> None:
    # A form shows what is printed here while it answers a click. On a full disk a log is full, too.
    with contextlib.suppress(OSError):
        print(f"gpulab: {sentence}", file=sys.stderr, flush=True)


@functools.cache
def _store_at(path: Path) -> LearnerStore:
    return LearnerStore(path)


def store() -> LearnerStore:
    """The store of the one learner at this machine. It follows ``GPULAB_HOME`` when that changes."""
    return _store_at(data_dir() / FILE_NAME)
