"""Import of modules from another notebook's content folder, by the number of the notebook."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

from gpulab_course import content


def import_own_module(name: str, module_name: str) -> Any:
    """Import a module from a notebook's folder, as in ``import_own_module("02-index", "exercises")``.

    Parameters
    ----------
    name
        The notebook's two-digit number, or a name that starts with it.
    module_name
        The module's name in the folder.
    """
    folder_prefix = f"n{name[:2]}_"
    folders = [module.name for module in pkgutil.iter_modules(content.__path__)]
    (folder,) = [folder for folder in folders if folder.startswith(folder_prefix)]
    return import_module(f"{content.__name__}.{folder}.{module_name}")
