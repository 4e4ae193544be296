"""Cells run one by one in a live Jupyter kernel."""

from __future__ import annotations

import time
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError


def run(client: NotebookClient, source: str) -> list[Any]:
    cell = nbformat.v4.new_code_cell(source)
    client.nb.cells.append(cell)
    try:
        client.execute_cell(cell, len(client.nb.cells) - 1)
    except CellExecutionError:
        time.sleep(0.5)  # old kernels drop what is asked right after an error
        raise
    return list(cell.outputs)
