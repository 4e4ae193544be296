"""Debug build of a launch, which shows the registers of the optimized code that contain each variable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from virtualgpu.cuda_errors import CompileException, CUDADriverError, KernelFault
from virtualgpu.errors import GpulabError
from virtualgpu.launch.compiled import compile_module
from virtualgpu.launch.prepare import PreparedLaunch
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.records import WarpTrace

if TYPE_CHECKING:
    from virtualgpu.compile.ptx.dwarf import CType, DeclaredVariable
    from virtualgpu.engine import TraceRequest


@dataclass(frozen=True)
class DebugBuild:
    """The debug build of a kernel, with the names and types of the kernel's variables.

    The function ``describe_warps`` adds variables and unrolled loops to the traces of warps.
    ``missing_reason`` is the reason if there is no debug build.
    """

    describe_warps: Callable[[tuple[WarpTrace, ...]], tuple[WarpTrace, ...]] = lambda warps: warps
    declarations: tuple[DeclaredVariable, ...] = ()
    types: Mapping[int, CType] = field(default_factory=dict)
    kernel_labels: frozenset[str] = frozenset()
    missing_reason: str = ""


# The debug build can write to all of the kernel's memory, so all device memory is restored, up to this size.
_MAX_SAVED_BYTES = 256 << 20
# It takes several steps for one of the optimized code, and its time is limited.
_STEPS_PER_OPTIMIZED_STEP = 6
_MAX_DEBUG_STEPS = 120_000
_DEBUG_WATCHDOG_S = 5.0


def run_debug_build(prepared_launch: PreparedLaunch, request: TraceRequest) -> DebugBuild:
    """Run a debug build of the kernel to trace one block. The contents of device memory are restored
    afterwards.
    """
    from virtualgpu.compile.ptx.dwarf import read_declared_variables
    from virtualgpu.engine.observe.results import to_linear_index
    from virtualgpu.engine.observe.unrolled import find_unroll_factors
    from virtualgpu.engine.observe.variables import TracedRun, find_variables

    module = prepared_launch.kernel.module
    device = prepared_launch.device
    packed_launch = prepared_launch.packed_launch
    if module.is_precompiled:
        return DebugBuild(missing_reason="NVRTC, which generates debug information, is not installed.")
    if packed_launch.cooperative or "malloc" in module.ptx:
        unsupported_feature = (
            "cooperative launches" if packed_launch.cooperative else "kernels that allocate memory"
        )
        return DebugBuild(missing_reason=f"debug builds of {unsupported_feature} cannot be run.")
    launch_source = prepared_launch.launch.source
    block_order = np.array([to_linear_index(request.block_index, packed_launch.grid)], np.int64)
    debug_request = replace(
        request,
        max_steps=min(
            _STEPS_PER_OPTIMIZED_STEP * request.max_steps, max(_MAX_DEBUG_STEPS, request.max_steps)
        ),
    )
    options = replace(
        prepared_launch.options,
        trace=debug_request,
        block_order=block_order,
        stdout=None,
        watchdog_s=_DEBUG_WATCHDOG_S,
        instrument="none",
    )
    try:
        debug_module = compile_module(
            launch_source.code,
            (*launch_source.options, "-G"),
            launch_source.name_expressions,
            device.info.compute_capability,
        )
        declarations, types = read_declared_variables(debug_module.ptx)
        program = debug_module.program(device)
        with _restore_memory(device.memory) as is_restorable:
            if not is_restorable:
                return DebugBuild(
                    missing_reason="too much memory is in use to restore it after a debug build has run."
                )
            launch_result = program.launch(packed_launch, device.memory, options)
    except (CompileException, CUDADriverError, GpulabError, KernelFault) as error:
        return DebugBuild(missing_reason=f"its debug build failed ({type(error).__name__}).")
    block_trace = launch_result.block_trace
    warp_trace = launch_result.trace
    scalar_declarations = [
        declaration for declaration in declarations if declaration.kind and declaration.function
    ]
    debug_warps: tuple[WarpTrace, ...] = ()
    if block_trace is not None:
        debug_warps = block_trace.warps
    elif warp_trace is not None:
        debug_warps = (warp_trace,)

    def describe_warps(warps: tuple[WarpTrace, ...]) -> tuple[WarpTrace, ...]:
        optimized_run = TracedRun(
            warps, prepared_launch.kernel.program.generate_traced(packed_launch.name, with_counters=True)
        )
        # Values are compared warp by warp, so only the same warps of the debug build are used.
        same_warps = tuple(
            trace for trace in debug_warps if any(trace.warp_index == warp.warp_index for warp in warps)
        )
        debug_run = TracedRun(same_warps, program.generate_traced(packed_launch.name, with_counters=False))
        if not same_warps:
            return warps
        variables = find_variables(optimized_run, debug_run, scalar_declarations, program.module)
        unroll_factors = (
            find_unroll_factors(optimized_run, debug_run) if len(same_warps) == len(warps) else ()
        )
        return tuple(
            replace(
                trace,
                variables=variables,
                detail=trace.detail and replace(trace.detail, unroll_factors=unroll_factors),
            )
            for trace in warps
        )

    kernel_labels = frozenset(program.module.functions[packed_launch.name].labels)
    return DebugBuild(describe_warps, tuple(declarations), types, kernel_labels)


@contextmanager
def _restore_memory(memory: DeviceMemory) -> Iterator[bool]:
    """Context manager that restores all device memory; its value is False if it is too large to save."""
    saved_ranges = copy_memory_contents(memory)
    if saved_ranges is None:
        yield False
        return
    try:
        yield True
    finally:
        for range_start, saved_bytes in saved_ranges:
            memory.view(range_start, saved_bytes.size)[:] = saved_bytes


def copy_memory_contents(memory: DeviceMemory) -> list[tuple[int, npt.NDArray[np.uint8]]] | None:
    """Return a copy of each range of device memory in use, as a pair (address, bytes). The result is None if
    the memory is too large to copy.
    """
    range_starts, range_ends = (range_column.tolist() for range_column in memory.find_live_ranges())
    if sum(range_ends) - sum(range_starts) > _MAX_SAVED_BYTES:
        return None
    return [
        (range_start, memory.view(range_start, range_end - range_start).copy())
        for range_start, range_end in zip(range_starts, range_ends, strict=True)
    ]
