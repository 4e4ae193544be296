"""Import of modules by their names in version 1.0, with a warning that names the new location."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# Old homes and new ones; what is below an old home is below the new one, unless it is listed itself.
NEW_MODULE_NAMES = {
    "gpulab.course": "gpulab_course.content",
    "gpulab.course.n12_fusion.compiler": "gpulab.lab.fusion.compiler",
    "gpulab.teach": "gpulab_course.teach",
    "gpulab.teach.classroom": "gpulab_course.classroom",
    "gpulab.teach.folders": "gpulab_course.folders",
    "gpulab.teach.judge.process": "gpulab.processes",
    "gpulab.teach.judge.process.processes": "gpulab.processes.process",
    "virtualgpu.allocators.cupy": "virtualgpu.allocators",
    "virtualgpu.allocators.cupy.model": "gpulab.allocators.cupy",
    "virtualgpu.allocators.fragments": "gpulab.allocators.fragments",
    "virtualgpu.allocators.log": "gpulab.allocators.log",
    "virtualgpu.allocators.released": "gpulab.allocators.released",
    "virtualgpu.allocators.replay": "gpulab.allocators.replay",
    "virtualgpu.allocators.snapshot": "gpulab.allocators.snapshot",
    "virtualgpu.allocators.statistics": "gpulab.allocators.statistics",
    "virtualgpu.allocators.steps": "gpulab.allocators.steps",
    "virtualgpu.allocators.torch": "gpulab.allocators.torch",
    "virtualgpu.records.formats": "gpulab.analysis.formats",
    "virtualgpu.trace": "gpulab.analysis",
}


def find_new_module_name(name: str) -> str:
    """Return the new name of a module, or an empty string if the module has not moved."""
    old_name = name
    while old_name not in NEW_MODULE_NAMES:
        old_name = old_name.rpartition(".")[0]
        if not old_name:
            return ""
    return NEW_MODULE_NAMES[old_name] + name.removeprefix(old_name)


class MovedFinder(MetaPathFinder):
    """An import finder for the module names of gpulab 1.0. It finds each module at its new location."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new_module_name = find_new_module_name(fullname)
        if not new_module_name:
            return None
        if fullname in NEW_MODULE_NAMES:
            message = f"{fullname} has moved to {new_module_name}. Change the import."
            warnings.warn(message, DeprecationWarning, stacklevel=2)
        try:
            module = import_module(new_module_name)
        except ModuleNotFoundError as error:
            if error.name == "gpulab_course":
                missing_message = (
                    f"{fullname} has moved to a package that is missing here: pip install gpulab-course"
                )
                raise ModuleNotFoundError(missing_message, name=error.name) from None
            raise
        return ModuleSpec(fullname, _LoadedModuleLoader(module), is_package=hasattr(module, "__path__"))


class _LoadedModuleLoader(Loader):
    """An import loader that returns a module that is already loaded, unchanged."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # which the import system has replaced


def install_finder() -> None:
    """Insert the import finder for old module names before all other import finders.

    Otherwise, another finder would load the files of a new location a second time.
    """
    sys.meta_path.insert(0, MovedFinder())
