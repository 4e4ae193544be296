"""The virtual GPU beside whatever device the session uses: for programs that are meant to crash."""

from __future__ import annotations

from typing import Any

from gpulab import session


def virtual_cp() -> Any:
    """The virtual GPU's array module, on a real GPU too.

    One illegal access on a real GPU makes the whole CUDA context unusable. The virtual GPU stops the
    kernel, says where, and lives. On a real device the virtual one takes over that device's limits.
    """
    session.twin()
    import gpulab.virtual.cp as module

    return module
