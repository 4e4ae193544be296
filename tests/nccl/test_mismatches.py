"""Calls that do not match raise an error with ranks and calls, where NCCL would hang."""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from typing import Any

import numpy as np
import pytest

from tests.nccl.conftest import Gpus, in_threads, on
from virtualgpu import cp
from virtualgpu.cp.cuda._nccl import cliques
from virtualgpu.cupyx.distributed import init_process_group
from virtualgpu.model.machine import current

nccl = cp.cuda.nccl
F = nccl.NCCL_FLOAT
S = nccl.NCCL_SUM


def refused(call: Any, status: int, *words: str) -> str:
    """Check a call's error, and return its message."""
    with pytest.raises(nccl.NcclError) as error:
        call()
    text = str(error.value)
    assert error.value.status == status, text
    for word in words:
        assert word.lower() in text.lower(), text
    return text


def ring(count: int = 2) -> tuple[list[Any], list[Any]]:
    comms = nccl.NcclCommunicator.initAll(count)
    return comms, [on(n, lambda: cp.zeros(8, cp.float32)) for n in range(count)]


PAIRS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "count": (
        lambda c, p: c.allReduce(p, p, 8, F, S, 0),
        lambda c, p: c.allReduce(p, p, 7, F, S, 0),
        ("rank 0 calls allReduce(8 x float32, sum)", "rank 1 calls allReduce(7 x float32, sum)"),
    ),
    "dtype": (
        lambda c, p: c.allReduce(p, p, 8, F, S, 0),
        lambda c, p: c.allReduce(p, p, 8, nccl.NCCL_INT, S, 0),
        ("8 x float32", "8 x int32"),
    ),
    "op": (
        lambda c, p: c.reduce(p, p, 8, F, nccl.NCCL_MAX, 0, 0),
        lambda c, p: c.reduce(p, p, 8, F, nccl.NCCL_MIN, 0, 0),
        ("max", "min"),
    ),
    "root": (
        lambda c, p: c.broadcast(p, p, 8, F, 0, 0),
        lambda c, p: c.broadcast(p, p, 8, F, 1, 0),
        ("root 0", "root 1"),
    ),
    "call": (
        lambda c, p: c.allReduce(p, p, 8, F, S, 0),
        lambda c, p: c.broadcast(p, p, 8, F, 0, 0),
        ("rank 0 calls allReduce", "rank 1 calls broadcast"),
    ),
    "sent and received": (
        lambda c, p: c.send(p, 8, F, 1, 0),
        lambda c, p: c.recv(p, 4, F, 0, 0),
        ("rank 0 calls send(8 x float32, peer 1)", "rank 1 calls recv(4 x float32, peer 0)"),
    ),
    "two sends": (
        lambda c, p: c.send(p, 8, F, 1, 0),
        lambda c, p: c.send(p, 8, F, 0, 0),
        ("rank 0 waits in send", "rank 1 waits in send", "groupStart()"),
    ),
    "send and collective": (
        lambda c, p: c.send(p, 8, F, 1, 0),
        lambda c, p: c.allReduce(p, p, 8, F, S, 0),
        ("rank 0 calls send", "rank 1 calls allReduce"),
    ),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_mismatched_calls_in_a_group_are_refused(gpus: Gpus, kind: str) -> None:
    gpus()
    first, second, words = PAIRS[kind]
    comms, arrays = ring()
    nccl.groupStart()
    first(comms[0], arrays[0].data.ptr)
    second(comms[1], arrays[1].data.ptr)
    refused(nccl.groupEnd, 5, *words)
    # The group has ended, and errors of its communicators explain why they cannot be used.
    refused(nccl.groupEnd, 5, "without a groupStart")
    refused(comms[1].check_async_error, 5, *words, "new ones")
    refused(lambda: first(comms[0], arrays[0].data.ptr), 5, "new ones")


@pytest.mark.parametrize("kind", PAIRS)
def test_mismatched_calls_of_two_threads_are_refused(gpus: Gpus, kind: str) -> None:
    gpus()
    uid = nccl.get_unique_id()

    def rank(r: int) -> None:
        comm = nccl.NcclCommunicator(2, uid, r)
        x = cp.zeros(8, cp.float32)
        PAIRS[kind][r](comm, x.data.ptr)

    errors = in_threads(2, rank)
    assert [type(error) for error in errors] == [nccl.NcclError] * 2
    for word in PAIRS[kind][2]:
        # The thread that called second detects the mismatch; the error of each thread names the difference.
        assert all(word.lower() in str(error).lower() for error in errors), errors


