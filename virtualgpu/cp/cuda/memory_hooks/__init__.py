"""``cp.cuda.memory_hooks``: CuPy's ready-made memory hooks."""

from __future__ import annotations

from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp.cuda.memory_hooks.debug_print import DebugPrintHook
from virtualgpu.cp.cuda.memory_hooks.line_profile import LineProfileHook

__all__ = ["DebugPrintHook", "LineProfileHook"]
__getattr__ = make_module_getattr("cp.cuda.memory_hooks", globals())
