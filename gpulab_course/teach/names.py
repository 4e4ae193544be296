"""Implementation of ``gl.names``: a list of ``torch.cuda`` names with their counterparts in CuPy."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from gpulab.views.tables import Table
from gpulab.words import count
from virtualgpu.errors import did_you_mean

NAMES_FILE = "torch_names.tsv"
_REQUIREMENTS = {
    "GPU": "on a real GPU",
    "NVML": "with NVIDIA's driver",
    "driver": "with NVIDIA's driver and cuda-bindings",
}
_HEADINGS = ("torch.cuda", "CuPy, NVML", "what it does", "course")


@dataclass(frozen=True, slots=True)
class NameRow:
    """A name in ``torch.cuda``, with its counterpart in CuPy or NVML and the course section that explains it.

    Attributes
    ----------
    torch : str
        The name without ``torch.cuda.``.
    meaning : str
        Its meaning in a few words.
    here : str
        The counterpart in CuPy or NVML.
    kind : str
        The kind of counterpart: one name (``"direct"``), several names together (``"composed"``), only a
        similar name (``"nearest"``), or ``"none"``.
    where : str
        What the counterpart requires: CuPy or the virtual GPU (``"everywhere"``), CuPy on a real ``"GPU"``,
        ``"NVML"``, or the bindings of the ``"driver"``; ``"none"`` if there is no code.
    section : str
        Notebook and section of the course, such as ``"10a §1"``.
    run : str
        The counterpart as code to run, with every call that ``here`` and ``notes`` recommend.
    notes : str
        The differences between both names.
    """

    torch: str
    meaning: str
    here: str
    kind: str
    where: str
    section: str
    run: str
    notes: str


class Names:
    """The rows that were selected from a list of names, displayed as a table. The attribute ``record``
    contains the data.
    """

    def __init__(self, query: str, rows: Sequence[NameRow], hint: str = "") -> None:
        self.record = tuple(rows)
        suffix = f" about {query!r}" if query else ""
        title = f"torch.cuda and CuPy: {count(len(self.record), 'name')}{suffix}.{hint}"
        table_rows = [(row.torch, row.here, _describe_row(row), row.section) for row in self.record]
        self._table = Table(title, _HEADINGS, tuple(table_rows))

    def __repr__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        return self._table.card()


def names(asked: str = "") -> Names:
    """Find names in PyTorch's ``torch.cuda``, with their counterparts in CuPy and the section of the course.

    Parameters
    ----------
    asked
        A part of a PyTorch name, of a CuPy name or of a description; upper and lower case are equal. The
        prefix ``torch.cuda.`` is ignored. By default, all names are returned.

    Examples
    --------
    >>> gl.names("memory_reserved")
    >>> gl.names("stream")
    """
    rows = load_name_rows()
    short_query = asked.strip().removeprefix("torch.cuda.").removeprefix("torch.").casefold()
    exact_rows = [row for row in rows if row.torch.casefold() == short_query]
    if len(exact_rows) == 1:
        matching_rows = exact_rows
    else:
        matching_rows = [
            row for row in rows if short_query in f"{row.torch} {row.here} {row.meaning}".casefold()
        ]
    hint = "" if matching_rows else did_you_mean(short_query, [row.torch for row in rows])
    return Names(asked, matching_rows, hint)


def load_name_rows() -> tuple[NameRow, ...]:
    """Load all rows of the list of PyTorch names and their counterparts."""
    text = resources.files("gpulab").joinpath("data", NAMES_FILE).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(NameRow(**{**row, "run": row["run"].replace("\\n", "\n")}) for row in rows)


def _describe_row(row: NameRow) -> str:
    kind_text = "" if row.kind in ("direct", "none") else f" ({row.kind})"
    phrases = [f"{row.meaning}{kind_text}", _REQUIREMENTS.get(row.where, ""), row.notes]
    return "; ".join(phrase for phrase in phrases if phrase)
