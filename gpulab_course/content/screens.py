"""Terminal output of tools on small programs, recorded on a GPU by `tools.recordings.screens`."""

from __future__ import annotations

import json
from importlib import resources
from itertools import pairwise
from typing import Any

from gpulab.views.tables import Table


class Screens:
    """A recorded session with a program, the commands that ran it on a GPU, and the output of each command.

    Parameters
    ----------
    package
        The package of the course that contains the recording.
    name
        The name of the recording's file without ``.json``.
    """

    def __init__(self, package: str, name: str) -> None:
        recording_text = resources.files(package).joinpath(f"{name}.json").read_text(encoding="utf-8")
        self._session_data: dict[str, Any] = json.loads(recording_text)

    @property
    def program(self) -> str:
        """The source of the program, after a comment with the file name and the label of the recording."""
        return f"# {self._session_data['file']}; {self.label}\n{self._session_data['program']}"

    @property
    def label(self) -> str:
        """The device, date and driver of the recording as text."""
        device, driver = self._session_data["device"].split(", ")
        return f"recorded on {device} ({self._session_data['date']}, driver {driver})"

    def screen(self, *command_words: str, only: str = "") -> str:
        """Return the first command that contains all of these words, with the output lines that start with
        `only`.
        """
        for recording in self._session_data["screens"]:
            if all(word in recording["command"].split() for word in command_words):
                lines = [line for line in recording["printed"].splitlines() if line.startswith(only)]
                return "\n".join([f"$ {recording['command']}", *lines, ""])
        raise KeyError(f"No recorded command contains the words {' '.join(command_words)}.")

    def columns(self, *headings: str) -> Table:
        """Return a table of the columns with these headings from the output of the first command."""
        lines = self._session_data["screens"][0]["printed"].splitlines()
        separator_indices = [
            line_index for line_index, line in enumerate(lines) if line and set(line.strip()) == {"-", " "}
        ]
        separator_line = lines[separator_indices[0]]
        column_starts = [
            0,
            *(i + 1 for i, (a, b) in enumerate(pairwise(separator_line)) if a == " " and b != " "),
        ]
        column_spans = [*pairwise([*column_starts, None])]
        column_names = [
            lines[separator_indices[0] + 1][column_start:column_end].strip()
            for column_start, column_end in column_spans
        ]
        chosen_spans = [column_spans[column_names.index(name)] for name in headings]
        table_lines = lines[separator_indices[1] + 1 : separator_indices[-1]]
        table_rows = [
            tuple(line[column_start:column_end].strip() for column_start, column_end in chosen_spans)
            for line in table_lines
        ]
        return Table(f"{self._session_data['file']}, {self.label}", headings, tuple(table_rows))
