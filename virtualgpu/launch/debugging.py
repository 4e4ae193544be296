"""A launch beside its debug build: which registers of the optimised code hold which variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from virtualgpu.cuda_errors import CompileException, CUDADriverError, KernelFault
from virtualgpu.errors import GpulabError
from virtualgpu.launch.compiled import compiled_module
from virtualgpu.launch.prepare import PreparedLaunch
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.records import WarpTrace
from virtualgpu.records.warp.columns import Variable

if TYPE_CHECKING:
    from virtualgpu.engine import TraceRequest

Naming = Callable[[tuple[WarpTrace, ...]], tuple[Variable, ...]]

# The debug build may write wherever the kernel may: all device memory is put back, if it is not too much.
_MOST_BYTES = 256 << 20
# It takes several steps for one of the optimised code, and is not worth waiting for.
_STEPS_FOR_ONE, _MOST_STEPS, _WATCHDOG_S = 6, 120_000, 5.0


def beside(prepared: PreparedLaunch, request: TraceRequest) -> Naming:
    """Run the traced block's debug build, and put memory back as it was.

    Returns
    -------
    callable
        Names the variables of the warps that the launch itself traced; none of what has no debug build here.
    """
    from virtualgpu.compile.ptx.dwarf import declared_variables
    from virtualgpu.engine.observe.results import linear
    from virtualgpu.engine.observe.variables import Run, find_variables

    module, device, packed = prepared.module, prepared.device, prepared.packed
    if module.in_advance or packed.cooperative or "malloc" in module.ptx:
        return lambda warps: ()
    source = prepared.launch.source
    block = np.array([linear(request.block_index, packed.grid)], np.int64)
    traced = replace(
        request, max_steps=min(_STEPS_FOR_ONE * request.max_steps, max(_MOST_STEPS, request.max_steps))
    )
    options = replace(
        prepared.options,
        trace=traced,
        block_order=block,
        stdout=None,
        watchdog_s=_WATCHDOG_S,
        instrument="none",
    )
    try:
        debug = compiled_module(
            source.code, (*source.options, "-G"), source.name_expressions, device.info.compute_capability
        )
        declared = declared_variables(debug.ptx)
        program = debug.program(device)
        with _unchanged(device.memory) as possible:
            if not possible:
                return lambda warps: ()
            done = program.launch(packed, device.memory, options)
    except (CompileException, CUDADriverError, GpulabError, KernelFault):
        return lambda warps: ()
    block_trace, one = done.block_trace, done.trace
    slow = block_trace.warps if block_trace is not None else (one,) if one is not None else ()

    def named(warps: tuple[WarpTrace, ...]) -> tuple[Variable, ...]:
        fast = Run(warps, module.program(device).traced_kernel(packed.name, count=True))
        debugged = Run(slow, program.traced_kernel(packed.name, count=False))
        return find_variables(fast, debugged, declared, program.module) if slow and warps else ()

    return named


@contextmanager
def _unchanged(memory: DeviceMemory) -> Iterator[bool]:
    """Whether all device memory can be kept; if so, it is put back."""
    starts, ends = (column.tolist() for column in memory.live())
    if sum(ends) - sum(starts) > _MOST_BYTES:
        yield False
        return
    kept = [(start, memory.view(start, end - start).copy()) for start, end in zip(starts, ends, strict=True)]
    try:
        yield True
    finally:
        for start, contents in kept:
            memory.view(start, contents.size)[:] = contents