def test_two_ranks_in_one_thread_need_a_group(gpus: Gpus) -> None:
    gpus()
    comms, arrays = ring()
    refused(
        lambda: comms[0].allReduce(arrays[0].data.ptr, arrays[0].data.ptr, 8, F, S, 0),
        5,
        "Rank 0 waits in allReduce(8 x float32, sum)",
        "rank 1 has not called",
        "groupStart()",
    )


def test_group_that_omits_a_rank_is_refused(gpus: Gpus) -> None:
    gpus(4)
    comms, arrays = ring(4)
    nccl.groupStart()
    for r in (0, 1, 3):
        comms[r].allReduce(arrays[r].data.ptr, arrays[r].data.ptr, 8, F, S, 0)
    refused(nccl.groupEnd, 5, "rank 2 has not called")


def dies(r: int, uid: bytes, last: int) -> None:
    comm = nccl.NcclCommunicator(3, uid, r)
    x = cp.zeros(8, cp.float32)
    comm.allReduce(x.data.ptr, x.data.ptr, 8, F, S, 0)
    if r == last:
        raise ZeroDivisionError
    comm.reduceScatter(x.data.ptr, x.data.ptr, 2, F, S, 0)


def test_rank_whose_thread_has_ended_is_reported(gpus: Gpus) -> None:
    gpus(3)
    uid = nccl.get_unique_id()
    errors = in_threads(3, lambda r: dies(r, uid, 1))
    assert isinstance(errors[1], ZeroDivisionError)
    for r in (0, 2):
        assert isinstance(errors[r], nccl.NcclError)
        assert "rank 1 has not called, and its thread (rank 1) has ended" in str(errors[r])
        assert "reduceScatter(2 x float32, sum)" in str(errors[r])
        assert errors[r].status == 6


def test_other_ranks_time_out_if_a_pool_task_fails(gpus: Gpus) -> None:
    """Its thread waits for the next task, so the others wait until the time limit."""
    gpus(3, watchdog_s=1)
    uid = nccl.get_unique_id()
    errors: list[Any] = []

    def rank(r: int) -> None:
        cp.cuda.Device(r).use()
        try:
            dies(r, uid, 2)
        except nccl.NcclError as error:
            errors.append(error)

    with ThreadPoolExecutor(3) as pool:
        tasks = [pool.submit(rank, r) for r in range(3)]
    assert isinstance(tasks[2].exception(), ZeroDivisionError)
    assert len(errors) == 2
    assert all("rank 2 has not called" in str(error) for error in errors)


