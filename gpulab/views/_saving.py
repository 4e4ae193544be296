"""Saving of views and tables: `save` chooses the format by the extension of the file's name."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

Writers = Mapping[str, Callable[[Path], object]]


class Savable:
    """Base class of objects that can be saved. Subclasses define a writer for each extension."""

    __slots__ = ()

    def _writers(self) -> Writers:
        """Return the functions that write a file, by extension."""
        raise NotImplementedError

    def save(self, path: str | Path) -> Path:
        """Save to a file, in the format of the file name's extension.

        Parameters
        ----------
        path
            ``x.html`` is a page that works alone. The error message for an unknown extension lists the other
            formats, such as ``x.png`` or ``x.json``.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ValueError
            For an unknown extension; the message lists the known ones.
        """
        path = Path(path)
        writers = self._writers()
        for extension, writer in writers.items():
            if path.name.lower().endswith(extension):
                writer(path)
                return path
        *other_extensions, last_extension = writers
        extensions = (
            f"{', '.join(other_extensions)} or {last_extension}" if other_extensions else last_extension
        )
        raise ValueError(f"It can be saved as {extensions}, not as {path.name!r}.")


def text_writer(text: Callable[[], str]) -> Callable[[Path], object]:
    """Return a function that writes the text of another function to a file."""
    return lambda path: path.write_text(text(), encoding="utf-8")


def as_json(record: Any) -> str:
    """Return a record as JSON: arrays as lists, NaN as null."""
    return data_as_json(asdict(record), indent=1)


def data_as_json(data: Any, indent: int | None = None) -> str:
    """Return dictionaries and arrays as JSON: arrays as lists, NaN as null."""
    return json.dumps(_tree(data), indent=indent, ensure_ascii=False)


def plain(value: float) -> int | float | None:
    """Return a number for files: integral values as int; None for NaN and infinities."""
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def _tree(value: Any) -> Any:
    """Return a value with arrays and tuples as lists, and NaN as None."""
    if isinstance(value, np.ndarray):
        return [_tree(item) for item in value.tolist()]
    if isinstance(value, float):
        return plain(value)
    if isinstance(value, dict):
        return {key: _tree(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tree(item) for item in value]
    return value


def csv_writer(columns: Sequence[str], rows: Callable[[], Iterable[Sequence[Any]]]) -> Callable[[Path], None]:
    """Return a function that writes rows to a CSV file under the columns' names."""

    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(map(plain, row) for row in rows())

    return write
