"""Search for command-line tools of the CUDA Toolkit on this machine."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from virtualgpu.errors import ToolMissingError


def find_tool(tool_name: str) -> str:
    """Return the path of a command-line tool. The function searches the PATH, ``CUDA_HOME`` and
    `cuda-pathfinder`.

    Raises
    ------
    ToolMissingError
        If it is not on this machine.
    """
    if path_on_search_path := shutil.which(tool_name):
        return path_on_search_path
    toolkit_folders = [
        toolkit_folder for name in ("CUDA_HOME", "CUDA_PATH") if (toolkit_folder := os.environ.get(name))
    ]
    for toolkit_folder in (*toolkit_folders, "/usr/local/cuda"):
        for folder in ("bin", tool_name, "nsight-compute*"):  # the newest of several
            for path in sorted(Path(toolkit_folder).glob(f"{folder}/{tool_name}"), reverse=True):
                if os.access(path, os.X_OK):
                    return str(path)
    with suppress(Exception):  # of an older version, which does not know the tool
        from cuda.pathfinder import find_nvidia_binary_utility

        if path_on_search_path := find_nvidia_binary_utility(tool_name):
            return str(path_on_search_path)
    raise ToolMissingError(
        f"{tool_name} was not found. It is part of the CUDA Toolkit. Add its folder to PATH, or set "
        "CUDA_HOME."
    )
