"""``gl.launch``, ``gl.warps``, ``gl.count`` and what else looks at a kernel's launch.

Each function asks the session for records and hands them to a view. On a real GPU the virtual GPU
replays the same launch beside the measurement: it predicts, counts, and finds faults before they
can cost the CUDA context.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from gpulab import session, views
from gpulab._deprecated import old_parameters
from gpulab.lab import recorded
from gpulab.views.tables.as_run import AsRunTable
from gpulab.views.tables.count import CounterTable
from gpulab.views.tables.sanitizer import SanitizerTable
from virtualgpu.protocol import Block, Blocks, Counters, Hazards, Launch, Shape, Warp
from virtualgpu.records import WARP_SIZE, BlockTrace, WarpTrace

if TYPE_CHECKING:
    from gpulab.lab.run import Run

_NOT_REPLAYED = (
    "Nothing was watched: only a replay tells values, and the launch is too large or too slow for one."
)


@old_parameters
def launch(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    *,
    shared_mem: int = 0,
    stream: Any = None,
    beside: str | None = None,
) -> Run:
    """Run a kernel and show which SM ran each block, and when; the result can be asked further questions.

    Parameters
    ----------
    kernel
        A ``cp.RawKernel`` or a function of a ``cp.RawModule``.
    grid, block
        Blocks in the grid and threads in a block: a number or a tuple of one to three.
    args
        The kernel's arguments, a tuple.
    shared_mem
        Dynamic shared memory per block in bytes.
    stream
        The stream that the kernel runs in, such as ``cp.cuda.Stream()``; the current stream if left out.
    beside
        A GPU's name, such as ``"H200"``: shows next to the picture what was recorded there of the same
        launch (`gpulab.lab.recorded`; ``gl.recorded()`` lists the records).

    Returns
    -------
    Run
        A picture of the launch (`gpulab.views.LaunchChart`), measured on a real GPU; the virtual GPU's
        prediction joins it where the launch is small enough to replay. Modelled on a virtual GPU. For a
        one-dimensional launch it has a slider for the block size, which keeps the number of threads and
        restores the arrays.

        Its methods ask further questions about the same launch: ``.warps()``, ``.count()``, ``.access()``,
        ``.machine_code()``, ``.sanitize()``, ``.diagnose()`` and ``.roofline()``, with the options of
        ``gl.warps`` and so on. Each starts from the arrays as they were before the launch, and leaves them
        as it finds them. For that gpulab copies the arrays' contents to the host's memory, 256 MiB at most
        for all launches together; the oldest copies are dropped first.

    Raises
    ------
    NotRecordedError
        If no record of `beside` fits the launch, which then does not run; the message lists the records.

    Examples
    --------
    >>> run = gl.launch(kernel, 4, 256, (x, y, n))
    >>> run.record.sm_id  # the SM of each block
    >>> run.count()
    >>> run.warps(block_index=3, warp=7)
    """
    from gpulab.lab.run import Run

    description = Launch.of(kernel, grid, block, args, shared_mem, stream)
    recording = recorded.beside(beside, description) if beside is not None else None
    kept = session.KeptLaunch(description)
    answer = session.observe(description, Blocks())
    run = Run(answer.record, kept, recording)
    predicted = answer.beside
    if predicted is not None and recording is None and not views.after_cell(lambda: run.compare(predicted)):
        run.compare(predicted)
    return run


@old_parameters
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
    """Run a kernel and step through one of its warps: source lines, lanes, registers, shared memory.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream
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
    watch
        C expressions to evaluate in all lanes at every step: of variables, parameters, arrays in shared and
        device memory, structs, pointers (``p->x``) and built-in indices, as in ``["i", "x[i] * 2",
        "tile[threadIdx.x]"]``. What the compiler has optimised out is said to be so; ``options=("-G",)`` of
        a `cp.RawKernel` keeps all. Memory that other blocks change meanwhile is known at this block's own
        accesses only.
    stop
        Where to stop: ``"line 12"``, a condition over lanes that becomes true, ``"any(i >= n)"`` or
        ``"all(...)"``, or a write, ``"write y[3]"``; or several. The view begins at the first stop; keys s
        and S (or buttons) lead to the next one and run back to the one before.

    Returns
    -------
    WarpStepper
        The virtual GPU's trace. On a real GPU it carries the active masks that the GPU itself
        reported for each basic block; those stand alone for a launch too large to replay. Variables are
        named where a debug build of the kernel, run beside it over the same memory, proves which
        registers hold them. A block that computes on and on is stopped, and its trace says so.

    Raises
    ------
    WatchError
        For a watch expression or a stop with a typo, a call, a condition that is no truth value, or names
        of a kernel without debug information. Device memory is then as it was.

    Examples
    --------
    >>> gl.warps(kernel, 4, 256, (x, y, n), block_index=3, warp=7)
    >>> gl.warps(kernel, 4, 256, (x, y, n), watch=["i", "x[i] * 2"], stop="any(i >= n)")
    """
    asked = Launch.of(kernel, grid, block, args, shared_mem, stream)
    position = asked.warp_position(block_index, warp)
    what: Warp | Block = Block(*position) if whole_block else Warp(*position)
    watches, stops = ((text,) if isinstance(text, str) else tuple(text or ()) for text in (watch, stop))
    what = replace(what, watch=watches, stop=stops)
    if max_steps is not None:
        what = replace(what, max_steps=max_steps)
    seen: session.Observed[BlockTrace | WarpTrace] = session.observe(asked, what)
    measured = seen.beside() if seen.beside is not None else None
    record = seen.record
    if (watches or stops) and isinstance(record, WarpTrace) and record.detail is None:
        record = replace(record, note=_NOT_REPLAYED)
    return views.WarpStepper(record, measured=measured, warp=position[1])


@old_parameters
def occupancy(kernel: Any, block: Shape = 256, *, shared_mem: int = 0) -> views.OccupancyChart:
    """Show how many warps of a kernel an SM can hold at each block size, and what limits them.

    Parameters
    ----------
    kernel
        A ``cp.RawKernel`` or a function of a ``cp.RawModule``.
    block
        The block size to point out: a number of threads, or a tuple of one to three.
    shared_mem
        Dynamic shared memory per block in bytes, the same at every block size.

    Examples
    --------
    >>> gl.occupancy(kernel, 256, shared_mem=16_384)
    """
    asked = Launch.of(kernel, 1, block, (), shared_mem)
    backend = session.backend()
    threads = asked.block_threads
    most = min(
        backend.device_info().max_threads_per_block, backend.kernel_stats(kernel).max_threads_per_block
    )
    if threads > most:
        raise ValueError(
            f"A block of {threads:,} threads is over this kernel's limit of {most:,} on this device."
        )
    sizes = sorted({*range(WARP_SIZE, most + 1, WARP_SIZE), threads})
    return views.OccupancyChart(
        [backend.occupancy(kernel, size, asked.shared_bytes) for size in sizes], threads
    )


@old_parameters
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
    """Run a kernel and count its instructions, memory requests, sectors, conflicts, branches, cache hits.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream
        As for `launch`.
    caches
        Hit rates and bytes from memory as if the caches were empty before (``"cold"``, as Nsight Compute has
        them unless told otherwise), or with what earlier operations left in L2 (``"warm"``).

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
    asked = Launch.of(kernel, grid, block, args, shared_mem, stream)
    seen = session.observe(asked, Counters(caches))
    return CounterTable.of(seen.record, code=asked.source.code, note=seen.note)


