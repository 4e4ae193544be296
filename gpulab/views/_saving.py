"""Saving of views and tables: `save` chooses the format by the ending of the file's name."""

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


class Saved:
    """A base class of objects that can be saved. Subclasses define `_writers`, by ending."""

    __slots__ = ()

    def _writers(self) -> Writers:
        raise NotImplementedError

    def save(self, path: str | Path) -> Path:
        """Save to a file, in the format of the file name's extension.

        Parameters
        ----------
        path
            ``x.html``: a page that works alone; what else there is, such as ``x.png`` or ``x.json``, is in
            the message of an ending that is not known.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        ValueError
            For another ending; the message lists those that there are.
        """
        path = Path(path)
        writers = self._writers()
        for ending, write in writers.items():
            if path.name.lower().endswith(ending):
                write(path)
                return path
        *most, last = writers
        endings = f"{', '.join(most)} or {last}" if most else last
        raise ValueError(f"It is saved as {endings}, not as {path.name!r}.")


def text_writer(text: Callable[[], str]) -> Callable[[Path], object]:
    """Return a writer of the text that a function returns."""
    return lambda path: path.write_text(text(), encoding="utf-8")


def as_json(record: Any) -> str:
    """A record as JSON: arrays as lists, NaN as null."""
    return data_as_json(asdict(record), indent=1)


def data_as_json(data: Any, indent: int | None = None) -> str:
    """Dictionaries and arrays as JSON: arrays as lists, NaN as null."""
    return json.dumps(_tree(data), indent=indent, ensure_ascii=False)


def plain(value: float) -> int | float | None:
    """Return a number as it is written to files: integral values without a fraction, NaN as nothing."""
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def _tree(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_tree(each) for each in value.tolist()]
    if isinstance(value, float):
        return plain(value)
    if isinstance(value, dict):
        return {key: _tree(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_tree(each) for each in value]
    return value


def csv_writer(columns: Sequence[str], rows: Callable[[], Iterable[Sequence[Any]]]) -> Callable[[Path], None]:
    """Saves rows of readings under their columns' names."""

    def write(path: Path) -> None:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(map(plain, row) for row in rows())

    return write
