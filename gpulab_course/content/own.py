"""Import of modules from another notebook's content folder, by the number of the notebook."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import Any

from gpulab_course import content


def module_of(name: str, part: str) -> Any:
    """Import a module from the content folder of a notebook, as in ``module_of("02-index", "exercises")``.

    Parameters
    ----------
    name
        The notebook's two-digit number, or a name that starts with it.
    part
        The module's name in the folder.
    """
    prefix = f"n{name[:2]}_"
    folders = [module.name for module in pkgutil.iter_modules(content.__path__)]
    (folder,) = [folder for folder in folders if folder.startswith(prefix)]
    return import_module(f"{content.__name__}.{folder}.{part}")