@old_parameters
def machine_code(
    kernel: Any,
    grid: Shape,
    block: Shape,
    args: Sequence[Any] = (),
    *,
    shared_mem: int = 0,
    stream: Any = None,
) -> AsRunTable:
    """Run a kernel and compare its counts in PTX, as written, with those in machine code, as run.

    Between the two, NVIDIA's assembler ptxas merges neighbouring accesses into wider ones, predicates
    short branches and copies loop bodies. The table says where, and what it changes.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream
        As for `launch`.

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

    if not sass.available():
        raise sass.NvdisasmMissingError
    asked = Launch.of(kernel, grid, block, args, shared_mem, stream)
    counters = session.observe(asked, Counters()).record
    source = asked.source
    target = int(session.virtual_side().kernel_stats(source).target.removeprefix("sm_"))
    return AsRunTable.of(as_run.as_run(counters, source, target), code=source.code)


@old_parameters
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
    """Run a kernel under checks for mistakes that a plain launch may hide, and report them.

    The kernel runs on the virtual GPU, on a real one's twin over copies of the arrays; afterwards
    every array holds what it held before. A fault ends the run and becomes part of the report.

    Parameters
    ----------
    kernel, grid, block, args, shared_mem, stream
        As for `launch`.
    tools
        Which checks: ``"memory"`` for accesses out of bounds, misaligned or through dead pointers,
        ``"race"`` for accesses of several threads to one word that nothing orders, in shared and
        in global memory, ``"init"`` for reads of what nothing has written (shared and local memory,
        and arrays of ``cp.empty``), ``"sync"`` for barriers and warp masks.
    block_order
        ``"in order"``, ``"reversed"``, ``"random"`` or ``"in turns"``: at each barrier of a block another
        goes on.
    seed
        Which of the orders that are drawn.
    nan
        Stop at the first NaN that arithmetic makes of operands that are none.
    tool
        ``"compute-sanitizer"`` lets NVIDIA's tool check the kernel on a real GPU, over copies of the arrays
        in processes of their own, a process for each of `tools`; addresses passed as numbers mean nothing
        there. Where it is absent, refuses the device or takes longer than a minute, the report says so:
        ``unavailable`` has the cause and what helps.

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
    names = (tools,) if isinstance(tools, str) else tuple(tools)
    asked = Launch.of(kernel, grid, block, args, shared_mem, stream)
    if tool:
        if tool != "compute-sanitizer":
            raise ValueError(f"`tool` is 'compute-sanitizer', or left out for our own checks, not {tool!r}.")
        from gpulab.lab.faults.nvidia import check

        return SanitizerTable.of(check(asked, names))
    seen = session.observe(asked, Hazards(names, block_order, seed, nan))
    return SanitizerTable.of(seen.record, note=seen.note)


