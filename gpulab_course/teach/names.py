"""``gl.names``: what PyTorch's ``torch.cuda`` has, under the names of CuPy, and where the course shows it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from gpulab.views.tables import Table
from gpulab.words import count
from virtualgpu.errors import did_you_mean

FILE = "torch_names.tsv"
_TAKES = {
    "GPU": "on a real GPU",
    "NVML": "with NVIDIA's driver",
    "driver": "with NVIDIA's driver and cuda-bindings",
}
_HEADINGS = ("torch.cuda", "CuPy, NVML", "what it does", "course")


@dataclass(frozen=True, slots=True)
class NameRow:
    """A name of ``torch.cuda`` and its counterpart in CuPy.

    Attributes
    ----------
    torch : str
        Without ``torch.cuda.``.
    meaning : str
        In a few words.
    here : str
        The same with CuPy or NVML.
    kind : str
        ``"direct"``, ``"composed"`` of several, the ``"nearest"`` that there is, or ``"none"``.
    where : str
        What that takes: ``"everywhere"`` CuPy or the virtual GPU, CuPy on a ``"GPU"``, ``"NVML"``, the
        ``"driver"``'s bindings; ``"none"``: it does not exist, or is no code.
    section : str
        Notebook and section of the course, such as ``"10a §1"``.
    run : str
        The same, ready to run, with every call that ``here`` and ``notes`` recommend.
    notes : str
        What differs.
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
    """Rows of the list. ``record`` holds them; in JupyterLab a table, as text with ``print``."""

    def __init__(self, asked: str, rows: Sequence[NameRow], hint: str = "") -> None:
        self.record = tuple(rows)
        about = f" about {asked!r}" if asked else ""
        title = f"torch.cuda and CuPy: {count(len(self.record), 'name')}{about}.{hint}"
        cells = [(row.torch, row.here, _said(row), row.section) for row in self.record]
        self._table = Table(title, _HEADINGS, tuple(cells))

    def __repr__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        return self._table.html()


def names(asked: str = "") -> Names:
    """Look names of PyTorch's ``torch.cuda`` up: CuPy's for each, and where the course is about it.

    Parameters
    ----------
    asked
        Part of a name of either side, or of what it does, in any case; all by default. The prefix
        ``torch.cuda.`` may stand before it.

    Examples
    --------
    >>> gl.names("memory_reserved")
    >>> gl.names("stream")
    """
    rows = everything()
    short = asked.strip().removeprefix("torch.cuda.").removeprefix("torch.").casefold()
    exact = [row for row in rows if row.torch.casefold() == short]
    found = (
        exact
        if len(exact) == 1
        else [row for row in rows if short in f"{row.torch} {row.here} {row.meaning}".casefold()]
    )
    hint = "" if found else did_you_mean(short, [row.torch for row in rows])
    return Names(asked, found, hint)


def everything() -> tuple[NameRow, ...]:
    """The whole list."""
    text = resources.files("gpulab").joinpath("data", FILE).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(NameRow(**{**row, "run": row["run"].replace("\\n", "\n")}) for row in rows)


def _said(row: NameRow) -> str:
    exact = "" if row.kind == "direct" else f" ({row.kind})" if row.kind != "none" else ""
    takes = [_TAKES[row.where]] if row.where in _TAKES else []
    return "; ".join([f"{row.meaning}{exact}", *takes, *([row.notes] if row.notes else [])])
