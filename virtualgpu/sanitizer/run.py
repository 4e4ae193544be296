"""Run of one launch with checks, which returns faults and hazards as a report instead of raising them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.cuda_errors import KernelFault, LaunchTimeoutError, Progress
from virtualgpu.engine.observe.origin import RegisterWriters, find_base_pointer, find_register_writers
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.protocol import TOOLS, Hazards
from virtualgpu.records import Hazard, Place, SanitizerReport
from virtualgpu.sanitizer.block_orders import IN_ORDER, REVERSED, block_sequence, turns_seed
from virtualgpu.sanitizer.checker import Checker, LaunchShape
from virtualgpu.sanitizer.findings import LEAK, MAX_HAZARDS, NOT_WRITTEN, UNWRITTEN, Findings
from virtualgpu.sanitizer.report.declarations import read_declarations
from virtualgpu.sanitizer.report.hazards import Report
from virtualgpu.sanitizer.report.names import ElementNames
from virtualgpu.sanitizer.report.updates import Update, find_rechecks, find_updates
from virtualgpu.sanitizer.sites import UNBOUNDED, find_granule_bytes, find_polling_loads, has_partial_waits
from virtualgpu.words import count

if TYPE_CHECKING:
    from virtualgpu.engine import RunOptions
    from virtualgpu.engine.lower.codegen import GeneratedKernel
    from virtualgpu.launch.prepare import PreparedLaunch

# Factor on the device's watchdog, because checks take longer than a plain run.
TIME_FACTOR = 3
_TOOL_OF_FAULT = {
    "out of bounds": "memory",
    "misaligned": "memory",
    "stack overflow": "memory",
    "barrier deadlock": "sync",
    "divergent barrier": "sync",
    "lanes missing": "sync",
    "lane outside its mask": "sync",
    "NaN": "nan",
}
# Asynchronous copies in CUDA C++, and the first compute capability with instructions for them.
_ASYNC_COPY_PATTERN = re.compile(r"\b(?:__pipeline_memcpy_async|memcpy_async)\b")
_ASYNC_CAPABILITY = (8, 0)
_SEVERITIES = ("error", "warning", "info")


def sanitize(
    launch: PreparedLaunch, options: Hazards, restore: Callable[[], None] = lambda: None
) -> SanitizerReport:
    """Run a launch with checks, and return the report.

    The arrays keep the values that the kernel has written.

    Checks take longer than a launch, so the time limit can end a kernel that is not infinite: its blocks or
    threads were still ending, or it ends in a plain launch after `restore` has restored its arrays. The
    report then contains the progress of the checks, and does not call the kernel infinite.

    Raises
    ------
    ValueError
        For an unknown order of blocks.
    KernelFault
        For a fault of a kind that no chosen tool covers.
    """
    tool_names = options.tools
    traps_nan = options.stops_at_nan
    block_order = block_sequence(options.block_order, prod(launch.grid), options.seed)
    kernel = launch.kernel.program.generate_uncounted(
        launch.packed_launch.name, is_observed=True, trap_nan=traps_nan
    )
    device_memory = launch.device.memory
    kernel_name = launch.kernel.name
    granule_size = find_granule_bytes([i for _, i in kernel.tables.accesses])
    shared_bytes = kernel.static_shared_bytes + launch.packed_launch.shared_bytes
    shape = LaunchShape(block_order.size, prod(launch.block), shared_bytes, kernel.local_bytes, granule_size)
    findings = Findings(device_memory, granule_size)
    checker = None
    kernel_fault = None
    hazards: list[Hazard] = []
    with _watch_heap_leaks(device_memory, bool(kernel.tables.services)) as leaked_sizes:
        if tool_names:
            checker = _make_checker(launch, kernel, shape, findings, tool_names)
        run_options = replace(
            launch.options,
            instrument="none",
            observer=checker,
            trap_nan=traps_nan,
            block_order=block_order,
            turns_seed=turns_seed(options.block_order, options.seed),
            watchdog_s=TIME_FACTOR * launch.device.watchdog_s,
            patient=False,
            idle_s=None if launch.device.idle_s is None else TIME_FACTOR * launch.device.idle_s,
        )
        checked_progress = None
        try:
            launch.run(run_options)
        except KernelFault as error:
            kernel_fault = error
            if isinstance(error, LaunchTimeoutError) and error.progress is not None:
                restore()
                if error.progress.has_recent_finish or _ends_in_time(launch, run_options):
                    kernel_fault = None
                    checked_progress = error.progress
            if kernel_fault is not None and _TOOL_OF_FAULT.get(kernel_fault.kind, "program") in set(
                TOOLS
            ) - set(tool_names):
                raise
        if checker is not None:
            checker.flush()
    if "memory" in tool_names and leaked_sizes and kernel_fault is None and checked_progress is None:
        hazards.append(_make_leak_hazard(leaked_sizes, kernel_name))
    if checker is not None:
        report = _make_report(launch, kernel, findings, shape)
        hazards += report.hazards()
        if "init" in tool_names and kernel_fault is None and checked_progress is None:
            hazards += _make_unwritten_hazards(launch, checker, report.element_names, hazards)
    if kernel_fault is not None:
        fault_key = (kernel_fault.kind, kernel_fault.site.line)
        hazards = [hazard for hazard in hazards if (hazard.kind, hazard.second.line) != fault_key]
        hazards.insert(0, _hazard_of(kernel_fault, kernel_name))
    hazards.sort(key=lambda hazard: _SEVERITIES.index(hazard.severity))
    return SanitizerReport(
        provenance=launch.device.info.as_virtual,
        kernel_name=kernel_name,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.packed_launch.shared_bytes,
        tools=(*tool_names, "nan") if traps_nan else tool_names,
        block_order=options.block_order
        if options.block_order in (IN_ORDER, REVERSED)
        else f"{options.block_order}, seed {options.seed}",
        hazards=tuple(hazards),
        fault=type(kernel_fault).__name__ if kernel_fault is not None else "",
        left_out=_make_missing_note(
            launch, kernel_fault, checked_progress, run_options.watchdog_s, findings, checker
        ),
        blocks_checked=None if checked_progress is None else checked_progress.ended_blocks,
    )


def _make_report(
    launch: PreparedLaunch, kernel: GeneratedKernel, findings: Findings, shape: LaunchShape
) -> Report:
    """Return the report of a launch's findings, with names from the source."""
    module = launch.kernel.program.module
    plan = kernel.plans[0]
    shared_variables = [variable for variable in module.variables.values() if variable.space == "shared"]
    for function in module.functions.values():
        shared_variables += function.shared.values()
    granule_size = shape.granule_bytes
    element_names = ElementNames(
        memory=launch.device.memory,
        declarations=read_declarations(launch.kernel.module.code),
        shared_offsets=kernel.tables.shared,
        shared_sizes={
            variable.name: 0 if variable.dynamic else variable.size_bytes for variable in shared_variables
        },
        parameter_by_address=launch.parameter_names,
        shared_words=-(-shape.shared_bytes // granule_size),
        local_words=-(-shape.local_bytes // granule_size),
    )
    checked_functions = {
        id(kernel.plans[n].function): kernel.plans[n].function for n, _ in kernel.tables.accesses
    }
    updates_by_id: dict[int, Update] = {}
    rechecked_numbers: set[int] = set()
    if findings.findings_by_key:
        for checked_function in checked_functions.values():
            updates_by_id |= find_updates(checked_function)
            rechecked_numbers |= find_rechecks(checked_function)
    return Report(
        findings,
        launch.kernel.name,
        launch.kernel.module.code.split("\n"),
        launch.grid,
        launch.block,
        element_names,
        plan.control_flow,
        plan.function,
        updates_by_id,
        rechecked_numbers,
    )


def _ends_in_time(launch: PreparedLaunch, options: RunOptions) -> bool:
    """Return whether a launch without checks ends within its time limit."""
    device = launch.device
    limited_options = replace(options, watchdog_s=device.watchdog_s, idle_s=device.idle_s)
    try:
        launch.run(replace(limited_options, observer=None, trap_nan=False, stdout=None))
    except KernelFault:
        return False
    return True


def _make_checker(
    launch: PreparedLaunch,
    kernel: GeneratedKernel,
    shape: LaunchShape,
    findings: Findings,
    tool_names: Sequence[str],
) -> Checker:
    """Return a checker for the chosen tools, which reports to `findings`."""
    memory = launch.device.memory
    program = launch.kernel.program
    checker = Checker(
        shape,
        memory,
        kernel.plans[0].function,
        [i for _, i in kernel.tables.accesses],
        findings,
        find_bounds=_make_bounds_finder(launch, kernel),
        polling_load_ids=find_polling_loads(kernel.plans),
        has_partial_waits=program.get_cached(
            ("partial", launch.packed_launch.name), lambda: has_partial_waits(kernel.plans)
        ),
        checks_strays="memory" in tool_names,
        checks_heap="memory" in tool_names,
        checks_shuffles="sync" in tool_names,
        checks_barriers="sync" in tool_names,
        checks_races="race" in tool_names,
        checks_unwritten="init" in tool_names,
        unwritten_words=_find_unwritten_granules(memory, shape.granule_bytes, list(launch.arrays)),
    )
    findings.sites = checker.sites
    findings.ordering = checker.ordering
    return checker


@contextmanager
def _watch_heap_leaks(memory: DeviceMemory, uses_heap: bool) -> Iterator[list[int]]:
    """Context manager that checks the device heap.

    Its value is a list, to which the sizes of blocks that were not freed are added at the end.
    """
    leaked_sizes: list[int] = []
    if not uses_heap and memory.heap is None:
        yield leaked_sizes
        return
    heap = memory.open_heap()
    earlier_blocks = set(heap.used_blocks)
    with heap.keep_freed_blocks():
        yield leaked_sizes
        leaked_sizes += [size for start, size in heap.used_blocks.items() if start not in earlier_blocks]


def _make_leak_hazard(leaked_sizes: Sequence[int], kernel_name: str) -> Hazard:
    leaked_blocks = f"{count(len(leaked_sizes), 'block')} of {count(sum(leaked_sizes), 'byte')}"
    return Hazard(
        tool="memory",
        kind=LEAK,
        severity="info",
        space="global",
        kernel=kernel_name,
        first=None,
        second=Place(0, "", (0, 0, 0), (0, 0, 0)),
        address=None,
        array="device heap",
        count=len(leaked_sizes),
        message=f"{leaked_blocks} that this launch allocated with malloc() or new stay on the device "
        "heap until a kernel frees them, because the heap exists as long as the CUDA context.",
    )


def _make_bounds_finder(
    launch: PreparedLaunch, kernel: GeneratedKernel
) -> Callable[[ir.Instruction], tuple[int, int]]:
    """Return a function that returns the allocation to which the pointer of an instruction belongs."""
    memory = launch.device.memory
    program = launch.kernel.program
    variable_addresses = {
        name: program.global_address(name, memory)[0] for name in kernel.tables.global_names
    }
    function_of_access = {id(i): kernel.plans[function].function for function, i in kernel.tables.accesses}

    def find_bounds(i: ir.Instruction) -> tuple[int, int]:
        function = function_of_access[id(i)]
        cache_key = ("makers", launch.packed_launch.name, function.name)
        writers: RegisterWriters = program.get_cached(cache_key, lambda: find_register_writers(function))
        base_address = find_base_pointer(
            function, i, launch.packed_launch.params, variable_addresses, writers
        )
        allocation = None if base_address is None else memory.find_nearest_allocation(base_address)
        if (
            base_address is None
            or allocation is None
            or not allocation.address <= base_address < allocation.end
        ):
            return UNBOUNDED
        return allocation.address, allocation.end

    return find_bounds


def _find_unwritten_granules(
    memory: DeviceMemory, granule_size: int, arrays: Sequence[int]
) -> dict[int, npt.NDArray[np.bool_]]:
    """Return for each allocation which granules still have the initial contents of ``cp.empty``."""
    granules_by_start = {}
    for address in arrays:
        allocation = memory.find_nearest_allocation(address)
        if allocation is None or allocation.address in granules_by_start:
            continue
        unwritten_words = memory.find_unwritten_words(allocation.address, allocation.size_bytes)
        if unwritten_words.any():
            is_unwritten = np.zeros(-(-allocation.size_bytes // granule_size), np.bool_)
            unwritten_flags = np.repeat(unwritten_words, 4 // granule_size)
            is_unwritten[: unwritten_flags.size] = unwritten_flags
            granules_by_start[allocation.address] = is_unwritten
    return granules_by_start


def _make_unwritten_hazards(
    launch: PreparedLaunch, checker: Checker, names: ElementNames, earlier_hazards: Sequence[Hazard]
) -> list[Hazard]:
    """Return hazards for elements of ``cp.empty`` arrays that no thread has written or read."""
    memory = launch.device.memory
    granule_size = checker.granule_bytes
    hazards = []
    read_addresses = [
        hazard.address for hazard in earlier_hazards if hazard.kind == UNWRITTEN and hazard.space == "global"
    ]
    for address, size in launch.arrays.items():
        allocation = memory.find_nearest_allocation(address)
        unwritten_words = None if allocation is None else checker.find_never_written(allocation.address)
        is_reported = any(
            read_address is not None and address <= read_address < address + size
            for read_address in read_addresses
        )
        if allocation is None or unwritten_words is None or is_reported:
            continue
        first_granule = (address - allocation.address) // granule_size
        array_granules = slice(first_granule, first_granule + size // granule_size)
        unwritten_granules = unwritten_words[array_granules]
        initially_unwritten = checker.unwritten_words[allocation.address][array_granules]
        if unwritten_granules.any():
            first_address = address + int(np.flatnonzero(unwritten_granules)[0]) * granule_size
            element_name = names.name_device_element(first_address)
            no_place = Place(0, "", (0, 0, 0), (0, 0, 0))
            missing_bytes = int(unwritten_granules.sum()) * granule_size
            initial_bytes = int(initially_unwritten.sum()) * granule_size
            hazards.append(
                Hazard(
                    tool="init",
                    kind=NOT_WRITTEN,
                    severity="info",
                    space="global",
                    kernel=launch.kernel.name,
                    first=None,
                    second=no_place,
                    address=first_address,
                    array=element_name,
                    count=int(unwritten_granules.sum()),
                    message=f"no thread wrote {element_name}: {initial_bytes:,} bytes of this array "
                    "(cp.empty) were "
                    f"uninitialized before the launch, and {missing_bytes:,} of them still are after it. Let "
                    "the threads write all elements, or create the array with cp.zeros.",
                )
            )
    return hazards


def _hazard_of(fault: KernelFault, kernel_name: str) -> Hazard:
    fault_site = fault.site
    return Hazard(
        tool=_TOOL_OF_FAULT.get(fault.kind, "program"),
        kind=fault.kind or fault.error_name,
        severity="error",
        space=fault.space,
        kernel=kernel_name,
        first=None,
        second=Place(fault_site.line, fault_site.source_text, fault_site.block, fault_site.thread),
        address=fault_site.address,
        array=fault.array,
        count=1,
        message=str(fault).removeprefix(f"{fault.error_name}: "),
    )


def _make_missing_note(
    launch: PreparedLaunch,
    fault: KernelFault | None,
    progress: Progress | None,
    limit_s: float,
    findings: Findings,
    checker: Checker | None,
) -> str:
    notes = []
    if fault is not None:
        notes.append("The launch stopped at the fault; the rest of the launch was not checked.")
    if progress is not None:
        notes.append(
            f"Stopped after {limit_s:g} s with {progress.ended_blocks:,} of {progress.block_count:,} blocks "
            f"done. Launch fewer blocks, or increase the time limit: gl.use_device(watchdog_s={limit_s:g})."
        )
    if findings.omitted_count:
        notes.append(f"Only the first {MAX_HAZARDS} pairs of source lines are listed.")
    capability = launch.device.info.compute_capability
    if capability < _ASYNC_CAPABILITY and _ASYNC_COPY_PATTERN.search(launch.kernel.module.code):
        notes.append(
            f"Asynchronous copies are ordinary copies on compute capability {capability[0]}.{capability[1]}, "
            "so a missing wait for a copy cannot be found. Also check it on a GPU from 8.0 on."
        )
    if checker is not None and checker.unchecked_regions:
        notes.append("Arrays of more than 1 GiB were not checked for races.")
    return " ".join(notes)
