"""The names ``cupy`` and ``cupyx`` for the virtual GPU's modules, so that unchanged programs find them."""

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

# CuPy's packages, and what stands for them.
PACKAGES = {"cupy": "virtualgpu.cp", "cupyx": "virtualgpu.cupyx"}
# Modules of these names for processes that the program starts: spawned workers, a notebook's kernel.
CHILDREN = Path(__file__).resolve().parent / "children"
_NVIDIA = ("cuda", "cuda.core", "cuda.bindings")


class AsCupy:
    """CuPy's names as the virtual GPU's, until `undo` or the end of a ``with`` block.

    Parameters
    ----------
    device, count
        As for `virtualgpu.as_cupy`.
    """

    def __init__(self, device: str | None = None, count: int | None = None) -> None:
        check_free()
        self._finders = () if is_on() else (_Finder(), _Explainer())
        self._environment: dict[str, str | None] = {}
        self._before = None if device is None and count is None else _machine.current()
        if self._before is not None:
            _machine.use_device(device, count)
        if self._finders:
            sys.meta_path.insert(0, self._finders[0])
            sys.meta_path.append(self._finders[1])
            for name, home in PACKAGES.items():
                sys.modules[name] = importlib.import_module(home)
            sys.path.append(str(CHILDREN))  # which multiprocessing hands on to its workers
            others = os.environ.get("PYTHONPATH")
            self._export("PYTHONPATH", os.pathsep.join([str(CHILDREN), *([others] if others else [])]))
        if device is not None:
            self._export("VIRTUALGPU_DEVICE", device)
        if count is not None:
            self._export("VIRTUALGPU_COUNT", str(count))

    def _export(self, name: str, value: str) -> None:
        """Set a variable of the environment, which processes that the program starts inherit."""
        self._environment[name] = os.environ.get(name)
        os.environ[name] = value

    def undo(self) -> None:
        """Take the names back, and the machine that was in use before."""
        if self._finders:
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in self._finders]
            for name in [name for name in sys.modules if name.split(".")[0] in PACKAGES]:
                del sys.modules[name]
            sys.path[:] = [folder for folder in sys.path if folder != str(CHILDREN)]
            self._finders = ()
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._environment = {}
        if self._before is not None:
            _machine.use(self._before)
            self._before = None

    def __enter__(self) -> ModuleType:
        return sys.modules["cupy"]

    def __exit__(self, *_: object) -> None:
        self.undo()


def is_on() -> bool:
    """Whether the names stand for the virtual GPU's modules now."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def check_free() -> None:
    """Make sure that no other CuPy is in this process.

    Raises
    ------
    RuntimeError
        If one is imported already.
    """
    for name, home in PACKAGES.items():
        other = sys.modules.get(name)
        if other is not None and other is not sys.modules.get(home):
            raise RuntimeError(
                f"{name} is imported already ({getattr(other, '__file__', None) or 'unknown place'}): call "
                f"virtualgpu.as_cupy() before the program's first `import {name}`, or run it with "
                "`python -m virtualgpu`."
            )


class _Finder(MetaPathFinder):
    """Finds ``cupy.cuda.stream`` as what ``virtualgpu.cp.cuda`` calls ``stream``, module or not."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parent_name, _, name = fullname.rpartition(".")
        if fullname.split(".")[0] not in PACKAGES:
            return None
        if not parent_name:
            module: Any = importlib.import_module(PACKAGES[fullname])
        else:
            module = _child(sys.modules[parent_name], parent_name, name)
        return ModuleSpec(fullname, _Loader(module), is_package=hasattr(module, "__path__"))


def _child(parent: Any, parent_name: str, name: str) -> Any:
    """A submodule of one of ours, or the namespace that stands for one."""
    path = getattr(parent, "__path__", None)
    if path and PathFinder.find_spec(f"{parent.__name__}.{name}", path):
        return importlib.import_module(f"{parent.__name__}.{name}")
    try:
        child = getattr(parent, name)
    except AttributeError as error:
        # Without a name, as Python would otherwise put words of its own in the place of these.
        raise ModuleNotFoundError(str(error)) from None
    if isinstance(child, ModuleType):
        return child
    raise ModuleNotFoundError(f"{parent_name}.{name} is no module; write `from {parent_name} import {name}`.")


class _Explainer(MetaPathFinder):
    """Comes last, where Python found no module: of ``from cupy import name``, or NVIDIA's own for Python."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        parent_name, _, name = fullname.rpartition(".")
        if fullname in _NVIDIA:
            raise ModuleNotFoundError(
                f"No module named {fullname!r}: NVIDIA's packages for Python need its driver, and the "
                "virtual GPU runs CuPy programs only. Write cp.cuda.Device() for Device(), cp.cuda.Stream() "
                "for a stream, cp.cuda.alloc(n) for a buffer, and cp.RawModule(code=...) with "
                "kernel((blocks,), (threads,), (arguments,)) for Program, compile and launch.",
                name=fullname,
            )
        if not f"{parent_name}.".startswith(tuple(f"{home}." for home in PACKAGES.values())):
            return None
        return ModuleSpec(fullname, _Loader(_child(sys.modules[parent_name], parent_name, name)))


class _Loader(Loader):
    """Gives a module that exists, and leaves it as it was."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.spec = module.__dict__.get("__spec__")

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: ModuleType = self.module
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # which the import system has overwritten
