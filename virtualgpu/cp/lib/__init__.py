"""``cp.lib``: CuPy's part of ``numpy.lib``."""

from __future__ import annotations

from virtualgpu.cp._missing_names import make_module_getattr as _module_getattr
from virtualgpu.cp.lib import stride_tricks

__all__ = ["stride_tricks"]

__getattr__ = _module_getattr("cp.lib", globals())
