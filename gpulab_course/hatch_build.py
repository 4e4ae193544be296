"""Build hook: the wheel holds this folder as the import package, an editable install points to it.

The wheel holds the notebooks, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NOT_INSTALLED = {"pyproject.toml", "hatch_build.py", "__pycache__", "PKG-INFO"}


class PackageHook(BuildHookInterface[Any]):
    """Add the files of this folder to the wheel below the name of the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files and folders to include."""
        if version == "editable":
            return
        package = self.metadata.name.replace("-", "_")
        for path in sorted(Path(self.root).iterdir()):
            if path.name not in _NOT_INSTALLED:
                build_data["force_include"][str(path)] = f"{package}/{path.name}"
        # `gpulab lab` makes learners' copies from these. They are next to this folder, so the course is built
        # in a checkout, and released as a wheel only.
        for notebook in sorted((Path(self.root).parent / "notebooks").glob("*.ipynb")):
            build_data["force_include"][str(notebook)] = f"{package}/notebooks/{notebook.name}"
