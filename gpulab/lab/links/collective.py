"""``gl.collective``: a collective operation of several GPUs, step by step, with the bytes per port."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any

from gpulab import session, views
from gpulab.lab.links import nccl
from gpulab.lab.links.records import records_of
from gpulab.lab.links.runs import Run, reachable
from gpulab.lab.links.schedules import Schedule, bounds_of, check_operation, schedule_of
from gpulab.session.choose import MAX_VIRTUAL_DEVICES
from gpulab.words import count, size
from virtualgpu.errors import GpulabError
from virtualgpu.records.origin import Provenance
from virtualgpu.records.traffic.collective import Collective, CollectiveStep, Move, Operation, make_crossings
from virtualgpu.records.traffic.ports import Crossing, LinkKind
from virtualgpu.records.traffic.schedules import Steps, merge_adjacent_moves

MOST_BYTES = 1 << 30  # in all arrays together
# in one go, the first of them unmeasured
_TIMED_RUNS = 10
_MOST_NS = 10**9


def collective(
    operation: str = "all-reduce",
    algorithm: str | Schedule = "ring",
    *,
    gpus: int | None = None,
    size_bytes: int = 8 << 20,
    links: LinkKind | None = None,
) -> views.CollectiveView:
    """Run a collective operation on several GPUs, and show the data of each GPU step by step.

    Each GPU has a real array of 32-bit integers. Chunks are copied from GPU to GPU and added there, and the
    result is compared with NumPy's sum.

    Parameters
    ----------
    operation
        ``"all-reduce"`` (all GPUs get the sum), ``"reduce"`` (GPU 0 gets the sum), ``"broadcast"`` (all GPUs
        get the data of GPU 0), ``"all-gather"`` (all GPUs get chunk k from GPU k) or ``"reduce-scatter"``
        (GPU k gets chunk k of the sum).
    algorithm
        ``"ring"``, ``"tree"`` or ``"naive"`` (all data pass through GPU 0), or your own schedule: a list of
        steps, or a function that takes the number of GPUs and returns such a list. A step is a list of moves
        ``(source, target, chunk, "add" or "copy")`` that happen at the same time. The data are divided into
        as many chunks as the schedule uses. ``"nccl"`` calls NCCL, which reports neither chunks nor steps, so
        its bytes are computed as for a ring. On virtual GPUs, its times follow recordings that were made with
        NVLink SHARP (NVLS) off.
    gpus
        The number of GPUs, 2 to 16. By default, all real GPUs of the session, or else 8 virtual ones.
    size_bytes
        The size of each GPU's array. It is rounded down to whole elements of four bytes, and to equal parts
        for NCCL's all-gather and reduce-scatter.
    links
        As for `use_device`. By default, the links of the devices in use, or the usual links of such GPUs.

    Returns
    -------
    CollectiveView
        A picture of the chunks of each GPU after each step, and the bytes through each port. ``.record``
        holds the data (`virtualgpu.records.traffic.collective.Collective`).

        It runs on virtual GPUs like the one in use, with modelled times. Where the session uses real GPUs,
        and there are enough, it runs on those: as one CUDA graph, measured between events
        (`Collective.in_one_go_ns`); message by message from Python, measured by the host's clock
        (`Collective.from_host_ns`); and step by step. Bytes then follow from the moves. NCCL has a process
        for each real GPU there, and is measured between events.

    Raises
    ------
    ValueError
        For an unknown operation or algorithm, an invalid number or size, or a schedule that cannot run.
    GpulabError
        For NCCL, if the session has real GPUs but too few of them, if a rank fails, or if a rank does not
        finish within a minute. The message names the rank and the call. All ranks have been ended then.

    Examples
    --------
    >>> gl.collective("all-reduce", algorithm="ring", gpus=8)
    >>> gl.collective("broadcast", algorithm=lambda n: [[(0, r, 0, "copy")] for r in range(1, n)])
    """
    checked_operation = check_operation(operation)
    real_gpus = 0 if links is not None else _real_gpus()
    gpus = (real_gpus if real_gpus > 1 else 8) if gpus is None else gpus
    if type(gpus) is not int or not 2 <= gpus <= MAX_VIRTUAL_DEVICES:
        raise ValueError(f"`gpus` must be an integer from 2 to {MAX_VIRTUAL_DEVICES}, not {gpus!r}.")
    library = algorithm == nccl.NAME
    name, steps = schedule_of(checked_operation, "ring" if library else algorithm, gpus)
    least_chunks = gpus if checked_operation in ("all-gather", "reduce-scatter") else 1
    try:
        elements = int(size_bytes) // 4
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"`size_bytes` must be a number of bytes, such as 8 << 20 (8 MiB), not {size_bytes!r}."
        ) from None
    chunks = len(bounds_of(0, steps, least_chunks)) - 1
    if elements < chunks or 4 * elements * gpus > MOST_BYTES:
        raise ValueError(
            f"`size_bytes` is {size_bytes!r}. It must be at least 4 bytes for each of "
            f"{chunks} chunks, and all GPUs together can hold at most {size(MOST_BYTES)}."
        )
    if library and 0 < real_gpus < gpus:
        raise GpulabError(
            f"NCCL on {gpus} GPUs needs {gpus} real GPUs, but there "
            f"{'is' if real_gpus == 1 else 'are'} {count(real_gpus, 'real GPU')} here. "
            f'Use fewer GPUs, or call gl.use_device("virtual:H200", count={gpus}) for '
            "modelled times."
        )
    elements -= elements % gpus if library and checked_operation in ("all-gather", "reduce-scatter") else 0
    bounds = bounds_of(elements, steps, least_chunks)
    virtual_side: Any
    with _use_gpus(gpus, real_gpus, links) as virtual_side:
        if library:
            record = _run_library(virtual_side, checked_operation, gpus, bounds, steps)
        else:
            record = by_schedule(virtual_side, checked_operation, name, gpus, bounds, steps)
    if virtual_side is not None and real_gpus:
        origin = replace(record.provenance, detail=f"this computer has {real_gpus} of {gpus} GPUs")
        record = replace(record, provenance=origin)
    return views.CollectiveView(record, records_of(record.provenance.device, gpus))


def _real_gpus() -> int:
    """Return the number of real GPUs of the session."""
    real_cp: Any = session.find_real_cp()
    return 0 if real_cp is None else int(real_cp.cuda.runtime.getDeviceCount())


def _use_gpus(gpus: int, real_gpus: int, links: LinkKind | None) -> AbstractContextManager[Any]:
    """Return a context with virtual GPUs. Its value is None if the session has enough real GPUs."""
    if real_gpus >= gpus:
        return nullcontext()
    links_in_use = session.which_device().links
    return session.use_bench_device(count=gpus, links=links or links_in_use or None)


def by_schedule(
    side: Any, operation: Operation, name: str, gpus: int, bounds: Sequence[int], steps: Steps
) -> Collective:
    """Run the schedule of a collective operation step by step. On real GPUs, also measure the schedule as one
    CUDA graph.
    """
    cp = session.cp() if side is None else side.cp
    run = Run(cp, gpus, bounds)
    host_submit_ns = graph_ns = 0
    verdicts = []

    def median_time_ns(run_once: Callable[[], int]) -> int:
        """Return the median time of several runs in ns. An additional first run is not timed, but its results
        are checked.
        """
        times_ns: list[int] = []
        while len(times_ns) < 2 or (len(times_ns) < _TIMED_RUNS and sum(times_ns) < _MOST_NS):
            times_ns.append(run_once())
            if len(times_ns) == 1:
                verdicts.append(run.right(operation))
        run.begin_again()
        return int(statistics.median(times_ns[1:]))

    def from_host() -> int:
        begin_ns = time.perf_counter_ns()
        for step in steps:
            run.give(step, run.slices)
        run.wait()
        return time.perf_counter_ns() - begin_ns

    if side is None:
        host_submit_ns = median_time_ns(from_host)
        with suppress(cp.cuda.runtime.CUDARuntimeError):  # a driver that cannot capture such copies
            graph_ns = median_time_ns(run.as_graph(steps, run.slices))
    crossings: list[Crossing] = []
    times = []
    step_begins = []
    for step in steps:
        step_begins.append(len(crossings))
        if side is None:
            begin = time.perf_counter_ns()
            run.give(step)
            run.wait()
            times.append(CollectiveStep(tuple(step), time.perf_counter_ns() - begin))
            crossings += make_crossings(step, bounds, run.joined, "Memcpy PtoP")
        else:
            modelled, step_crossings = _modelled(side, run, step)
            times.append(modelled)
            crossings += step_crossings
    is_correct = tuple(map(all, zip(*verdicts, run.right(operation), strict=True)))
    return Collective.of(
        *_origin(side, run.joined, gpus),
        bounds,
        crossings,
        is_correct,
        operation=operation,
        algorithm=name,
        steps=tuple(times),
        begins=tuple(step_begins),
        in_one_go_ns=graph_ns,
        from_host_ns=host_submit_ns,
        bytes_are="counted at the ports" if side is not None else "computed from the moves",
    )


def _modelled(virtual_side: Any, run: Run, step: Sequence[Move]) -> tuple[CollectiveStep, Sequence[Crossing]]:
    """Run a step on virtual GPUs, and return its modelled time and the transfers over links.

    The time is that of the busiest port, followed by that of the GPU with the longest sums.
    """
    ports = virtual_side.port_recorder()
    ports.start()
    run.give(step)
    run.wait()
    crossings: Sequence[Crossing] = ports.stop().crossings
    sent_chunks = {(move.source, move.chunk) for move in step}
    sums = [
        (move.target, 4 * (run.bounds[end_chunk] - run.bounds[move.chunk]))
        for move, end_chunk in merge_adjacent_moves(step)
        if move.add
        or not sent_chunks.isdisjoint((move.target, chunk) for chunk in range(move.chunk, end_chunk))
    ]
    crossing_rows = [
        (crossing.source, crossing.target, crossing.size_bytes, crossing.over == "NVLink")
        for crossing in crossings
    ]
    copies_ns, whole_ns = map(round, virtual_side.step_ns(crossing_rows, sums))
    return CollectiveStep(tuple(step), whole_ns, copies_ns), crossings


def _run_library(
    virtual_side: Any, operation: Operation, gpus: int, bounds: Sequence[int], steps: Steps
) -> Collective:
    """Run the operation with NCCL; the bytes on each link are computed from the `steps` of a ring."""
    cp = session.cp() if virtual_side is None else virtual_side.cp
    is_correct, took_ns = nccl.called(None if virtual_side is None else cp, operation, gpus, bounds[-1])
    connections = reachable(cp.cuda.runtime, gpus)
    crossings = make_crossings([move for step in steps for move in step], bounds, connections, "NCCL")
    return Collective.of(
        *_origin(virtual_side, connections, gpus),
        bounds,
        crossings,
        is_correct,
        operation=operation,
        algorithm="NCCL",
        steps=(CollectiveStep((), took_ns),),
        begins=(0,),
        bytes_are=_library_bytes(virtual_side),
        opaque=True,
    )


def _library_bytes(virtual_side: Any) -> str:
    """Return a text that states how the bytes of NCCL's call were computed.

    NVLink SHARP on real GPUs may need fewer bytes.
    """
    if virtual_side is not None or os.environ.get("NCCL_NVLS_ENABLE") == "0":
        return "computed as for a ring"
    return "computed as for a ring, while NVLink SHARP (NVLS) would need fewer"


def _origin(virtual_side: Any, connections: set[tuple[int, int]], gpus: int) -> tuple[Provenance, LinkKind]:
    """Return the provenance of the measured times, and the kind of links between the GPUs."""
    if virtual_side is not None:
        return virtual_side.provenance, virtual_side.machine.links.kind
    is_fully_connected = len(connections) == gpus * (gpus - 1)
    return (
        session.backend().provenance,
        "nvswitch" if is_fully_connected else "pairs" if connections else "host",
    )
