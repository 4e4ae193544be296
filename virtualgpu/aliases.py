"""The names ``cupy`` and ``cupyx`` for the virtual GPU's modules, for unchanged CuPy programs."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from virtualgpu.model import machine as _machine

# CuPy's packages, and their replacements.
PACKAGES = {"cupy": "virtualgpu.cp", "cupyx": "virtualgpu.cupyx"}
# Folder of modules with these names, for processes that the program starts, such as workers or kernels.
CHILD_MODULE_FOLDER = Path(__file__).resolve().parent / "children"
_NVIDIA_PACKAGES = ("cuda", "cuda.core", "cuda.bindings")


class AsCupy:
    """Context manager that replaces CuPy's modules with the modules of the virtual GPU. The replacement ends
    when the ``with`` block ends or `undo` is called.

    Parameters
    ----------
    device, count
        As for `virtualgpu.as_cupy`.
    """

    def __init__(self, device: str | None = None, count: int | None = None) -> None:
        check_cupy_unimported()
        self._finders = () if is_cupy_replaced() else (_AliasFinder(), _MissingPackageFinder())
        self._environment: dict[str, str | None] = {}
        self._previous_machine = None if device is None and count is None else _machine.current()
        if self._previous_machine is not None:
            _machine.use_device(device, count)
        if self._finders:
            sys.meta_path.insert(0, self._finders[0])
            sys.meta_path.append(self._finders[1])
            for name, replacement in PACKAGES.items():
                sys.modules[name] = importlib.import_module(replacement)
            sys.path.append(str(CHILD_MODULE_FOLDER))  # multiprocessing passes it to its workers
            python_path = os.environ.get("PYTHONPATH")
            self._set_variable(
                "PYTHONPATH",
                os.pathsep.join([str(CHILD_MODULE_FOLDER), *([python_path] if python_path else [])]),
            )
        if device is not None:
            self._set_variable("VIRTUALGPU_DEVICE", device)
        if count is not None:
            self._set_variable("VIRTUALGPU_COUNT", str(count))

    def _set_variable(self, name: str, value: str) -> None:
        """Set an environment variable that the child processes of the program inherit."""
        self._environment[name] = os.environ.get(name)
        os.environ[name] = value

    def undo(self) -> None:
        """Stop replacing CuPy's modules, and select the machine that was in use before."""
        if self._finders:
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in self._finders]
            for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
                del sys.modules[name]
            sys.path[:] = [folder for folder in sys.path if folder != str(CHILD_MODULE_FOLDER)]
            self._finders = ()
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._environment = {}
        if self._previous_machine is not None:
            _machine.use(self._previous_machine)
            self._previous_machine = None

    def __enter__(self) -> ModuleType:
        return sys.modules["cupy"]

    def __exit__(self, *_: object) -> None:
        self.undo()


def is_cupy_replaced() -> bool:
    """Return whether ``import cupy`` currently imports the virtual GPU's modules."""
    return any(isinstance(finder, _AliasFinder) for finder in sys.meta_path)


def check_cupy_unimported() -> None:
    """Check that this process has not imported any other CuPy.

    Raises
    ------
    RuntimeError
        If another one is imported already.
    """
    for name, replacement in PACKAGES.items():
        imported_module = sys.modules.get(name)
        if imported_module is not None and imported_module is not sys.modules.get(replacement):
            raise RuntimeError(
                f"{name} has already been imported "
                f"({getattr(imported_module, '__file__', None) or 'unknown place'}). Call "
                f"virtualgpu.as_cupy() before the program's first `import {name}`, "
                "or run it with `python -m virtualgpu`."
            )


class _AliasFinder(MetaPathFinder):
    """Import finder that resolves ``cupy.cuda.stream`` as an attribute of ``virtualgpu.cp.cuda``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parent_name, _, name = fullname.rpartition(".")
        if fullname.split(".")[0] not in PACKAGES:
            return None
        if not parent_name:
            module: Any = importlib.import_module(PACKAGES[fullname])
        else:
            module = _import_submodule(sys.modules[parent_name], parent_name, name)
        return ModuleSpec(fullname, _AliasLoader(module), is_package=hasattr(module, "__path__"))


def _import_submodule(parent: Any, parent_name: str, name: str) -> Any:
    """Return a submodule of a package of the virtual GPU, or the object that replaces the submodule."""
    path = getattr(parent, "__path__", None)
    if path and PathFinder.find_spec(f"{parent.__name__}.{name}", path):
        return importlib.import_module(f"{parent.__name__}.{name}")
    try:
        submodule = getattr(parent, name)
    except AttributeError as error:
        # Without `name=`, since Python would replace the message otherwise.
        raise ModuleNotFoundError(str(error)) from None
    if isinstance(submodule, ModuleType):
        return submodule
    raise ModuleNotFoundError(
        f"{parent_name}.{name} is not a module. Write `from {parent_name} import {name}`."
    )


class _MissingPackageFinder(MetaPathFinder):
    """The last import finder, which explains why a module of ``cupy`` or of NVIDIA is missing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parent_name, _, name = fullname.rpartition(".")
        if fullname in _NVIDIA_PACKAGES:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}. NVIDIA's packages for Python need NVIDIA's driver, and the "
                "virtual GPU runs only CuPy programs. Replace Device() by cp.cuda.Device(), a stream by "
                "cp.cuda.Stream(), a buffer by cp.cuda.alloc(n), and Program, compile and launch by "
                "cp.RawModule(code=...) and kernel((blocks,), (threads,), (arguments,)).",
                name=fullname,
            )
        if not f"{parent_name}.".startswith(tuple(f"{package}." for package in PACKAGES.values())):
            return None
        return ModuleSpec(
            fullname, _AliasLoader(_import_submodule(sys.modules[parent_name], parent_name, name))
        )


class _AliasLoader(Loader):
    """Import loader that returns an existing module unchanged."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.original_spec = module.__dict__.get("__spec__")

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: ModuleType = self.module
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.original_spec  # the import system has overwritten it
