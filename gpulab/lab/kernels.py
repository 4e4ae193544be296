"""``gl.launch``, ``gl.warps``, ``gl.count`` and what else looks at a kernel's launch.

Each function asks the session for records and hands them to a view. On a real GPU the virtual GPU
replays the same launch beside the measurement: it predicts, counts, and finds faults before they
can cost the CUDA context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpulab import session
from gpulab.session.arguments import Shape, byte_count, dims, warp_position
from gpulab.session.call import Call, relauncher
from virtualgpu.compile import nvrtc, sass
from virtualgpu.errors import GpulabError
from virtualgpu.protocol import DEFAULT_BLOCK_STEPS, DEFAULT_MAX_STEPS, Backend, kernel_source
from virtualgpu.records import WARP_SIZE, BlockTrace, WarpTrace

if TYPE_CHECKING:
    from gpulab.views import LaunchChart, OccupancyChart, WarpStepper
    from gpulab.views.tables import CounterTable
    from gpulab.views.tables.as_run import AsRunTable
    from gpulab.views.tables.sanitizer import SanitizerTable

LAUNCH_TIMEOUT = 702  # cudaErrorLaunchTimeout


def launch(
    kernel: Any, grid: Shape, block: Shape, args: Sequence[Any] = (), shared_bytes: int = 0
) -> LaunchChart:
    """Run a kernel and show which SM ran each block, and when.

    Parameters
    ----------
    kernel
        A ``cp.RawKernel`` or a function of a ``cp.RawModule``.
    grid, block
        Blocks in the grid and threads in a block: a number or a tuple of one to three.
    args
        The kernel's arguments, a tuple.
    shared_bytes
        Dynamic shared memory of each block.

    Returns
    -------
    LaunchChart
        Measured on a real GPU, with the virtual GPU's prediction beside it where the launch is
        small enough to replay; modelled on a virtual GPU. For a one-dimensional launch it has a
        slider for the block size, which keeps the number of threads and restores the arrays.
    """
    from gpulab.views import LaunchChart

    call = Call.read(kernel, grid, block, args, shared_bytes)
    predicted = call.replay(Call.trace_launch) if call.quick else None
    trace = call.trace_launch(session.backend())
    return LaunchChart(trace, at_block_size=relauncher(call), compare=predicted)


def warps(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    block_index: Shape = (0, 0, 0),
    warp: int = 0,
    shared_bytes: int = 0,
    max_steps: int | None = None,
    whole_block: bool = False,
) -> WarpStepper:
    """Run a kernel and step through one of its warps: source lines, lanes, registers, shared memory.

    Parameters
    ----------
    kernel, grid, block, args, shared_bytes
        As for `launch`.
    block_index
        Which block: a number or a tuple of one to three.
    warp
        Which warp of that block; warp 1 holds its threads 32 to 63.
    max_steps
        The trace ends after so many steps of the warp (20,000 by default), or of all warps together
        with `whole_block` (60,000).
    whole_block
        Trace all warps of the block; the stepper then switches between them.

    Returns
    -------
    WarpStepper
        The virtual GPU's trace. On a real GPU it carries the active masks that the GPU itself
        reported for each basic block; those stand alone for a launch too large to replay.
    """
    from gpulab.views import WarpStepper

    call = Call.read(kernel, grid, block, args, shared_bytes)
    index, number = warp_position(call.grid, call.block, block_index, warp)
    most = (DEFAULT_BLOCK_STEPS if whole_block else DEFAULT_MAX_STEPS) if max_steps is None else max_steps

    def ask(launch: Call, backend: Backend) -> WarpTrace | BlockTrace:
        if whole_block:
            return launch.trace_block(backend, index, most)
        return launch.trace_warp(backend, index, number, most)

    if session.twin() is None:
        return WarpStepper(ask(call, session.backend()), warp=number)
    replayed = call.replay(ask) if call.quick else None
    measured = call.trace_warp(session.backend(), index, number, most)
    if replayed is None:
        return WarpStepper(measured)
    return WarpStepper(replayed, measured=measured, warp=number)


def occupancy(kernel: Any, block: Shape = 256, shared_bytes: int = 0) -> OccupancyChart:
    """Show how many warps of a kernel an SM can hold at each block size, and what limits them.

    Parameters
    ----------
    kernel
        A ``cp.RawKernel`` or a function of a ``cp.RawModule``.
    block
        The block size to point out: a number of threads, or a tuple of one to three.
    shared_bytes
        Dynamic shared memory of each block, the same at every block size.
    """
    from gpulab.views import OccupancyChart

    kernel_source(kernel)
    shared = byte_count(shared_bytes)
    backend = session.backend()
    threads = math.prod(dims("block", block))
    most = min(
        backend.device_info().max_threads_per_block, backend.kernel_stats(kernel).max_threads_per_block
    )
    if threads > most:
        raise ValueError(
            f"A block of {threads:,} threads is over this kernel's limit of {most:,} on this device."
        )
    sizes = sorted({*range(WARP_SIZE, most + 1, WARP_SIZE), threads})
    return OccupancyChart([backend.occupancy(kernel, size, shared) for size in sizes], threads)


def count(
    kernel: Any, grid: Shape, block: Shape, args: Sequence[Any] = (), shared_bytes: int = 0
) -> CounterTable:
    """Run a kernel and count its instructions, memory requests, sectors, conflicts and branches.

    Parameters
    ----------
    kernel, grid, block, args, shared_bytes
        As for `launch`.

    Returns
    -------
    CounterTable
        The counters (`virtualgpu.records.KernelCounters`), which display as tables. On a real GPU they
        come from the virtual GPU's replay of the same launch, since reading the hardware's own
        takes administrator rights.
    """
    from gpulab.views.tables import CounterTable

    call = Call.read(kernel, grid, block, args, shared_bytes)
    code = kernel_source(kernel).code
    twin = session.twin()
    if twin is None:
        return CounterTable.of(call.count(session.backend()), code)
    try:
        counters = call.on_twin(twin).count(twin.backend)
    except RuntimeError as error:
        if getattr(error, "status", None) != LAUNCH_TIMEOUT:
            raise
        raise GpulabError(
            "The virtual GPU did not finish its replay of this launch in time. Count a smaller grid, or "
            "give it longer with gl.use_device(watchdog_s=60)."
        ) from error
    call.run()
    return CounterTable.of(counters, code, "Counted in a replay on the virtual GPU")


def as_run(
    kernel: Any, grid: Shape, block: Shape, args: Sequence[Any] = (), shared_bytes: int = 0
) -> AsRunTable:
    """Run a kernel and show its counts as written (PTX) beside those as run (machine code).

    Between the two, NVIDIA's assembler ptxas merges neighbouring accesses into wider ones, predicates
    short branches and copies loop bodies. The table says where, and what it changes.

    Parameters
    ----------
    kernel
        A ``cp.RawKernel`` or a function of a ``cp.RawModule``.
    grid, block
        Blocks in the grid and threads in a block: a number or a tuple of one to three.
    args
        The kernel's arguments, a tuple.
    shared_bytes
        Dynamic shared memory of each block.

    Returns
    -------
    AsRunTable
        The counts (`virtualgpu.records.as_run.AsRun`), which display as tables.

    Raises
    ------
    NvdisasmMissingError
        If ``nvdisasm``, NVIDIA's disassembler, is not installed.
    NvrtcMissingError
        If NVRTC is not installed: machine code is made here, not shipped.
    """
    from gpulab.views.tables.as_run import AsRunTable
    from virtualgpu.compile.as_run import anchor

    if not sass.available():
        raise sass.NvdisasmMissingError
    counters = count(kernel, grid, block, args, shared_bytes)
    source = kernel_source(kernel)
    twin = session.twin()
    stats = session.backend().kernel_stats(kernel) if twin is None else twin.backend.kernel_stats(source)
    target = int(stats.target.removeprefix("sm_"))
    expressions = tuple(getattr(kernel, "name_expressions", None) or source.name_expressions)
    if "<" in source.name and source.name not in expressions:
        expressions = (*expressions, source.name)
    flags = (*source.options, *nvrtc.CUPY_OPTIONS)
    image = nvrtc.compile_ptx(source.code, target=target, options=flags, name_expressions=expressions)
    machine = nvrtc.compile_cubin(
        source.code, target=target, options=("-lineinfo", *flags), name_expressions=expressions
    )
    entry = image.lowered_names.get(source.name, source.name)
    return AsRunTable.of(
        anchor(counters, image.ptx, sass.disassemble(machine.cubin), target, entry), source.code
    )


def sanitize(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    shared_bytes: int = 0,
    tools: Sequence[str] = ("memory", "race", "init", "sync"),
    block_order: str = "in order",
    seed: int = 0,
    nan: bool = False,
) -> SanitizerTable:
    """Run a kernel under checks for mistakes that a plain launch may hide, and report them.

    The kernel runs on the virtual GPU, on a real one's twin over copies of the arrays; afterwards
    every array holds what it held before. A fault ends the run and becomes part of the report.

    Parameters
    ----------
    kernel, grid, block, args, shared_bytes
        As for `launch`.
    tools
        Which checks: ``"memory"`` for accesses out of bounds, misaligned or through dead pointers,
        ``"race"`` for accesses of several threads to one word that nothing orders, in shared and
        in global memory, ``"init"`` for reads of what nothing has written (shared and local memory,
        and arrays of ``cp.empty``), ``"sync"`` for barriers and warp masks.
    block_order
        ``"in order"``, ``"reversed"`` or ``"random"``.
    seed
        Which random order.
    nan
        Stop at the first NaN that arithmetic makes of operands that are none.

    Returns
    -------
    SanitizerTable
        The report (`virtualgpu.records.SanitizerReport`): ``clean``, ``hazards`` and ``found(kind)``.

    Raises
    ------
    ValueError
        For an unknown tool or order.
    KernelFault
        For an illegal access or a barrier fault whose tool was not chosen.
    """
    from gpulab.views.tables.sanitizer import SanitizerTable

    call = Call.read(kernel, grid, block, args, shared_bytes)
    twin = session.twin()
    backend = session.virtual_side().backend
    note = ""
    if twin is not None:
        call, note = call.on_twin(twin), "Run on the virtual GPU over copies of the arrays."
    report = backend.sanitize(
        call.kernel, call.grid, call.block, call.args, call.shared_bytes, tools, block_order, seed, nan
    )
    return SanitizerTable.of(report, note)


@contextmanager
def block_order(order: str, seed: int = 0) -> Iterator[None]:
    """Let the virtual GPU run the blocks of every kernel in another order for a while.

    CUDA promises no order, so a kernel that needs one is wrong, even if it works by luck::

        with gl.block_order("random", seed=1):
            kernel(grid, block, args)

    Parameters
    ----------
    order
        ``"in order"``, ``"reversed"`` or ``"random"``.
    seed
        Which random order.

    Raises
    ------
    ValueError
        For any other order.
    """
    devices = session.virtual_side().machine.devices
    before = [device.block_order for device in devices]
    try:
        for device in devices:
            device.set_block_order(order, seed)
        yield
    finally:
        for device, old in zip(devices, before, strict=True):
            device.block_order = old


@contextmanager
def before_volta() -> Iterator[None]:
    """Let the virtual GPU schedule warps as GPUs before Volta did, for a while.

    Their lanes shared one program counter: where a warp had split, one side ran until it met the
    other again, so lanes that wait for each other within a warp hang::

        with gl.before_volta():
            spin_lock(grid, block, args)    # ends in a LaunchTimeoutError
    """
    devices = session.virtual_side().machine.devices
    before = [device.independent_threads for device in devices]
    try:
        for device in devices:
            device.independent_threads = False
        yield
    finally:
        for device, old in zip(devices, before, strict=True):
            device.independent_threads = old
