"""Traces that a named GPU gave on a day, shipped for those who have none."""

from __future__ import annotations

from importlib import resources
from typing import Any

from virtualgpu.records import io


def load_recorded(name: str) -> Any:
    """Read one of the shipped records, such as ``h200_maze_warp``: a trace taken on that GPU.

    Raises
    ------
    FileNotFoundError
        If there is none of that name.
    """
    file = resources.files("gpulab") / "data" / "recordings" / f"{name}.npz"
    if not file.is_file():
        raise FileNotFoundError(f"no recorded trace {name!r} ships with gpulab")
    return io.read(file.read_bytes(), name)
