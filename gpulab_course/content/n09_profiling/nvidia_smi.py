"""Output of ``nvidia-smi`` that was recorded during the recorded session of the monitor."""

from __future__ import annotations

import json
from importlib import resources

from gpulab.views.tables import Table


def wrote(tool: str) -> Table:
    """Return a table of the recorded output of ``nvidia-smi dmon`` or a query, with one line per phase."""
    recording_text = resources.files(__package__).joinpath("smi.json").read_text(encoding="utf-8")
    recording = json.loads(recording_text)
    phase_rows = tuple((phase, *cells) for phase, cells in recording[tool]["rows"])
    title = f"{recording[tool]['command']}, recorded on {recording['device']} ({recording['date']})"
    return Table(title, ("phase", *recording[tool]["headings"]), phase_rows)
