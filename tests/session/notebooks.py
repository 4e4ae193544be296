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
        time.sleep(0.5)  # older kernels drop a request that comes right after an error
        raise
    return list(cell.outputs)


def printed(client: NotebookClient, code: str) -> str:
    """Return the output of a cell. Older kernels may send a line and its end in two messages."""
    outputs = run(client, code)
    return "".join(o.text for o in outputs if o.output_type == "stream" and o.name == "stdout")
