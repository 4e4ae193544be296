"""``import cupy`` as hardware would give it: a second copy of the virtual GPU, apart from gpulab's own.

gpulab on a GPU has two array modules: CuPy's, and the virtual GPU's for the twin. So that tests have two as
well, each with types, machine and memory of its own, the package is loaded a second time under another name,
and that copy dresses as CuPy.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

import virtualgpu

NAME = "hardware"
# Records, errors and the compiler know no device; both copies use the same.
_ORIGINAL = re.compile(rb"\bvirtualgpu\b(?!\.(?:records|errors|compile)\b)")


def dress(device: str) -> ModuleType:
    """Let ``import cupy`` mean the copy's array module from now on, on a device of the table."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    importlib.import_module(NAME).as_cupy(device)
    return sys.modules["cupy"]


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == NAME:
            spec = virtualgpu.__spec__
        elif fullname.startswith(f"{NAME}."):
            spec = PathFinder.find_spec(fullname, path)
        else:
            return None
        if spec is None or spec.origin is None:
            return None
        return spec_from_file_location(
            fullname,
            spec.origin,
            loader=_Loader(fullname, spec.origin),
            submodule_search_locations=spec.submodule_search_locations,
        )


class _Loader(SourceFileLoader):
    """Compiles a source of the package with the copy's name in the place of its own; keeps no bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        source = _ORIGINAL.sub(NAME.encode(), self.get_data(self.path))
        return compile(source, self.path, "exec", dont_inherit=True)
