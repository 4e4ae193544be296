"""``cp._util``: the private helper functions of CuPy that some programs use."""

from __future__ import annotations

from virtualgpu.cp._core.arguments import PerformanceWarning
from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp._routines.memoize import clear_memo, memoize

__all__ = ["PerformanceWarning", "clear_memo", "memoize"]


__getattr__ = make_module_getattr("cp._util", globals())
