"""Which lanes of one warp were active in which basic block, from the kernel itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from gpulab.real.modules import Probe
from virtualgpu.compile.instrument import read_warp, warp_buffer
from virtualgpu.records import Dim3, Provenance, WarpTrace


def trace_warp(
    probe: Probe,
    kernel: Any,
    grid: Dim3,
    block: Dim3,
    args: Sequence[Any],
    block_index: Dim3,
    warp_index: int,
    shared_bytes: int,
    max_steps: int,
    *,
    provenance: Provenance,
) -> WarpTrace:
    """Run the instrumented kernel once and read the chosen warp's events.

    Parameters
    ----------
    probe
        The kernel's copy, instrumented by `virtualgpu.compile.instrument.trace_warp`.
    kernel, grid, block, args, shared_bytes
        The launch.
    block_index, warp_index
        The warp to watch.
    max_steps
        How many events are kept; the record says when there were more.

    Returns
    -------
    WarpTrace
        One step a basic block and visit. Masks and order are the hardware's, of the kernel with
        probes in it: writing an event takes some hundred cycles, so there are no times, and arms of
        a branch may stay apart for longer than without.
    """
    buffer = cupy.asarray(warp_buffer(block_index, warp_index, max_steps))
    probe.launch(kernel, grid, block, args, shared_bytes, buffer)
    _, mask, number, truncated = read_warp(buffer.get())
    blocks = probe.instrumented
    return WarpTrace(
        provenance=provenance,
        kernel_name=kernel.name,
        code=kernel.code,
        grid=grid,
        block=block,
        block_index=block_index,
        warp_index=warp_index,
        granularity="basic block",
        instruction=blocks.text,
        pc=np.array(blocks.first_pc, np.int32)[number],
        line=np.array(blocks.line, np.int32)[number],
        column=np.array(blocks.column, np.int32)[number],
        active_mask=mask,
        executed_mask=mask,
        text_index=number,
        truncated=truncated,
        note="one step a basic block; functions that the kernel calls are not shown",
    )
