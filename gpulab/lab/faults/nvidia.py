"""Checks of a launch by NVIDIA's compute-sanitizer on a real GPU: ``gl.sanitize(..., tool=...)``."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from gpulab import session
from gpulab.analysis.files.compute_sanitizer import (
    CHECKER,
    TOOL_OPTIONS,
    ToolRun,
    add_findings,
    find_refusal,
    read_hazards,
)
from gpulab.lab.faults.jobs import Call
from gpulab.lab.faults.under import DEFAULT_LIMIT_S, run_under_tool
from virtualgpu.protocol import Hazards, Launch
from virtualgpu.records import KernelSource, SanitizerReport


def run_sanitizer(launch: Launch, tools: Sequence[str], limit_s: float = DEFAULT_LIMIT_S) -> SanitizerReport:
    """Run compute-sanitizer for a launch, and return its report. If the tool cannot run, the report contains
    the reason.
    """
    kernel_source = launch.source
    sanitizer_report = SanitizerReport(
        provenance=replace(session.backend().provenance, detail=CHECKER),
        kernel_name=kernel_source.name,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        tools=Hazards(tuple(tools)).tools,
        block_order="chosen by the GPU",
        checker=CHECKER,
    )

    def make_job() -> Call:
        return Call(
            launch_copy,
            (kernel_source, launch.grid, launch.block, _detach_arguments(launch.args), launch.shared_bytes),
        )

    def run_tool(tool: str) -> ToolRun:
        findings_xml, program_error, skip_reason = run_under_tool(
            CHECKER, TOOL_OPTIONS[tool], make_job, find_refusal, limit_s
        )
        return ToolRun(
            tool,
            () if skip_reason else read_hazards(findings_xml, tool, kernel_source.code, kernel_source.name),
            program_error,
            skip_reason,
        )

    with ThreadPoolExecutor(len(TOOL_OPTIONS)) as pool:
        return add_findings(sanitizer_report, tuple(pool.map(run_tool, sanitizer_report.tools)))


def launch_copy(
    source: KernelSource, grid: Any, block: Any, args: tuple[Any, ...], shared_bytes: int
) -> None:
    """Compile a kernel with line information, and launch it with copies of its arguments.

    If two arrays share memory, their copies share memory too.
    """
    cp = session.cp()
    arrays_by_key = {
        array_key: cp.asarray(array_data)
        for array_key, array_data, _ in (argument for argument in args if isinstance(argument, tuple))
    }
    kernel_args = tuple(
        arrays_by_key[argument[0]][argument[2] :] if isinstance(argument, tuple) else argument
        for argument in args
    )
    options = tuple(dict.fromkeys((*source.options, "-lineinfo")))
    name_expressions = source.name_expressions or None
    kernel = cp.RawModule(code=source.code, options=options, name_expressions=name_expressions).get_function(
        source.name
    )
    if shared_bytes:  # beside static arrays less than 48 KiB may be too much, unless asked for
        kernel.max_dynamic_shared_size_bytes = shared_bytes
    kernel(grid, block, kernel_args, shared_mem=shared_bytes)


def _detach_arguments(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return copies of the arguments for another process.

    An array becomes the bounds of its memory, the bytes between them, and the offset of its first element.
    """
    cp = session.cp()
    detached_values = list[Any]()
    for value in args:
        if isinstance(value, cp.ndarray):
            low_address, high_address = cp.byte_bounds(value)
            memory_bytes = cp.ndarray(
                (high_address - low_address,), np.uint8, memptr=value.data + (low_address - value.data.ptr)
            )
            value = ((low_address, high_address), memory_bytes.get(), value.data.ptr - low_address)
        detached_values.append(value)
    return tuple(detached_values)
