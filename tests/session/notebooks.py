"""Cells run one by one in a live Jupyter kernel."""

from __future__ import annotations

from typing import Any

import nbformat
from nbclient import NotebookClient


def run(client: NotebookClient, source: str) -> list[Any]:
    cell = nbformat.v4.new_code_cell(source)
    client.nb.cells.append(cell)
    client.execute_cell(cell, len(client.nb.cells) - 1)
    return list(cell.outputs)
