"""Hatch build hook that adds the package and the notebooks to the wheel.

An editable install points to this folder instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_EXCLUDED_NAMES = {"pyproject.toml", "hatch_build.py", "__pycache__", "PKG-INFO"}


class PackageHook(BuildHookInterface[Any]):
    """A build hook that adds the files of this folder to the wheel, in a folder named after the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files and folders that the wheel must contain to the build data."""
        if version == "editable":
            return
        package = self.metadata.name.replace("-", "_")
        for path in sorted(Path(self.root).iterdir()):
            if path.name not in _EXCLUDED_NAMES:
                build_data["force_include"][str(path)] = f"{package}/{path.name}"
        # `gpulab lab` makes learners' copies from these. They are next to this folder, so the course is built
        # in a checkout, and released as a wheel only.
        for notebook in sorted((Path(self.root).parent / "notebooks").glob("*.ipynb")):
            build_data["force_include"][str(notebook)] = f"{package}/notebooks/{notebook.name}"
