"""Which device serves this process, and what it answers: the only place that asks "real, virtual, twin?"."""

from __future__ import annotations

from gpulab.session.current import (
    backend,
    bench,
    cp,
    cupyx,
    here,
    l1_bytes,
    on_device,
    program_lines,
    real_cp,
    stream_watcher,
    table,
    table_info,
    timeline_recorder,
    twin,
    use_device,
    virtual_side,
    which_device,
)
from gpulab.session.sides import Observed, at_block_size, observe

__all__ = [
    "Observed",
    "at_block_size",
    "backend",
    "bench",
    "cp",
    "cupyx",
    "here",
    "l1_bytes",
    "observe",
    "on_device",
    "program_lines",
    "real_cp",
    "stream_watcher",
    "table",
    "table_info",
    "timeline_recorder",
    "twin",
    "use_device",
    "virtual_side",
    "which_device",
]
