"""Output of tools for small programs, recorded on a GPU by `tools.recordings.screens`."""

from __future__ import annotations

import json
from importlib import resources
from itertools import pairwise
from typing import Any

from gpulab.views.tables import Table


class Screens:
    """A program, the commands that ran it on a GPU, and what each of them printed.

    Parameters
    ----------
    package, name
        Where the recording is: ``name`` without its ``.json``, in a package of the course.
    """

    def __init__(self, package: str, name: str) -> None:
        text = resources.files(package).joinpath(f"{name}.json").read_text(encoding="utf-8")
        self._data: dict[str, Any] = json.loads(text)

    @property
    def program(self) -> str:
        """The program, with the name of its file and its origin as comments above it."""
        return f"# {self._data['file']}; {self.label}\n{self._data['program']}"

    @property
    def label(self) -> str:
        """The device and date of the recording."""
        device, driver = self._data["device"].split(", ")
        return f"recorded on {device} ({self._data['date']}, driver {driver})"

    def screen(self, *words: str, only: str = "") -> str:
        """Return the first command that has all of these words, and the lines it printed that begin so."""
        for each in self._data["screens"]:
            if all(word in each["command"].split() for word in words):
                kept = [line for line in each["printed"].splitlines() if line.startswith(only)]
                return "\n".join([f"$ {each['command']}", *kept, ""])
        raise KeyError(f"No command has the words {' '.join(words)}.")

    def columns(self, *headings: str) -> Table:
        """Return some columns of the table that the only command printed."""
        lines = self._data["screens"][0]["printed"].splitlines()
        rules = [place for place, line in enumerate(lines) if line and set(line.strip()) == {"-", " "}]
        begins = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(lines[rules[0]])) if a == " " != b)]
        cuts = [*pairwise([*begins, None])]
        names = [lines[rules[0] + 1][begin:end].strip() for begin, end in cuts]
        kept = [cuts[names.index(name)] for name in headings]
        rows = [
            tuple(line[begin:end].strip() for begin, end in kept) for line in lines[rules[1] + 1 : rules[-1]]
        ]
        return Table(f"{self._data['file']}, {self.label}", headings, tuple(rows))
