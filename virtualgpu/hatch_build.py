"""Build hook that puts this folder into a wheel as the package, and lets an editable install refer to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NOT_INSTALLED = {"pyproject.toml", "hatch_build.py", "__pycache__", "PKG-INFO"}


class PackageHook(BuildHookInterface[Any]):
    """Build hook that packs the files of this project into the package folder of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files and folders of the package to the build data."""
        if version == "editable":
            return
        package = self.metadata.name.replace("-", "_")
        for path in sorted(Path(self.root).iterdir()):
            if path.name not in _NOT_INSTALLED:
                build_data["force_include"][str(path)] = f"{package}/{path.name}"
