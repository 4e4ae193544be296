"""Record the active lanes of one warp in each basic block with an instrumented kernel."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gpulab.real.modules import Probe
from virtualgpu.compile.instrument import make_warp_buffer, read_warp
from virtualgpu.protocol import Launch, Warp
from virtualgpu.records import Provenance, WarpTrace


def trace_warp(
    probe: Probe, kernel: Any, launch: Launch, observation: Warp, provenance: Provenance
) -> WarpTrace:
    """Run the instrumented kernel once, and read the recorded events of one warp.

    Parameters
    ----------
    probe
        The copy of the kernel, instrumented by `virtualgpu.compile.instrument.instrument_warp`.
    kernel, launch
        The launch, and its kernel as a CuPy kernel.
    observation
        The warp to observe, and the maximum number of events; the record shows whether there were more.
    provenance
        The provenance of the record.

    Returns
    -------
    WarpTrace
        One step per visit of a basic block. Masks and order are those of the instrumented kernel on the
        hardware. Recording an event takes some hundred cycles, so there are no times, and the two sides
        of a branch can stay separate for longer than in the original kernel.
    """
    probe_buffer = cupy.asarray(
        make_warp_buffer(observation.block_index, observation.warp, observation.max_steps)
    )
    probe.launch(kernel, launch, probe_buffer)
    _, executed_mask, block_number, is_truncated = read_warp(probe_buffer.get())
    blocks = probe.instrumented
    return WarpTrace(
        provenance=provenance,
        kernel_name=kernel.name,
        code=kernel.code,
        grid=launch.grid,
        block=launch.block,
        block_index=observation.block_index,
        warp_index=observation.warp,
        granularity="basic block",
        instruction=blocks.text,
        pc=np.array(blocks.first_pc, np.int32)[block_number],
        line=np.array(blocks.line, np.int32)[block_number],
        column=np.array(blocks.column, np.int32)[block_number],
        active_mask=executed_mask,
        executed_mask=executed_mask,
        text_index=block_number,
        truncated=is_truncated,
        note="one step per basic block; functions that the kernel calls are not shown",
    )