@contextmanager
def block_order(order: str, seed: int = 0) -> Iterator[None]:
    """Let the virtual GPU run the blocks of every kernel in another order for a while.

    CUDA promises no order, so a kernel that needs one is wrong, even if it works by luck::

        with gl.block_order("random", seed=1):
            kernel(grid, block, args)

    Parameters
    ----------
    order
        ``"in order"``, ``"reversed"``, ``"random"`` or ``"in turns"``: at each barrier of a block another
        goes on.
    seed
        Which of the orders that are drawn.

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
    with machine.keeping("block_order", "turns_seed"):
        for device in machine.devices:
            device.set_block_order(order, seed)
        yield


@contextmanager
def before_volta(watchdog_s: float = 2.0) -> Iterator[None]:
    """Let the virtual GPU schedule warps as GPUs before Volta did, for a while.

    Their lanes shared one program counter: where a warp had split, one side ran until it met the
    other again, so lanes that wait for each other within a warp hang::

        with gl.before_volta():
            spin_lock(grid, block, args)    # ends in a LaunchTimeoutError

    Parameters
    ----------
    watchdog_s
        Computing time in seconds after which a kernel counts as hung.

    Examples
    --------
    >>> with gl.before_volta():
    ...     stepper = gl.warps(kernel, 4, 256, (x, y, n))
    """
    machine = session.virtual_side().machine
    with machine.keeping("independent_threads"), machine.keeping("watchdog_s"):
        for device in machine.devices:
            device.independent_threads = False
            device.watchdog_s = min(watchdog_s, device.watchdog_s)
        yield
