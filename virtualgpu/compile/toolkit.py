"""Search for command-line tools of the CUDA Toolkit on this machine."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from virtualgpu.errors import ToolMissingError


def find_tool(tool: str) -> str:
    """Return the path of a command-line tool. The function searches the PATH, ``CUDA_HOME`` and
    `cuda-pathfinder`.

    Raises
    ------
    ToolMissingError
        If it is not on this machine.
    """
    if location := shutil.which(tool):
        return location
    homes = [home for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    for home in (*homes, "/usr/local/cuda"):
        for folder in ("bin", tool, "nsight-compute*"):  # the newest of several
            for path in sorted(Path(home).glob(f"{folder}/{tool}"), reverse=True):
                if os.access(path, os.X_OK):
                    return str(path)
    with suppress(Exception):  # of an older version, which does not know the tool
        from cuda.pathfinder import find_nvidia_binary_utility

        if location := find_nvidia_binary_utility(tool):
            return str(location)
    raise ToolMissingError(
        f"{tool} was not found. It is part of the CUDA Toolkit. Add its folder to PATH, or set CUDA_HOME."
    )
