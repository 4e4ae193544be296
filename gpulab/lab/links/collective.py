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
from gpulab.lab.links.records import find_records
from gpulab.lab.links.runs import ScheduleRun, find_reachable_pairs
from gpulab.lab.links.schedules import Schedule, check_operation, find_chunk_bounds, make_schedule
from gpulab.session.choose import MAX_VIRTUAL_DEVICES
from gpulab.words import count, size
from virtualgpu.errors import GpulabError
from virtualgpu.records.origin import Provenance
from virtualgpu.records.traffic.collective import Collective, CollectiveStep, Move, Operation, make_crossings
from virtualgpu.records.traffic.ports import Crossing, LinkTopology
from virtualgpu.records.traffic.schedules import Steps, merge_adjacent_moves

MAX_TOTAL_BYTES = 1 << 30  # in all arrays together
# in one go, the first of them unmeasured
_TIMED_RUNS = 10
_MAX_TIMED_NS = 10**9


def collective(
    operation: str = "all-reduce",
    algorithm: str | Schedule = "ring",
    *,
    gpus: int | None = None,
    size_bytes: int = 8 << 20,
    links: LinkTopology | None = None,
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
    real_gpus = 0 if links is not None else _count_real_gpus()
    gpus = (real_gpus if real_gpus > 1 else 8) if gpus is None else gpus
    if type(gpus) is not int or not 2 <= gpus <= MAX_VIRTUAL_DEVICES:
        raise ValueError(f"`gpus` must be an integer from 2 to {MAX_VIRTUAL_DEVICES}, not {gpus!r}.")
    is_library = algorithm == nccl.ALGORITHM_NAME
    algorithm_name, steps = make_schedule(checked_operation, "ring" if is_library else algorithm, gpus)
    min_chunks = gpus if checked_operation in ("all-gather", "reduce-scatter") else 1
    try:
        element_count = int(size_bytes) // 4
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"`size_bytes` must be a number of bytes, such as 8 << 20 (8 MiB), not {size_bytes!r}."
        ) from None
    chunk_count = len(find_chunk_bounds(0, steps, min_chunks)) - 1
    if element_count < chunk_count or 4 * element_count * gpus > MAX_TOTAL_BYTES:
        raise ValueError(
            f"`size_bytes` is {size_bytes!r}. It must be at least 4 bytes for each of "
            f"{chunk_count} chunks, and all GPUs together can hold at most {size(MAX_TOTAL_BYTES)}."
        )
    if is_library and 0 < real_gpus < gpus:
        raise GpulabError(
            f"NCCL on {gpus} GPUs needs {gpus} real GPUs, but there "
            f"{'is' if real_gpus == 1 else 'are'} {count(real_gpus, 'real GPU')} here. "
            f'Use fewer GPUs, or call gl.use_device("virtual:H200", count={gpus}) for '
            "modelled times."
        )
    element_count -= (
        element_count % gpus if is_library and checked_operation in ("all-gather", "reduce-scatter") else 0
    )
    chunk_bounds = find_chunk_bounds(element_count, steps, min_chunks)
    virtual_side: Any
    with _use_gpus(gpus, real_gpus, links) as virtual_side:
        if is_library:
            record = _run_library(virtual_side, checked_operation, gpus, chunk_bounds, steps)
        else:
            record = run_schedule(virtual_side, checked_operation, algorithm_name, gpus, chunk_bounds, steps)
    if virtual_side is not None and real_gpus:
        virtual_origin = replace(record.provenance, detail=f"this computer has {real_gpus} of {gpus} GPUs")
        record = replace(record, provenance=virtual_origin)
    return views.CollectiveView(record, find_records(record.provenance.device, gpus))


def _count_real_gpus() -> int:
    """Return the number of real GPUs of the session."""
    real_cp: Any = session.real_cp()
    return 0 if real_cp is None else int(real_cp.cuda.runtime.getDeviceCount())


def _use_gpus(gpu_count: int, real_gpus: int, links: LinkTopology | None) -> AbstractContextManager[Any]:
    """Return a context with virtual GPUs. Its value is None if the session has enough real GPUs."""
    if real_gpus >= gpu_count:
        return nullcontext()
    links_in_use = session.which_device().links
    return session.use_bench_device(count=gpu_count, links=links or links_in_use or None)


