"""Build hook: a wheel contains this folder as the import package, and an editable install refers to it.

Both install the extension that colours CUDA C++ in JupyterLab.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_NOT_INSTALLED = {"pyproject.toml", "hatch_build.py", "__pycache__", "PKG-INFO"}


class PackageHook(BuildHookInterface[Any]):
    """A build hook that adds the files of this folder to the package's folder in the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Set the files and folders that the wheel includes."""
        package = self.metadata.name.replace("-", "_")
        # JupyterLab and Notebook 7 find the colours for CUDA C++ there in any folder.
        extension_path = "share/jupyter/labextensions/gpulab-cuda"
        colours_folder = Path(self.root) / "data" / "labextensions" / "gpulab-cuda"
        build_data["force_include"][str(colours_folder)] = (
            f"{package}-{self.metadata.version}.data/data/{extension_path}"
        )
        if version == "editable":
            return
        for path in sorted(Path(self.root).iterdir()):
            if path.name not in _NOT_INSTALLED:
                build_data["force_include"][str(path)] = f"{package}/{path.name}"
