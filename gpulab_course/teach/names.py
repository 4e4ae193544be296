"""``gl.names``: the CuPy counterparts of PyTorch's ``torch.cuda``, and where the course shows them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from gpulab.views.tables import Table
from gpulab.words import count
from virtualgpu.errors import did_you_mean

FILE = "torch_names.tsv"
_REQUIREMENTS = {
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
        The name without ``torch.cuda.``.
    meaning : str
        Its meaning in a few words.
    here : str
        The counterpart in CuPy or NVML.
    kind : str
        ``"direct"``, ``"composed"`` of several, the ``"nearest"`` that there is, or ``"none"``.
    where : str
        What the counterpart requires: ``"everywhere"`` CuPy or the virtual GPU, CuPy on a ``"GPU"``,
        ``"NVML"``, the ``"driver"``'s bindings; ``"none"``: it does not exist, or is not code.
    section : str
        Notebook and section of the course, such as ``"10a §1"``.
    run : str
        The counterpart as code to run, with every call that ``here`` and ``notes`` recommend.
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
    """Rows of the list, in ``record``; a table in JupyterLab, and text with ``print``."""

    def __init__(self, query: str, rows: Sequence[NameRow], hint: str = "") -> None:
        self.record = tuple(rows)
        suffix = f" about {query!r}" if query else ""
        title = f"torch.cuda and CuPy: {count(len(self.record), 'name')}{suffix}.{hint}"
        cells = [(row.torch, row.here, _description(row), row.section) for row in self.record]
        self._table = Table(title, _HEADINGS, tuple(cells))

    def __repr__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        return self._table.card()


def names(asked: str = "") -> Names:
    """Look up names of PyTorch's ``torch.cuda``: the counterpart in CuPy, and the section of the course.

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
    if len(exact) == 1:
        matches = exact
    else:
        matches = [row for row in rows if short in f"{row.torch} {row.here} {row.meaning}".casefold()]
    hint = "" if matches else did_you_mean(short, [row.torch for row in rows])
    return Names(asked, matches, hint)


def everything() -> tuple[NameRow, ...]:
    """Return all rows of the list."""
    text = resources.files("gpulab").joinpath("data", FILE).read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(NameRow(**{**row, "run": row["run"].replace("\\n", "\n")}) for row in rows)


def _description(row: NameRow) -> str:
    kind = "" if row.kind in ("direct", "none") else f" ({row.kind})"
    parts = [f"{row.meaning}{kind}", _REQUIREMENTS.get(row.where, ""), row.notes]
    return "; ".join(part for part in parts if part)
