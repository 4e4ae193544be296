"""Saving of views and tables: the extension of the file name selects the format."""

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
    """The base class of objects that can be saved. A subclass defines a function for each file extension."""

    __slots__ = ()

    def _make_writers(self) -> Writers:
        """Return a dictionary of functions that write a file, by file extension."""
        raise NotImplementedError

    def save(self, path: str | Path) -> Path:
        """Save this object to a file. The extension of the file name determines the format.

        Parameters
        ----------
        path
            ``x.html`` is a page that needs no other files. The error message for an unknown extension lists
            the other formats, such as ``x.png`` or ``x.json``.

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
        writers = self._make_writers()
        for extension, writer in writers.items():
            if path.name.lower().endswith(extension):
                writer(path)
                return path
        *other_extensions, last_extension = writers
        extensions_text = (
            f"{', '.join(other_extensions)} or {last_extension}" if other_extensions else last_extension
        )
        raise ValueError(f"{path.name!r} cannot be written. Use the file type {extensions_text}.")


def make_text_writer(text: Callable[[], str]) -> Callable[[Path], object]:
    """Return a function that writes the result of ``text()`` to the file with a given path."""
    return lambda path: path.write_text(text(), encoding="utf-8")


def to_json(record: Any) -> str:
    """Return a record as JSON. Arrays become lists, and NaN becomes null."""
    return data_to_json(asdict(record), indent=1)


def data_to_json(data: Any, indent: int | None = None) -> str:
    """Return dictionaries and arrays as JSON. Arrays become lists, and NaN becomes null."""
    return json.dumps(_to_json_value(data), indent=indent, ensure_ascii=False)


def to_plain_number(value: float) -> int | float | None:
    """Convert a number for use in files. Integral numbers become int, NaN and infinities become None, and
    other numbers stay unchanged.
    """
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def _to_json_value(value: Any) -> Any:
    """Return a nested value in which arrays and tuples are lists, and NaN is None."""
    if isinstance(value, np.ndarray):
        return [_to_json_value(element) for element in value.tolist()]
    if isinstance(value, float):
        return to_plain_number(value)
    if isinstance(value, dict):
        return {key: _to_json_value(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json_value(element) for element in value]
    return value


def make_csv_writer(
    columns: Sequence[str], rows: Callable[[], Iterable[Sequence[Any]]]
) -> Callable[[Path], None]:
    """Return a function that writes rows to a CSV file with the names of the columns as header."""

    def write_csv(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(map(to_plain_number, row) for row in rows())

    return write_csv