@pytest.mark.parametrize("kind", ["daemons", "pool made before"])
def test_late_ranks_are_waited_for_in_all_types_of_threads(gpus: Gpus, kind: str) -> None:
    pool = ThreadPool(3) if kind == "pool made before" else None
    gpus(3)
    uid = nccl.get_unique_id()
    sums = [0.0] * 3

    def rank(r: int) -> None:
        cp.cuda.Device(r).use()
        comm = nccl.NcclCommunicator(3, uid, r)
        for late_rank in range(3):
            if r == late_rank:
                time.sleep(0.1)  # no bound: the others wait
            x = cp.ones(1, cp.float32)
            comm.allReduce(x.data.ptr, x.data.ptr, 1, F, S, 0)
            sums[r] += float(x[0])

    if pool is not None:
        with pool:
            pool.map(rank, range(3))
    else:
        threads = [threading.Thread(target=rank, args=(r,), daemon=True) for r in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sums == [9, 9, 9]


def test_a_rank_that_runs_a_long_kernel_is_waited_for(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread waits for the engine's worker threads."""
    monkeypatch.setattr(cliques, "_POLL_INTERVAL_S", 0.001)
    gpus()
    uid = nccl.get_unique_id()
    kernel = cp.RawKernel(
        r"""
        extern "C" __global__ void spin(float* x) {
            for (int i = 0; i < 20000; ++i) x[blockIdx.x * 32 + threadIdx.x] += 1;
        }""",
        "spin",
    )

    def rank(r: int) -> float:
        comm = nccl.NcclCommunicator(2, uid, r)
        x = cp.zeros(64 * 32, cp.float32)
        if r:
            kernel((64,), (32,), (x,))
        comm.broadcast(x.data.ptr, x.data.ptr, 1, F, 1, 0)
        return float(x[0])

    first, second = in_threads(2, rank)
    assert first == second == 20000


def test_initialization_without_all_ranks_is_refused(gpus: Gpus) -> None:
    gpus(2)
    uid = nccl.get_unique_id()
    text = refused(lambda: nccl.NcclCommunicator(2, uid, 0), 5, "rank 1 has not called")
    assert "Rank 0 waits in NcclCommunicator(2, id, 0)" in text
    assert "threads of one process, not processes" in text


def test_rank_that_exceeds_the_time_limit_is_reported(gpus: Gpus) -> None:
    gpus(2, watchdog_s=0.05)
    uid = nccl.get_unique_id()
    over = threading.Event()

    def rank(r: int) -> None:
        comm = nccl.NcclCommunicator(2, uid, r)
        if r:
            over.wait(60)
            return
        x = cp.zeros(8, cp.float32)
        try:
            comm.broadcast(x.data.ptr, x.data.ptr, 8, F, 1, 0)
        finally:
            over.set()

    error = in_threads(2, rank)[0]
    assert isinstance(error, nccl.NcclError)
    assert "rank 1 has not called within" in str(error)


def test_deadlock_of_two_communicators_is_reported(gpus: Gpus) -> None:
    """Each thread waits in one communicator for a rank whose thread waits in the other one."""
    gpus(watchdog_s=1000)
    ids = [nccl.get_unique_id() for _ in range(2)]

    def rank(r: int) -> None:
        comms = [nccl.NcclCommunicator(2, uid, r) for uid in ids]
        x = cp.zeros(8, cp.float32)
        for comm in comms if r else reversed(comms):
            comm.allReduce(x.data.ptr, x.data.ptr, 8, F, S, 0)

    for error in in_threads(2, rank):
        assert isinstance(error, nccl.NcclError)
        assert error.status == 5
        assert "of communicator 1 (this is communicator 2)" in str(error) or (
            "of communicator 2 (this is communicator 1)" in str(error)
        )
        assert "the same calls in the same order" in str(error)


def test_a_call_under_a_lock_is_reported(gpus: Gpus) -> None:
    """The other ranks wait for the lock; the error says where, after the time limit."""
    gpus(watchdog_s=0.3)
    lock = threading.Lock()
    uid = nccl.get_unique_id()

    def rank(r: int) -> None:
        comm = nccl.NcclCommunicator(2, uid, r)
        x = cp.zeros(8, cp.float32)
        with lock:
            comm.allReduce(x.data.ptr, x.data.ptr, 8, F, S, 0)

    for error in in_threads(2, rank):
        assert isinstance(error, nccl.NcclError)
        assert error.status == 6
        assert "lock" in str(error)
        assert f"line {rank.__code__.co_firstlineno + 3} of rank()" in str(error)


def test_a_rank_within_one_long_call_is_waited_for(gpus: Gpus) -> None:
    """The call takes longer than the time limit of kernels."""
    gpus(watchdog_s=0.3)
    uid = nccl.get_unique_id()

    def rank(r: int) -> float:
        comm = nccl.NcclCommunicator(2, uid, r)
        x = cp.ones(8, cp.float32)
        if r:
            time.sleep(0.6)
        comm.allReduce(x.data.ptr, x.data.ptr, 8, F, S, 0)
        return float(x[0])

    assert in_threads(2, rank) == [2, 2]


def test_more_ranks_than_gpus_are_refused(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is refused before anything is allocated per rank."""
    gpus()
    queues: list[Any] = []

    def queue() -> Any:
        queues.append(deque())
        assert len(queues) < 100
        return queues[-1]

    monkeypatch.setattr(cliques, "deque", queue)
    uid = nccl.get_unique_id()
    for many in (3, 10**9):
        for call in (
            lambda many=many: nccl.NcclCommunicator(many, uid, 0),
            lambda many=many: init_process_group(many, 0),
        ):
            text = refused(call, 4, f"{many:,} ranks need")
            assert "2 virtual GPUs" in text
        refused(lambda many=many: nccl.NcclCommunicator.initAll(many), 4, "Device 2 does not exist")


def test_call_with_an_aborted_rank_is_refused(gpus: Gpus) -> None:
    gpus()
    comms, arrays = ring()
    comms[1].abort()
    refused(comms[1].rank_id, 4, "was aborted")
    refused(
        lambda: comms[0].broadcast(arrays[0].data.ptr, arrays[0].data.ptr, 8, F, 0, 0),
        6,
        "Rank 0 waits in broadcast(8 x float32, root 0)",
        "rank 1 was aborted",
    )


def test_pointers_are_checked(gpus: Gpus) -> None:
    gpus()
    comms, arrays = ring()
    address, peer_address = (x.data.ptr for x in arrays)
    call = comms[0].allReduce
    refused(
        lambda: call(peer_address, address, 8, F, S, 0),
        1,
        "sendbuf",
        "memory of device 1",
        "rank's device is 0",
    )
    refused(
        lambda: call(address, address, 9, F, S, 0),
        1,
        "allReduce of rank 0: sendbuf (9 x float32",
        "only 8 elements",
    )
    refused(lambda: call(address, 0, 8, F, S, 0), 1, "recvbuf", "not in a live array")
    refused(lambda: call(address + 2, address, 4, F, S, 0), 1, "not aligned")
    refused(
        lambda: comms[0].allGather(address, address, 8, F, 0), 1, "recvbuf (16 x float32", "n times as long"
    )
    host = np.zeros(8, np.float32)
    refused(lambda: call(host.ctypes.data, address, 8, F, S, 0), 1, "not in a live array")
    stream = on(1, lambda: cp.cuda.Stream(non_blocking=True))
    refused(lambda: call(address, address, 8, F, S, stream.ptr), 1, "stream belongs to device 1")
    comms[0].check_async_error()  # nothing of it has harmed the others


def test_arguments_are_checked(gpus: Gpus) -> None:
    gpus()
    comms, arrays = ring()
    address = arrays[0].data.ptr
    refused(lambda: comms[0].allReduce(address, address, 8, 77, S, 0), 4, "77 is not a type")
    refused(lambda: comms[0].allReduce(address, address, 8, F, 9, 0), 4, "9 is not an operation")
    refused(lambda: comms[0].broadcast(address, address, 8, F, 2, 0), 4, "root 2 is not a rank", "0 to 1")
    refused(lambda: comms[0].send(address, 8, F, -1, 0), 4, "peer -1 is not a rank")
    with pytest.raises(OverflowError):
        comms[0].allReduce(address, address, -1, F, S, 0)
    with pytest.raises(TypeError, match="integer"):
        comms[0].allReduce(arrays[0], address, 8, F, S, 0)


def test_invalid_communicators_are_refused(gpus: Gpus) -> None:
    gpus()
    make = nccl.NcclCommunicator
    uid = nccl.get_unique_id()
    assert len(uid) == 128
    assert uid != nccl.get_unique_id()
    refused(lambda: make(2, uid, 2), 4, "Rank 2 is invalid")
    refused(lambda: make.initAll(3), 4, "Device 2 does not exist", "count=n")
    refused(lambda: make.initAll([0, 0]), 5, "Duplicate GPU: ranks 0 and 1")
    refused(lambda: make(1, bytes(128), 0), 5, "from another process")
    with pytest.raises(ValueError, match="commId length 10 != 128"):
        make(1, b"1234567890", 0)
    for wrong in (None, (1, 2, 3)):
        with pytest.raises(TypeError):
            make(1, wrong, 0)
    errors = in_threads(2, lambda _: (cp.cuda.Device(0).use(), make(2, uid, _))[1])
    assert all("are both on device 0" in str(error) for error in errors)
    comm = make(1, nccl.get_unique_id(), 0)
    comm.destroy()
    comm.destroy()
    refused(comm.size, 4, "was destroyed")


def test_a_capturing_stream_is_refused(gpus: Gpus) -> None:
    gpus(1)
    comm = nccl.NcclCommunicator.initAll(1)[0]
    x = cp.zeros(8, cp.float32)
    stream = cp.cuda.Stream(non_blocking=True)
    stream.begin_capture()
    refused(lambda: comm.allReduce(x.data.ptr, x.data.ptr, 8, F, S, stream.ptr), 5, "capturing a graph")
    stream.end_capture()


def test_errors_can_be_pickled(gpus: Gpus) -> None:
    error = nccl.NcclError(5, "why")
    duplicate = pickle.loads(pickle.dumps(error))
    assert (duplicate.status, str(duplicate)) == (5, str(error))
    assert str(nccl.NcclError(2)).startswith("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")


def test_communicators_are_invalid_after_a_device_change(gpus: Gpus) -> None:
    gpus()
    comm = nccl.NcclCommunicator.initAll(2)[0]
    nccl.groupStart()
    gpus()
    refused(comm.rank_id, 5, "no longer the selected device")
    refused(nccl.groupEnd, 5, "without a groupStart")  # the new machine knows of no group
    assert current().devices[0].work_queue.log == type(current().devices[0].work_queue.log)(maxlen=65536)
