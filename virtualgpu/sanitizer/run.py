"""One launch under checks: faults and hazards become a report instead of an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from virtualgpu.compile.ptx import ir
from virtualgpu.cuda_errors import KernelFault, LaunchTimeoutError, Progress
from virtualgpu.engine.observe.origin import Writers, base_pointer, find_writers
from virtualgpu.model.memory import DeviceMemory
from virtualgpu.protocol import TOOLS, Hazards
from virtualgpu.records import Hazard, Place, SanitizerReport
from virtualgpu.sanitizer.block_orders import IN_ORDER, REVERSED, block_sequence, turns_seed
from virtualgpu.sanitizer.checker import Checker, Shape
from virtualgpu.sanitizer.findings import LEAK, MOST_HAZARDS, NEVER, UNWRITTEN, Findings
from virtualgpu.sanitizer.report.declarations import declarations
from virtualgpu.sanitizer.report.hazards import Report
from virtualgpu.sanitizer.report.names import Names
from virtualgpu.sanitizer.report.updates import Update, checks, updates
from virtualgpu.sanitizer.sites import UNBOUNDED, granule_bytes, polls, waits_in_part
from virtualgpu.words import count

if TYPE_CHECKING:
    from virtualgpu.engine import RunOptions
    from virtualgpu.engine.lower.codegen import Kernel
    from virtualgpu.launch.prepare import PreparedLaunch

# Checking takes longer than running: so many times the device's watchdog.
PATIENCE = 3
_TOOL_OF = {
    "out of bounds": "memory",
    "misaligned": "memory",
    "stack overflow": "memory",
    "barrier deadlock": "sync",
    "divergent barrier": "sync",
    "lanes missing": "sync",
    "lane outside its mask": "sync",
    "NaN": "nan",
}
_SEVERITY = ("error", "warning", "info")


def sanitize(
    launch: PreparedLaunch, what: Hazards, restore: Callable[[], None] = lambda: None
) -> SanitizerReport:
    """Run a launch under checks. Its arrays keep what the kernel wrote.

    Checks take longer than a launch, so time may run out on a kernel that does end: one of which blocks or
    threads were still ending, or that ends when it is launched plainly after `restore` has put back what its
    arrays held. The report then says how far the checks came, and calls nothing endless.

    Raises
    ------
    ValueError
        For an unknown order of blocks.
    KernelFault
        For a fault of a kind that no chosen tool covers.
    """
    names = what.tools
    nan = what.nan
    order = block_sequence(what.order, prod(launch.grid), what.seed)
    kernel = launch.module.program(launch.device).generated(launch.packed.name, observe=True, trap_nan=nan)
    memory = launch.device.memory
    name = launch.stats.name
    unit = granule_bytes([i for _, i in kernel.tables.accesses])
    shared_bytes = kernel.static_shared_bytes + launch.packed.shared_bytes
    shape = Shape(order.size, prod(launch.block), shared_bytes, kernel.local_bytes, unit)
    findings = Findings(memory, unit)
    checker = None
    fault = None
    hazards: list[Hazard] = []
    with _checked_heap(memory, bool(kernel.tables.services)) as left:
        if names:
            checker = _checker(launch, kernel, shape, findings, names)
        options = replace(
            launch.options,
            instrument="none",
            observer=checker,
            trap_nan=nan,
            block_order=order,
            turns_seed=turns_seed(what.order, what.seed),
            watchdog_s=PATIENCE * launch.device.watchdog_s,
            patient=False,
            idle_s=None if launch.device.idle_s is None else PATIENCE * launch.device.idle_s,
        )
        stopped = None
        try:
            launch.run(options)
        except KernelFault as error:
            fault = error
            if isinstance(error, LaunchTimeoutError) and error.progress is not None:
                restore()
                if error.progress.moving or _ends(launch, options):
                    fault = None
                    stopped = error.progress
            if fault is not None and _TOOL_OF.get(fault.kind, "program") in set(TOOLS) - set(names):
                raise
        if checker is not None:
            checker.flush()
    if "memory" in names and left and fault is None and stopped is None:
        hazards.append(_leak(left, name))
    if checker is not None:
        report = _report(launch, kernel, findings, shape)
        hazards += report.hazards()
        if "init" in names and fault is None and stopped is None:
            hazards += _never_written(launch, checker, report.names, hazards)
    if fault is not None:
        known = (fault.kind, fault.site.line)
        hazards = [hazard for hazard in hazards if (hazard.kind, hazard.second.line) != known]
        hazards.insert(0, _hazard_of(fault, name))
    hazards.sort(key=lambda hazard: _SEVERITY.index(hazard.severity))
    return SanitizerReport(
        provenance=launch.device.info.as_virtual,
        kernel_name=name,
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.packed.shared_bytes,
        tools=(*names, "nan") if nan else names,
        block_order=what.order if what.order in (IN_ORDER, REVERSED) else f"{what.order}, seed {what.seed}",
        hazards=tuple(hazards),
        fault=type(fault).__name__ if fault is not None else "",
        left_out=_left_out(fault, stopped, options.watchdog_s, findings, checker),
        blocks_checked=None if stopped is None else stopped.ended,
    )


def _report(launch: PreparedLaunch, kernel: Kernel, findings: Findings, shape: Shape) -> Report:
    """What tells of findings, with the names of the source."""
    module = launch.module.program(launch.device).module
    plan = kernel.plans[0]
    shared = [v for v in module.variables.values() if v.space == "shared"]
    for each in module.functions.values():
        shared += each.shared.values()
    unit = shape.granule_bytes
    names = Names(
        memory=launch.device.memory,
        declared=declarations(launch.module.code),
        offsets=kernel.tables.shared,
        sizes={v.name: 0 if v.dynamic else v.size_bytes for v in shared},
        pointers=launch.names,
        words=-(-shape.shared_bytes // unit),
        local_words=-(-shape.local_bytes // unit),
    )
    racing = {id(kernel.plans[n].function): kernel.plans[n].function for n, _ in kernel.tables.accesses}
    found: dict[int, Update] = {}
    compared: set[int] = set()
    for function in racing.values() if findings.found else ():
        found |= updates(function)
        compared |= checks(function)
    return Report(
        findings,
        launch.stats.name,
        launch.module.code.split("\n"),
        launch.grid,
        launch.block,
        names,
        plan.flow,
        plan.function,
        found,
        compared,
    )


def _ends(launch: PreparedLaunch, options: RunOptions) -> bool:
    """Whether a launch comes to its end without checks, in the time that it has."""
    device = launch.device
    plain = replace(options, watchdog_s=device.watchdog_s, idle_s=device.idle_s)
    try:
        launch.run(replace(plain, observer=None, trap_nan=False, stdout=None))
    except KernelFault:
        return False
    return True


def _checker(
    launch: PreparedLaunch, kernel: Kernel, shape: Shape, findings: Findings, names: Sequence[str]
) -> Checker:
    """The checker for the chosen tools, which tells `findings`."""
    memory = launch.device.memory
    program = launch.module.program(launch.device)
    checker = Checker(
        shape,
        memory,
        kernel.plans[0].function,
        [i for _, i in kernel.tables.accesses],
        findings,
        bounds=_bounds(launch, kernel),
        polled=polls(kernel.plans),
        partial=program.cached(("partial", launch.packed.name), lambda: waits_in_part(kernel.plans)),
        strays="memory" in names,
        heap="memory" in names,
        shuffles="sync" in names,
        barriers="sync" in names,
        races="race" in names,
        unwritten="init" in names,
        unwritten_words=_unwritten(memory, shape.granule_bytes, list(launch.arrays)),
    )
    findings.sites = checker.sites
    findings.ordering = checker.ordering
    return checker


@contextmanager
def _checked_heap(memory: DeviceMemory, wanted: bool) -> Iterator[list[int]]:
    """Let the device heap show misuse for a while; yields what will hold the sizes of blocks left behind."""
    left: list[int] = []
    if not wanted and memory.heap is None:
        yield left
        return
    heap = memory.open_heap()
    held = set(heap.used)
    with heap.checked():
        yield left
        left += [size for start, size in heap.used.items() if start not in held]


def _leak(sizes: Sequence[int], kernel: str) -> Hazard:
    blocks = f"{count(len(sizes), 'block')} of {count(sum(sizes), 'byte')}"
    return Hazard(
        tool="memory",
        kind=LEAK,
        severity="info",
        space="global",
        kernel=kernel,
        first=None,
        second=Place(0, "", (0, 0, 0), (0, 0, 0)),
        address=None,
        array="device heap",
        count=len(sizes),
        message=f"{blocks} that this launch took with malloc() or new stay on the device heap until a kernel "
        "frees them: the heap lives as long as the CUDA context.",
    )


def _bounds(launch: PreparedLaunch, kernel: Kernel) -> Callable[[ir.Instruction], tuple[int, int]]:
    """For an instruction, the allocation that its pointer belongs to."""
    memory = launch.device.memory
    program = launch.module.program(launch.device)
    variables = {name: program.global_address(name, memory)[0] for name in kernel.tables.globals}
    homes = {id(i): kernel.plans[function].function for function, i in kernel.tables.accesses}

    def bounds(i: ir.Instruction) -> tuple[int, int]:
        function = homes[id(i)]
        key = ("makers", launch.packed.name, function.name)
        known: Writers = program.cached(key, lambda: find_writers(function))
        pointer = base_pointer(function, i, launch.packed.params, variables, known)
        found = None if pointer is None else memory.nearest(pointer)
        if pointer is None or found is None or not found.address <= pointer < found.end:
            return UNBOUNDED
        return found.address, found.end

    return bounds


def _unwritten(memory: DeviceMemory, unit: int, arrays: Sequence[int]) -> dict[int, npt.NDArray[np.bool_]]:
    """For allocations that arrays lie in, the granules that still hold what ``cp.empty`` left."""
    found = {}
    for address in arrays:
        allocation = memory.nearest(address)
        if allocation is None or allocation.address in found:
            continue
        words = memory.unwritten(allocation.address, allocation.size_bytes)
        if words.any():
            granules = np.zeros(-(-allocation.size_bytes // unit), np.bool_)
            parts = np.repeat(words, 4 // unit)
            granules[: parts.size] = parts
            found[allocation.address] = granules
    return found


def _never_written(
    launch: PreparedLaunch, checker: Checker, names: Names, known: Sequence[Hazard]
) -> list[Hazard]:
    """Elements of array arguments that ``cp.empty`` left open, that no thread wrote, and that none read."""
    memory = launch.device.memory
    unit = checker.granule_bytes
    found = []
    reads = [hazard.address for hazard in known if hazard.kind == UNWRITTEN and hazard.space == "global"]
    for address, size in launch.arrays.items():
        allocation = memory.nearest(address)
        words = None if allocation is None else checker.never_written(allocation.address)
        told = any(at is not None and address <= at < address + size for at in reads)
        if allocation is None or words is None or told:
            continue
        start = (address - allocation.address) // unit
        here = slice(start, start + size // unit)
        left = words[here]
        before = checker.unwritten_words[allocation.address][here]
        if left.any():
            first = address + int(np.flatnonzero(left)[0]) * unit
            array = names.device(first)
            place = Place(0, "", (0, 0, 0), (0, 0, 0))
            missing = int(left.sum()) * unit
            opened = int(before.sum()) * unit
            found.append(
                Hazard(
                    tool="init",
                    kind=NEVER,
                    severity="info",
                    space="global",
                    kernel=launch.stats.name,
                    first=None,
                    second=place,
                    address=first,
                    array=array,
                    count=int(left.sum()),
                    message=f"no thread wrote {array}: {missing:,} of the {opened:,} bytes that cp.empty "
                    "left open in this array have no value after the launch. Let the threads cover all "
                    "elements, or make the array with cp.zeros.",
                )
            )
    return found


def _hazard_of(fault: KernelFault, kernel: str) -> Hazard:
    site = fault.site
    return Hazard(
        tool=_TOOL_OF.get(fault.kind, "program"),
        kind=fault.kind or fault.error_name,
        severity="error",
        space=fault.space,
        kernel=kernel,
        first=None,
        second=Place(site.line, site.source_text, site.block, site.thread),
        address=site.address,
        array=fault.array,
        count=1,
        message=str(fault).removeprefix(f"{fault.error_name}: "),
    )


def _left_out(
    fault: KernelFault | None,
    stopped: Progress | None,
    limit_s: float,
    findings: Findings,
    checker: Checker | None,
) -> str:
    notes = []
    if fault is not None:
        notes.append("The launch stopped at the fault; what would have come after it was not checked.")
    if stopped is not None:
        notes.append(
            f"Stopped after {limit_s:g} s with {stopped.ended:,} of {stopped.blocks:,} blocks done: launch "
            f"fewer, or give them longer with gl.use_device(watchdog_s={limit_s:g})."
        )
    if findings.more:
        notes.append(f"Only the first {MOST_HAZARDS} pairs of source lines are listed.")
    if checker is not None and checker.left_out:
        notes.append("Arrays of more than 1 GiB were not checked for races.")
    return " ".join(notes)
