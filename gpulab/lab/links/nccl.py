"""Calls of NCCL by several ranks: one process per real GPU, or one thread per virtual GPU."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from gpulab import session
from gpulab.processes.group import ProcessGroup
from virtualgpu.errors import GpulabError
from virtualgpu.records.traffic.collective import Operation, is_right, make_input_arrays

ALGORITHM_NAME = "nccl"
TIME_LIMIT_S = 60.0
_TIMED_ROUNDS = 7
_CALLS_PER_ROUND = 20
ReportCall = Callable[[str], object]


def run_collective(
    cp: Any, operation: Operation, gpu_count: int, element_count: int, limit_s: float = TIME_LIMIT_S
) -> tuple[tuple[bool, ...], int]:
    """Run an NCCL operation on all GPUs. Return whether the result of each GPU is correct, and the time per
    call in ns.

    Parameters
    ----------
    cp
        The array module of virtual GPUs, on which ranks are threads and times are modelled; None for real
        GPUs, on which the time is measured between events.
    operation, gpu_count, element_count
        The name of the operation, the number of GPUs, and the number of integers in each array.
    limit_s
        The time in seconds after which the ranks of real GPUs are ended.

    Raises
    ------
    GpulabError
        If a rank fails or does not finish in time. All ranks have been ended then.
    """
    if cp is None:
        with ProcessGroup([f"cuda:{rank}" for rank in range(gpu_count)], limit_s) as ranks:
            nccl_id = ranks.ask(_make_nccl_id)[0]
            rank_results = ranks.ask(
                _run_rank, nccl_id, gpu_count, operation, element_count, _TIMED_ROUNDS, _CALLS_PER_ROUND
            )
    else:
        unique_id = list(cp.cuda.nccl.get_unique_id()), True

        def run_thread(rank: int) -> tuple[bool, int]:
            cp.cuda.Device(rank).use()
            return _run_rank(str, rank, unique_id, gpu_count, operation, element_count, 1, 1, cp)

        with ThreadPoolExecutor(gpu_count, thread_name_prefix="rank") as pool:
            rank_results = list(pool.map(run_thread, range(gpu_count)))
    return tuple(is_correct for is_correct, _ in rank_results), max(call_ns for _, call_ns in rank_results)


def _make_nccl_id(enter_call: ReportCall, rank: int) -> tuple[list[int], bool]:
    """Create the CUDA context of a rank, and return rank 0's NCCL id, which connects the ranks."""
    enter_call(f"cp.cuda.Device({rank})")
    cp = session.cp()
    cp.cuda.Device().synchronize()
    nccl = cp.cuda.nccl
    if not getattr(nccl, "available", False):
        raise GpulabError(
            "CuPy cannot find NCCL here. Install nvidia-nccl-cu13, or nvidia-nccl-cu12 if "
            "CuPy was built for CUDA 12."
        )
    enter_call("get_unique_id()")
    nccl_id = nccl.get_unique_id() if rank == 0 else b""
    return list(nccl_id), isinstance(nccl_id, bytes)  # CuPy before 14 has a tuple


def _run_rank(
    enter_call: ReportCall,
    rank: int,
    nccl_id: tuple[Sequence[int], bool],
    gpu_count: int,
    operation: Operation,
    element_count: int,
    repeats: int,
    calls_per_round: int,
    cp: Any = None,
) -> tuple[bool, int]:
    """Run one rank. Return whether its result is correct, and the median time per call in ns."""
    cp = session.cp() if cp is None else cp
    nccl = cp.cuda.nccl
    arrays = make_input_arrays(gpu_count, element_count)
    enter_call(f"NcclCommunicator({gpu_count}, id, {rank})")
    communicator = nccl.NcclCommunicator(
        gpu_count, bytes(nccl_id[0]) if nccl_id[1] else tuple(nccl_id[0]), rank
    )
    chunk_bounds = [chunk * element_count // gpu_count for chunk in range(gpu_count + 1)]
    x = cp.asarray(arrays[rank])
    stream = cp.cuda.Stream(non_blocking=True)
    chunk_elements = element_count // gpu_count
    cp.cuda.Device().synchronize()
    # In place, as NCCL wants it: a rank's own part lies where it belongs in the whole.
    array_address = x.data.ptr
    chunk_address = x.data.ptr + 4 * chunk_bounds[rank]
    data_type = nccl.NCCL_INT32
    sum_operation = nccl.NCCL_SUM
    nccl_calls: dict[Operation, tuple[str, *tuple[int, ...]]] = {
        "all-reduce": ("allReduce", array_address, array_address, element_count, data_type, sum_operation),
        "reduce": ("reduce", array_address, array_address, element_count, data_type, sum_operation, 0),
        "broadcast": ("broadcast", array_address, array_address, element_count, data_type, 0),
        "all-gather": ("allGather", chunk_address, array_address, chunk_elements, data_type),
        "reduce-scatter": (
            "reduceScatter",
            array_address,
            chunk_address,
            chunk_elements,
            data_type,
            sum_operation,
        ),
    }
    call_name, *arguments = nccl_calls[operation]
    nccl_call = partial(getattr(communicator, str(call_name)), *arguments, stream.ptr)
    enter_call(f"{call_name}({element_count:,} x int32)")
    nccl_call()
    stream.synchronize()
    is_correct = is_right(operation, rank, x.get(), chunk_bounds, arrays)
    enter_call(f"{call_name}({element_count:,} x int32), timed")
    times_ns = []
    for _ in range(repeats):
        nccl_call()  # behind it all ranks are there
        begin_event = cp.cuda.Event()
        end_event = cp.cuda.Event()
        begin_event.record(stream)
        for _ in range(calls_per_round):
            nccl_call()
        end_event.record(stream)
        end_event.synchronize()
        times_ns.append(1e6 * cp.cuda.get_elapsed_time(begin_event, end_event) / calls_per_round)
    return is_correct, int(statistics.median(times_ns))
