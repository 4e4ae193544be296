"""The learner's file: predictions, passed exercises and answers in one JSON file that all notebooks share."""

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

from gpulab_course.teach import tally
from virtualgpu.compile.cache import replace_file

FILE_NAME = "learner.json"
LOCK_TIMEOUT_S = 10.0
_REMOVAL_MARK = object()

Sections = dict[str, dict[str, Any]]


def find_data_folder() -> Path:
    """Return the folder of the learner's file, which is ``GPULAB_HOME`` or the platform's data folder."""
    home_folder = os.environ.get("GPULAB_HOME")
    return Path(home_folder).expanduser() if home_folder else user_data_path("gpulab", appauthor=False)


class LearnerStore:
    """The learner's file, which stores JSON values by section and key. Errors of the file never stop a
    notebook.

    Each change reads the file again under a lock, so that changes by other notebooks are kept. A value that
    cannot be saved stays in memory and is saved with a later change; one warning is printed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unsaved_values: dict[tuple[str, str], Any] = {}
        self._has_warned = False

    def get(self, section: str, key: str) -> Any:
        return self._read_sections().get(section, {}).get(key)

    def get_section(self, section: str) -> dict[str, Any]:
        return self._read_sections().get(section, {})

    def put(self, section: str, key: str, value: Any) -> None:
        json.dumps(
            value
        )  # a value that JSON does not support is an error of the caller, and must not prevent later saves
        self._change_value(section, key, value)

    def forget(self, section: str, key: str) -> None:
        self._change_value(section, key, _REMOVAL_MARK)

    def _change_value(self, section: str, key: str, value: Any) -> None:
        self._unsaved_values[section, key] = value
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock():
                sections = self._read_sections(locked=True)
                file_text = json.dumps(sections, indent=1, sort_keys=True)
                replace_file(self.path, file_text.encode(), durable=True)
                tally.publish_summary(self.path, sections)
        except OSError as error:
            self._warn_unsaved(error)
        else:
            self._unsaved_values.clear()

    def _read_sections(self, locked: bool = False) -> Sections:
        """Read the file, and return its sections together with the values that could not be saved yet."""
        sections: Sections = {}
        try:
            file_bytes = self.path.read_bytes()
            sections = _decode_sections(file_bytes)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            if locked:  # never overwrite a file that cannot be read
                raise
            self._warn_unsaved(error)
        except ValueError as error:
            self._rename_damaged_file(file_bytes, error, locked)
        for (section, key), value in self._unsaved_values.items():
            section_values = sections.setdefault(section, {})
            section_values.pop(key, None) if value is _REMOVAL_MARK else section_values.update({key: value})
        return sections

    def _rename_damaged_file(self, damaged_bytes: bytes, reason: ValueError, is_locked: bool) -> None:
        """Rename a damaged file, so that no later answer overwrites it."""
        new_path = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y-%m-%d_%H%M%S')}")
        try:
            if is_locked:
                self.path.rename(new_path)
            else:
                with self._lock():
                    if self.path.read_bytes() != damaged_bytes:  # another notebook has been faster
                        return
                    self.path.rename(new_path)
        except FileNotFoundError:
            return
        except OSError as error:
            if is_locked:
                raise
            self._warn_unsaved(error)
            return
        _print_warning(
            f"Your earlier answers in {self.path} cannot be read ({reason}). The file was renamed to "
            f"{new_path.name}."
        )

    def _lock(self) -> FileLock:
        return FileLock(self.path.with_name(f".{self.path.name}.lock"), timeout=LOCK_TIMEOUT_S)

    def _warn_unsaved(self, error: OSError) -> None:
        if not self._has_warned:
            self._has_warned = True
            _print_warning(
                f"Your answers cannot be saved, so they will be lost when this kernel ends: {self.path} "
                f"({error.strerror or error}). Set GPULAB_HOME to use another folder."
            )


def _decode_sections(data: bytes) -> Sections:
    """Parse the sections of a learner's file.

    Raises
    ------
    ValueError
        If the bytes are not valid JSON, or have another structure.
    """
    try:
        sections = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(sections, dict) or not all(isinstance(values, dict) for values in sections.values()):
        raise ValueError("the progress file has no sections")
    return sections


def _print_warning(sentence: str) -> None:
    # A form shows what is printed here while it answers a click. On a full disk a log is full, too.
    with contextlib.suppress(OSError):
        print(f"gpulab: {sentence}", file=sys.stderr, flush=True)


@functools.cache
def _open_store(path: Path) -> LearnerStore:
    return LearnerStore(path)


def store() -> LearnerStore:
    """Return the store for the learner's file in ``GPULAB_HOME`` or in the default data folder."""
    return _open_store(find_data_folder() / FILE_NAME)
