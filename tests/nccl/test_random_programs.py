"""Random calls with a thread per rank, at random paces, against NumPy."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tests.nccl.conftest import Gpus
from virtualgpu import cp

nccl = cp.cuda.nccl
CALLS = ("all", "scattered", "gathered", "broadcast", "all to all", "round", "from 0 to 1", "host barrier")
DOUBLE = nccl.NCCL_DOUBLE


class Rank:
    """A rank that makes calls and knows the expected results."""

    def __init__(self, comm: Any, rank: int, ranks: int, barrier: threading.Barrier) -> None:
        self.comm = comm
        self.rank = rank
        self.ranks = ranks
        self.barrier = barrier

    def call(self, name: str, size: int, root: int, k: int) -> tuple[Any, Any]:
        """Make a call, and return its result and the expected one."""
        n = self.ranks
        r = self.rank
        c = self.comm
        hosts = [np.arange(size * n) * (j + 1.0) + k for j in range(n)]
        x = cp.asarray(hosts[r])
        y = cp.zeros(size * n)
        expected = np.zeros(size * n)
        send = x.data.ptr
        recv = y.data.ptr
        stream = cp.cuda.get_current_stream().ptr
        part = slice(r * size, (r + 1) * size)
        if name == "all":
            c.allReduce(send, recv, size * n, DOUBLE, nccl.NCCL_SUM, stream)
            expected = sum(hosts)
        elif name == "scattered":
            c.reduceScatter(send, recv, size, DOUBLE, nccl.NCCL_SUM, stream)
            expected[:size] = sum(hosts)[part]
        elif name == "gathered":
            c.allGather(send, recv, size, DOUBLE, stream)
            expected = np.concatenate([host[:size] for host in hosts])
        elif name == "broadcast":
            c.broadcast(send, recv, size * n, DOUBLE, root, stream)
            expected = hosts[root]
        elif name == "all to all":
            nccl.groupStart()
            for peer in range(n):
                c.send(send + 8 * size * peer, size, DOUBLE, peer, stream)
                c.recv(recv + 8 * size * peer, size, DOUBLE, peer, stream)
            nccl.groupEnd()
            expected = np.concatenate([host[part] for host in hosts])
        elif name == "round":
            nccl.groupStart()
            c.send(send, size * n, DOUBLE, (r + 1) % n, stream)
            c.recv(recv, size * n, DOUBLE, (r - 1) % n, stream)
            nccl.groupEnd()
            expected = hosts[(r - 1) % n]
        elif name == "from 0 to 1" and r == 0:
            c.send(send, size, DOUBLE, 1, stream)
        elif name == "from 0 to 1" and r == 1:
            c.recv(recv, size, DOUBLE, 0, stream)
            expected[:size] = hosts[0][:size]
        elif name == "host barrier":
            self.barrier.wait()
        return y.get(), expected


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_have_the_expected_results(gpus: Gpus, seed: int) -> None:
    draw = random.Random(seed)
    ranks = draw.choice([2, 3, 4, 8])
    gpus(ranks, draw.choice(["nvswitch", "pairs", "host"]))
    plan = [(draw.choice(CALLS), draw.randrange(1, 50), draw.randrange(ranks)) for _ in range(10)]
    comms = nccl.NcclCommunicator.initAll(ranks) if seed % 2 else None
    uid = nccl.get_unique_id()
    barrier = threading.Barrier(ranks)
    wrong: list[Any] = []

    def run(r: int) -> None:
        pace = random.Random(100 * seed + r)
        try:
            cp.cuda.Device(r).use()
            rank = Rank(comms[r] if comms else nccl.NcclCommunicator(ranks, uid, r), r, ranks, barrier)
            with cp.cuda.Stream(non_blocking=True):
                for k, (name, size, root) in enumerate(plan):
                    if pace.random() < 0.3:
                        time.sleep(0.003 * pace.random())
                    result, expected = rank.call(name, size, root, k)
                    if not np.array_equal(result, expected):
                        wrong.append((k, name, r))
        except Exception as error:
            wrong.append((r, error))
            barrier.abort()

    if seed % 4 < 2:
        with ThreadPoolExecutor(ranks) as pool:
            list(pool.map(run, range(ranks)))
    else:
        threads = [threading.Thread(target=run, args=(r,)) for r in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@pytest.mark.parametrize("order", ["last first", "random"])
def test_results_are_equal_for_all_valid_orders_of_streams(gpus: Gpus, order: str) -> None:
    machine = gpus(3)
    comms = nccl.NcclCommunicator.initAll(3)

    def program(ordered: bool) -> list[float]:
        arrays = []
        streams = []
        results = []
        for r in range(3):
            with cp.cuda.Device(r):
                streams.append(cp.cuda.Stream(non_blocking=True))
                with streams[r]:
                    arrays.append(cp.full(4, r + 1.0))
        nccl.groupStart()
        for r, comm in enumerate(comms):
            address = arrays[r].data.ptr
            comm.allReduce(address, address, 4, DOUBLE, nccl.NCCL_SUM, streams[r].ptr)
        nccl.groupEnd()
        for r in range(3):
            with cp.cuda.Device(r), streams[r] if ordered else cp.cuda.Stream(non_blocking=True):
                results.append(arrays[r] * 2)
        for r in range(3):
            cp.cuda.Device(r).synchronize()
        return [float(result.get()[0]) for result in results]

    unordered_results = []
    for seed in range(4):
        with machine.use_stream_order(order, seed):
            assert program(ordered=True) == [12, 12, 12]
        with machine.use_stream_order(order, seed):
            unordered_results.append(program(ordered=False))
    assert any(results != [12, 12, 12] for results in unordered_results), "a wait that lacks shows"
