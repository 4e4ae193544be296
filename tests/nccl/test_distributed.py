"""cupyx.distributed: CuPy's own tests, with threads in place of processes; and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.nccl.conftest import Gpus, in_threads
from virtualgpu import cp, cupyx

RANKS = 2
DTYPES = "bBiIlLqQefdFD"


def workers(rank: Callable[[Any, int], Any], count: int = RANKS) -> list[Any]:
    """Call a function of the communicator and the rank for each rank."""

    def run(number: int) -> Any:
        return rank(cupyx.distributed.init_process_group(count, number), number)

    results = in_threads(count, run)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("root", [0, 1])
def test_broadcast_and_reduce(gpus: Gpus, dtype: str, root: int) -> None:
    gpus(RANKS)
    expected = np.arange(24).astype(dtype).reshape(2, 3, 4)

    def rank(comm: Any, r: int) -> Any:
        x = cp.asarray(expected) if r == root else cp.zeros((2, 3, 4), dtype)
        comm.broadcast(x, root)
        total = cp.zeros((2, 3, 4), dtype)
        comm.reduce(x, total, root)
        both = cp.zeros((2, 3, 4), dtype)
        comm.all_reduce(x, both)
        return x.get(), total.get(), both.get()

    for r, (x, total, both) in enumerate(workers(rank)):
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(total, 2 * expected if r == root else 0 * expected)
        np.testing.assert_array_equal(both, 2 * expected)


def test_scatter_and_gather(gpus: Gpus) -> None:
    gpus(3)

    def rank(comm: Any, r: int) -> Any:
        rows = 1 + cp.arange(30, dtype="f").reshape(3, 10)
        summed = cp.zeros(10, "f")
        part = cp.zeros(10, "f")
        comm.reduce_scatter(rows, summed, 10)
        comm.scatter(rows, part, 1)
        whole = cp.zeros((3, 10), "f")
        at_root = cp.zeros((3, 10), "f")
        comm.all_gather((r + 1) * cp.arange(10, dtype="f"), whole, 10)
        comm.gather((r + 1) * cp.arange(10, dtype="f"), at_root, 2)
        turned = cp.zeros((3, 10), "f")
        comm.all_to_all(rows + 100 * r, turned)
        comm.barrier()
        return [x.get() for x in (summed, part, whole, at_root, turned)]

    rows = 1 + np.arange(30, dtype="f").reshape(3, 10)
    products = np.arange(1, 4)[:, None] * np.arange(10, dtype="f")
    for r, (summed, part, whole, at_root, turned) in enumerate(workers(rank, 3)):
        np.testing.assert_array_equal(summed, 3 * rows[r])
        np.testing.assert_array_equal(part, rows[r])
        np.testing.assert_array_equal(whole, products)
        np.testing.assert_array_equal(at_root, products if r == 2 else 0 * products)
        np.testing.assert_array_equal(turned, [rows[r] + 100 * other for other in range(3)])


def test_send_and_receive(gpus: Gpus) -> None:
    gpus(RANKS)

    def rank(comm: Any, r: int) -> Any:
        x = cp.full(10, r + 1.0)
        y = cp.zeros(10)
        z = cp.zeros(10)
        if r == 0:
            comm.send(x, 1)
        else:
            comm.recv(y, 0)
        with cp.cuda.Stream(non_blocking=True) as stream:
            comm.send_recv(x, z, 1 - r, stream)
            stream.synchronize()
        comm.send_recv(x, x, r)  # to itself
        return y.get()[0], z.get()[0], x.get()[0]

    assert workers(rank) == [(0, 2, 1), (1, 1, 2)]


def test_process_groups_in_sequence_and_in_parallel(gpus: Gpus) -> None:
    gpus(4)

    def rank(r: int) -> Any:
        results = []
        for n in range(3):
            pair = cupyx.distributed.init_process_group(2, r % 2, port=1000 + r // 2)
            x = cp.full(1, 10 * n + r, cp.int64)
            pair.all_reduce(x, x, "max")
            results.append(int(x[0]))
            pair.barrier()
            pair.stop()
        return results

    assert in_threads(4, rank) == [[1, 11, 21], [1, 11, 21], [3, 13, 23], [3, 13, 23]]


def test_invalid_groups_and_calls_are_refused(gpus: Gpus) -> None:
    gpus(1)
    comm = cupyx.distributed.init_process_group(1, 0)
    x = cp.zeros((1, 4, 4), "f")
    for wrong, error, words in (
        (lambda: cupyx.distributed.init_process_group(0, 0), ValueError, "number of devices"),
        (lambda: cupyx.distributed.init_process_group(1, 1), ValueError, "number of rank"),
        (lambda: cupyx.distributed.init_process_group(1, 0, backend="gloo"), ValueError, "not supported"),
        (lambda: comm.all_reduce(x.astype(bool), x), TypeError, "Unknown dtype bool"),
        (lambda: comm.all_reduce(x.get(), x), TypeError, "cp.asarray"),
        (lambda: comm.all_reduce(x[:, ::2, ::2], x), RuntimeError, "contiguous"),
        (lambda: comm.all_reduce(x, x, "mean"), RuntimeError, "Unknown op mean"),
        (lambda: comm.all_reduce(x.astype("F"), x, "max"), ValueError, "complex"),
        (lambda: comm.scatter(x[0], x[0]), RuntimeError, "first dimension"),
        (lambda: comm.scatter(x, x.astype(bool)[0]), TypeError, "Unknown dtype"),
    ):
        with pytest.raises(error, match=words):
            wrong()
    comm.scatter(x + 1, x[0])  # nothing of a group is left over
    assert float(x.sum()) == 16
    with pytest.raises(AttributeError, match=r"distributed has no 'array': create one part per virtual GPU"):
        cupyx.distributed.array  # noqa: B018