def run_schedule(
    virtual_side: Any,
    operation: Operation,
    algorithm_name: str,
    gpu_count: int,
    chunk_bounds: Sequence[int],
    steps: Steps,
) -> Collective:
    """Run the schedule of a collective operation step by step. On real GPUs, also measure the schedule as one
    CUDA graph.
    """
    cp = session.cp() if virtual_side is None else virtual_side.cp
    schedule_run = ScheduleRun(cp, gpu_count, chunk_bounds)
    host_submit_ns = graph_ns = 0
    verdicts = []

    def median_time_ns(run_once: Callable[[], int]) -> int:
        """Return the median time of several runs in ns. An additional first run is not timed, but its results
        are checked.
        """
        times_ns: list[int] = []
        while len(times_ns) < 2 or (len(times_ns) < _TIMED_RUNS and sum(times_ns) < _MAX_TIMED_NS):
            times_ns.append(run_once())
            if len(times_ns) == 1:
                verdicts.append(schedule_run.check_results(operation))
        schedule_run.restore_arrays()
        return int(statistics.median(times_ns[1:]))

    def run_from_host() -> int:
        begin_ns = time.perf_counter_ns()
        for step in steps:
            schedule_run.submit_step(step, schedule_run.slice_count)
        schedule_run.wait()
        return time.perf_counter_ns() - begin_ns

    if virtual_side is None:
        host_submit_ns = median_time_ns(run_from_host)
        with suppress(cp.cuda.runtime.CUDARuntimeError):  # a driver that cannot capture such copies
            graph_ns = median_time_ns(schedule_run.capture_graph(steps, schedule_run.slice_count))
    crossings: list[Crossing] = []
    timed_steps = []
    step_begins = []
    for step in steps:
        step_begins.append(len(crossings))
        if virtual_side is None:
            begin_ns = time.perf_counter_ns()
            schedule_run.submit_step(step)
            schedule_run.wait()
            timed_steps.append(CollectiveStep(tuple(step), time.perf_counter_ns() - begin_ns))
            crossings += make_crossings(step, chunk_bounds, schedule_run.direct_pairs, "Memcpy PtoP")
        else:
            modelled_step, step_crossings = _run_modelled(virtual_side, schedule_run, step)
            timed_steps.append(modelled_step)
            crossings += step_crossings
    is_correct = tuple(map(all, zip(*verdicts, schedule_run.check_results(operation), strict=True)))
    return Collective.of(
        *_find_origin(virtual_side, schedule_run.direct_pairs, gpu_count),
        chunk_bounds,
        crossings,
        is_correct,
        operation=operation,
        algorithm=algorithm_name,
        steps=tuple(timed_steps),
        begins=tuple(step_begins),
        in_one_go_ns=graph_ns,
        from_host_ns=host_submit_ns,
        bytes_are="counted at the ports" if virtual_side is not None else "computed from the moves",
    )


def _run_modelled(
    virtual_side: Any, schedule_run: ScheduleRun, step: Sequence[Move]
) -> tuple[CollectiveStep, Sequence[Crossing]]:
    """Run a step on virtual GPUs, and return its modelled time and the transfers over links.

    The time is that of the busiest port, followed by that of the GPU with the longest sums.
    """
    port_recorder = virtual_side.port_recorder()
    port_recorder.start()
    schedule_run.submit_step(step)
    schedule_run.wait()
    crossings: Sequence[Crossing] = port_recorder.stop().crossings
    sent_chunks = {(move.source, move.chunk) for move in step}
    sum_bytes_of_gpus = [
        (move.target, 4 * (schedule_run.chunk_bounds[end_chunk] - schedule_run.chunk_bounds[move.chunk]))
        for move, end_chunk in merge_adjacent_moves(step)
        if move.add
        or not sent_chunks.isdisjoint((move.target, chunk) for chunk in range(move.chunk, end_chunk))
    ]
    transfers = [
        (crossing.source, crossing.target, crossing.size_bytes, crossing.over == "NVLink")
        for crossing in crossings
    ]
    copies_ns, step_ns = map(round, virtual_side.step_ns(transfers, sum_bytes_of_gpus))
    return CollectiveStep(tuple(step), step_ns, copies_ns), crossings


def _run_library(
    virtual_side: Any, operation: Operation, gpu_count: int, chunk_bounds: Sequence[int], steps: Steps
) -> Collective:
    """Run the operation with NCCL; the bytes on each link are computed from the `steps` of a ring."""
    cp = session.cp() if virtual_side is None else virtual_side.cp
    is_correct, call_ns = nccl.run_collective(
        None if virtual_side is None else cp, operation, gpu_count, chunk_bounds[-1]
    )
    connections = find_reachable_pairs(cp.cuda.runtime, gpu_count)
    crossings = make_crossings([move for step in steps for move in step], chunk_bounds, connections, "NCCL")
    return Collective.of(
        *_find_origin(virtual_side, connections, gpu_count),
        chunk_bounds,
        crossings,
        is_correct,
        operation=operation,
        algorithm="NCCL",
        steps=(CollectiveStep((), call_ns),),
        begins=(0,),
        bytes_are=_describe_library_bytes(virtual_side),
        opaque=True,
    )


def _describe_library_bytes(virtual_side: Any) -> str:
    """Return a text that states how the bytes of NCCL's call were computed.

    NVLink SHARP on real GPUs may need fewer bytes.
    """
    if virtual_side is not None or os.environ.get("NCCL_NVLS_ENABLE") == "0":
        return "computed as for a ring"
    return "computed as for a ring, while NVLink SHARP (NVLS) would need fewer"


def _find_origin(
    virtual_side: Any, connections: set[tuple[int, int]], gpu_count: int
) -> tuple[Provenance, LinkTopology]:
    """Return the provenance of the measured times, and the kind of links between the GPUs."""
    if virtual_side is not None:
        return virtual_side.provenance, virtual_side.machine.links.topology
    is_fully_connected = len(connections) == gpu_count * (gpu_count - 1)
    return (
        session.backend().provenance,
        "nvswitch" if is_fully_connected else "pairs" if connections else "host",
    )
