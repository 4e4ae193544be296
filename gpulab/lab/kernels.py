"""``gl.warps``, ``gl.count``, ``gl.sanitize`` and other analyses of a kernel's launch.

Each function takes records from the session and passes them to a view. On a real GPU the virtual GPU
also replays the same launch: it predicts, counts, and finds faults before they can destroy the CUDA
context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from gpulab import session, views
from gpulab._deprecated import accept_old_parameters
from gpulab.views.tables.as_run import AsRunTable
from gpulab.views.tables.count import CounterTable
from gpulab.views.tables.sanitizer import SanitizerTable
from virtualgpu.protocol import Block, Counters, Hazards, Launch, Shape, Warp
from virtualgpu.records import WARP_SIZE, BlockTrace, WarpTrace

_NOT_REPLAYED_NOTE = (
    "No values were recorded for `watch`: they need a replay on the virtual GPU, and "
    "this launch is too large or too slow for a replay."
)


@accept_old_parameters
def warps(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    *,
    block_index: Shape = (0, 0, 0),
    warp: int = 0,
    shared_mem: int = 0,
    stream: Any = None,
    max_steps: int | None = None,
    whole_block: bool = False,
    watch: str | Sequence[str] = (),
    stop: str | Sequence[str] = (),
) -> views.WarpStepper:
    """Run a kernel, and show one of its warps step by step, with source lines, lanes, registers and shared
    memory.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream
        As for `gpulab.launch`.
    block_index
        Index of the block: a number or a tuple of one to three.
    warp
        Number of the warp in that block; warp 1 consists of threads 32 to 63.
    max_steps
        Maximum number of steps of the warp (20,000 by default), or of all warps together with `whole_block`
        (60,000).
    whole_block
        Trace all warps of the block; the stepper then switches between them.
    watch
        C expressions to evaluate in all lanes at every step. They can use variables, parameters, arrays in
        shared and device memory, structs, pointers (``p->x``) and built-in indices, as in ``["i",
        "x[i] * 2", "tile[threadIdx.x]"]``. The view shows which variables the compiler has optimized out;
        ``options=("-G",)`` of a `cp.RawKernel` keeps all of them. Changes of memory by other blocks show only
        at this block's own accesses.
    stop
        Where to stop: ``"line 12"``, a condition over lanes that becomes true, ``"any(i >= n)"`` or
        ``"all(...)"``, a write, ``"write y[3]"``, or a list of these. The view begins at the first stop; the
        keys s and S (or buttons) go to the next and to the previous stop.

    Returns
    -------
    WarpStepper
        The virtual GPU's trace. On a real GPU it includes the active masks that the GPU itself reported for
        each basic block; a launch that is too large to replay has only those. Variables have names where a
        debug build of the kernel, which runs over the same memory, proves which registers hold them. It also
        proves how many source iterations one iteration of an unrolled loop is. A block that does not end is
        stopped, and its trace says so.

    Raises
    ------
    WatchError
        For a watch expression or a stop with a typo, a call, a condition that is not a truth value, or names
        of a kernel without debug information. Device memory is then unchanged.

    Examples
    --------
    >>> gl.warps(kernel, 4, 256, (x, y, n), block_index=3, warp=7)
    >>> gl.warps(kernel, 4, 256, (x, y, n), watch=["i", "x[i] * 2"], stop="any(i >= n)")
    """
    launch = Launch.of(kernel, grid, block, args, shared_mem, stream)
    block_and_warp = launch.warp_position(block_index, warp)
    observation: Warp | Block = Block(*block_and_warp) if whole_block else Warp(*block_and_warp)
    watched_expressions = (watch,) if isinstance(watch, str) else tuple(watch or ())
    stop_conditions = (stop,) if isinstance(stop, str) else tuple(stop or ())
    observation = replace(observation, watch=watched_expressions, stop=stop_conditions)
    if max_steps is not None:
        observation = replace(observation, max_steps=max_steps)
    observed: session.ObservedRecord[BlockTrace | WarpTrace] = session.observe(launch, observation)
    measured_trace = observed.counterpart() if observed.counterpart is not None else None
    record = observed.record
    if (watched_expressions or stop_conditions) and isinstance(record, WarpTrace) and record.detail is None:
        record = replace(record, note=_NOT_REPLAYED_NOTE)
    return views.WarpStepper(record, measured=measured_trace, warp=block_and_warp[1])


@accept_old_parameters
def occupancy(
    kernel: Any, block: Shape = 256, *, shared_mem: int = 0, beside: str | Sequence[str] = ()
) -> views.OccupancyChart:
    """Show how many warps of a kernel fit on an SM for each block size, and which resource limits this
    number.

    Parameters
    ----------
    kernel
        A ``cp.RawKernel`` or a function of a ``cp.RawModule``.
    block
        The block size to mark: a number of threads, or a tuple of one to three numbers.
    shared_mem
        Dynamic shared memory per block in bytes, the same at every block size.
    beside
        Up to three other GPUs of the table, shown as faint marks. The registers per thread are those of the
        device in use, although the compiler can choose another number for another GPU.

    Examples
    --------
    >>> gl.occupancy(kernel, 256, shared_mem=16_384)
    >>> gl.occupancy(kernel, beside=["T4", "H200"])
    """
    launch = Launch.of(kernel, 1, block, (), shared_mem)
    backend = session.backend()
    threads = launch.block_threads
    max_threads = min(
        backend.device_info().max_threads_per_block, backend.kernel_stats(kernel).max_threads_per_block
    )
    if threads > max_threads:
        raise ValueError(
            f"A block of {threads:,} threads is too large. On this device, this kernel allows at most "
            f"{max_threads:,} threads per block."
        )
    block_sizes = sorted({*range(WARP_SIZE, max_threads + 1, WARP_SIZE), threads})
    occupancies = [backend.occupancy(kernel, block_size, launch.shared_bytes) for block_size in block_sizes]
    device_names = [beside] if isinstance(beside, str) else beside
    other_occupancies = [
        [session.compute_occupancy_on(name, occupancy_point) for occupancy_point in occupancies]
        for name in device_names
    ]
    return views.OccupancyChart(occupancies, threads, other_occupancies)


@accept_old_parameters
def count(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    *,
    shared_mem: int = 0,
    stream: Any = None,
    caches: Literal["cold", "warm"] = "cold",
) -> CounterTable:
    """Run a kernel, and count its instructions, memory requests, bank conflicts, branches and cache hits.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream
        As for `gpulab.launch`.
    caches
        Whether hit rates and bytes from memory start from empty caches (``"cold"``, the default of Nsight
        Compute too), or from the contents that earlier operations left in L2 (``"warm"``).

    Returns
    -------
    CounterTable
        The counters (`virtualgpu.records.KernelCounters`), which display as tables. On a real GPU they
        come from the virtual GPU's replay of the same launch, since reading the hardware's own
        takes administrator rights.

    Examples
    --------
    >>> gl.count(kernel, 4, 256, (x, y, n))
    """
    launch = Launch.of(kernel, grid, block, args, shared_mem, stream)
    observed = session.observe(launch, Counters(caches))
    return CounterTable.of(observed.record, code=launch.source.code, note=observed.note)


@accept_old_parameters
def machine_code(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    *,
    shared_mem: int = 0,
    stream: Any = None,
) -> AsRunTable:
    """Run a kernel, and compare the instruction counts of its PTX with those of its machine code.

    NVIDIA's assembler ptxas merges neighbouring accesses into wider ones, predicates short branches and
    copies loop bodies. The table says where, and what it changes.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream
        As for `gpulab.launch`.

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

    Examples
    --------
    >>> gl.machine_code(kernel, 4, 256, (x, y, n))
    """
    from virtualgpu.compile import as_run, sass

    if not sass.is_available():
        raise sass.NvdisasmMissingError
    launch = Launch.of(kernel, grid, block, args, shared_mem, stream)
    counters = session.observe(launch, Counters()).record
    kernel_source = launch.source
    target_sm = int(session.virtual_side().kernel_stats(kernel_source).target.removeprefix("sm_"))
    return AsRunTable.of(
        as_run.count_machine_code(counters, kernel_source, target_sm), code=kernel_source.code
    )


@accept_old_parameters
def sanitize(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    *,
    shared_mem: int = 0,
    stream: Any = None,
    tools: Sequence[str] = ("memory", "race", "init", "sync"),
    block_order: str = "in order",
    seed: int = 0,
    nan: bool = False,
    tool: str = "",
) -> SanitizerTable:
    """Run a kernel with checks for mistakes that an ordinary launch can hide, and report these mistakes.

    The kernel always runs on the virtual GPU. If a real GPU is in use, the kernel receives copies of the
    arrays. Afterwards every array has its old contents. A fault ends the run and becomes part of the report.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream
        As for `gpulab.launch`.
    tools
        The checks: ``"memory"`` for accesses that are out of bounds, misaligned or through dead pointers,
        ``"race"`` for unordered accesses of several threads to one word of shared or global memory,
        ``"init"`` for reads of uninitialized memory (shared and local memory, and arrays of ``cp.empty``),
        ``"sync"`` for barriers and warp masks.
    block_order
        ``"in order"``, ``"reversed"``, ``"random"`` or ``"in turns"``, which switches to another block at
        each barrier.
    seed
        The seed of random orders.
    nan
        Stop at the first NaN that arithmetic produces from operands that are not NaN.
    tool
        ``"compute-sanitizer"`` checks the kernel with NVIDIA's tool on a real GPU, over copies of the arrays
        in a separate process for each of `tools`; addresses that are passed as numbers are not valid there.
        If the tool is missing, does not support the device or takes longer than a minute, ``unavailable`` of
        the report has the cause and the remedy.

    Returns
    -------
    SanitizerTable
        The report (`virtualgpu.records.SanitizerReport`): ``clean``, ``hazards`` and ``found(kind)``. Two
        checkers' reports of one launch are compared line by line by ``.compare(other)``.

    Raises
    ------
    ValueError
        For an unknown tool or order.
    KernelFault
        For an illegal access or a barrier fault whose tool was not chosen.

    Examples
    --------
    >>> gl.sanitize(kernel, 4, 256, (x, y, n)).clean
    True
    """
    tool_names = (tools,) if isinstance(tools, str) else tuple(tools)
    launch = Launch.of(kernel, grid, block, args, shared_mem, stream)
    if tool:
        if tool != "compute-sanitizer":
            raise ValueError(
                f"`tool` is {tool!r}, which is not supported. Pass tool='compute-sanitizer', or leave out "
                "`tool` to run gpulab's own checks."
            )
        from gpulab.lab.faults.nvidia import run_sanitizer

        return SanitizerTable.of(run_sanitizer(launch, tool_names), code=launch.source.code)
    observed = session.observe(launch, Hazards(tool_names, block_order, seed, nan))
    return SanitizerTable.of(observed.record, note=observed.note, code=launch.source.code)


@contextmanager
def block_order(order: str, seed: int = 0) -> Iterator[None]:
    """Change the order in which the virtual GPU runs the blocks of each kernel in a ``with`` block.

    CUDA guarantees no order of blocks, so a kernel that depends on one is wrong, even if it happens to work::

        with gl.block_order("random", seed=1):
            kernel(grid, block, args)

    Parameters
    ----------
    order
        ``"in order"``, ``"reversed"``, ``"random"`` or ``"in turns"``, which switches to another block at
        each barrier.
    seed
        The seed of random orders.

    Raises
    ------
    ValueError
        For any other order.

    Examples
    --------
    >>> with gl.block_order("reversed"):
    ...     kernel((4,), (256,), (x, y, n))
    """
    machine = session.virtual_side().machine
    with machine.keep_settings("block_order", "turns_seed"):
        for device in machine.devices:
            device.set_block_order(order, seed)
        yield


@contextmanager
def lockstep_warps(watchdog_s: float = 2.0) -> Iterator[None]:
    """Run warps on the virtual GPU in lockstep within a ``with`` block, as GPUs before Volta did.

    In lockstep, the lanes of a warp share one program counter. Where a warp has diverged, one side runs until
    it meets the other again, so lanes of a warp that wait for each other hang::

        with gl.lockstep_warps():
            spin_lock(grid, block, args)    # raises a LaunchTimeoutError

    Parameters
    ----------
    watchdog_s
        Computing time in seconds after which a kernel is stopped.

    Examples
    --------
    >>> with gl.lockstep_warps():
    ...     stepper = gl.warps(kernel, 4, 256, (x, y, n))
    """
    machine = session.virtual_side().machine
    with machine.keep_settings("has_independent_threads"), machine.keep_settings("watchdog_s"):
        for device in machine.devices:
            device.has_independent_threads = False
            device.watchdog_s = min(watchdog_s, device.watchdog_s)
        yield
