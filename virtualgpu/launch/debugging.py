"""A launch beside its debug build: which registers of the optimised code hold which variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from virtualgpu.cuda_errors import CompileException, CUDADriverError, KernelFault
from virtualgpu.errors import GpulabError
from virtualgpu.launch.compiled import compiled_module
from virtualgpu.launch.prepare import PreparedLaunch
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.records import WarpTrace
from virtualgpu.records.warp.columns import Variable

if TYPE_CHECKING:
    from virtualgpu.compile.ptx.dwarf import CType, Declared
    from virtualgpu.engine import TraceRequest


@dataclass(frozen=True)
class Debugged:
    """What a debug build tells of a kernel's variables: where they are declared, and their types.

    ``name`` tells the variables of warps that the launch itself traced. ``why`` says, if there is no debug
    build here, why not; then nothing is declared and nothing named.
    """

    name: Callable[[tuple[WarpTrace, ...]], tuple[Variable, ...]] = lambda warps: ()
    declared: tuple[Declared, ...] = ()
    types: Mapping[int, CType] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()
    why: str = ""


# The debug build may write wherever the kernel may: all device memory is put back, if it is not too much.
_MOST_BYTES = 256 << 20
# It takes several steps for one of the optimised code, and is not worth waiting for.
_STEPS_FOR_ONE = 6
_MOST_STEPS = 120_000
_WATCHDOG_S = 5.0


def beside(prepared: PreparedLaunch, request: TraceRequest) -> Debugged:
    """Run the traced block's debug build, and put memory back as it was."""
    from virtualgpu.compile.ptx.dwarf import declared_variables
    from virtualgpu.engine.observe.results import linear
    from virtualgpu.engine.observe.variables import Run, find_variables

    module = prepared.module
    device = prepared.device
    packed = prepared.packed
    if module.in_advance:
        return Debugged(why="NVRTC, which makes debug information, is not installed here.")
    if packed.cooperative or "malloc" in module.ptx:
        what = "blocks that wait for each other" if packed.cooperative else "memory that a kernel asks for"
        return Debugged(why=f"a debug build is not run beside {what}.")
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
        declared, types = declared_variables(debug.ptx)
        program = debug.program(device)
        with _unchanged(device.memory) as possible:
            if not possible:
                return Debugged(why="more memory is in use than can be put back after a debug build has run.")
            done = program.launch(packed, device.memory, options)
    except (CompileException, CUDADriverError, GpulabError, KernelFault) as error:
        return Debugged(why=f"its debug build failed ({type(error).__name__}).")
    block_trace = done.block_trace
    one = done.trace
    scalars = [each for each in declared if each.kind and each.function]
    slow = block_trace.warps if block_trace is not None else (one,) if one is not None else ()

    def named(warps: tuple[WarpTrace, ...]) -> tuple[Variable, ...]:
        fast = Run(warps, module.program(device).traced_kernel(packed.name, count=True))
        # Of a whole block's debug build the same warps: values are compared warp by warp.
        mine = tuple(each for each in slow if any(each.warp_index == other.warp_index for other in warps))
        debugged = Run(mine, program.traced_kernel(packed.name, count=False))
        return find_variables(fast, debugged, scalars, program.module) if mine and warps else ()

    labels = frozenset(program.module.functions[packed.name].labels)
    return Debugged(named, tuple(declared), types, labels)


@contextmanager
def _unchanged(memory: DeviceMemory) -> Iterator[bool]:
    """Whether all device memory can be kept; if so, it is put back."""
    kept = contents(memory)
    if kept is None:
        yield False
        return
    try:
        yield True
    finally:
        for start, before in kept:
            memory.view(start, before.size)[:] = before


def contents(memory: DeviceMemory) -> list[tuple[int, npt.NDArray[np.uint8]]] | None:
    """A copy of all that is in device memory, by address; None if that is too much."""
    starts, ends = (column.tolist() for column in memory.live())
    if sum(ends) - sum(starts) > _MOST_BYTES:
        return None
    return [(start, memory.view(start, end - start).copy()) for start, end in zip(starts, ends, strict=True)]
