"""Which device serves this process, and what it answers: the only place that asks "real, virtual, twin?"."""

from __future__ import annotations

from gpulab.session.current import (
    Twin,
    backend,
    cp,
    here,
    on_device,
    table,
    table_info,
    twin,
    use_device,
    virtual_side,
    which_device,
)

__all__ = [
    "Twin",
    "backend",
    "cp",
    "here",
    "on_device",
    "table",
    "table_info",
    "twin",
    "use_device",
    "virtual_side",
    "which_device",
]
