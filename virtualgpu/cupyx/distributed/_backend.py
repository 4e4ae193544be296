"""Process groups and their calls, under CuPy's names; a rank is a thread here, not a process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp.cuda import nccl
from virtualgpu.cp.cuda._nccl.cliques import Clique, group, world
from virtualgpu.cp.cuda.stream import get_current_stream

_HOST = "127.0.0.1"
_PORT = 13333
_DTYPES = {
    "b": nccl.NCCL_INT8,
    "B": nccl.NCCL_UINT8,
    "i": nccl.NCCL_INT32,
    "I": nccl.NCCL_UINT32,
    "l": nccl.NCCL_INT64,
    "L": nccl.NCCL_UINT64,
    "q": nccl.NCCL_INT64,
    "Q": nccl.NCCL_UINT64,
    "e": nccl.NCCL_FLOAT16,
    "f": nccl.NCCL_FLOAT32,
    "d": nccl.NCCL_FLOAT64,
    "F": nccl.NCCL_FLOAT32,
    "D": nccl.NCCL_FLOAT64,  # as twice as many
}
_OPS = {"sum": nccl.NCCL_SUM, "prod": nccl.NCCL_PROD, "max": nccl.NCCL_MAX, "min": nccl.NCCL_MIN}


def init_process_group(
    n_devices: int,
    rank: int,
    *,
    backend: str = "nccl",
    host: str | None = None,
    port: int | None = None,
    use_mpi: bool = False,
) -> NCCLBackend:
    """The communicator of one rank, on the current device; waits for the others.

    Parameters
    ----------
    n_devices, rank : int
        How many ranks, and which this is. Each is a thread of this process that has called
        ``cp.cuda.Device(rank).use()``.
    backend : str
        ``"nccl"``.
    host, port
        Tell groups apart; no connection is made. By default as the variables ``CUPYX_DISTRIBUTED_HOST`` and
        ``CUPYX_DISTRIBUTED_PORT`` say.
    use_mpi : bool
        Has no influence.

    Examples
    --------
    >>> def rank(r):
    ...     cp.cuda.Device(r).use()
    ...     comm = cupyx.distributed.init_process_group(2, r)
    ...     x = cp.full(4, r + 1.0)
    ...     comm.all_reduce(x, x)
    >>> threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
    """
    if n_devices <= 0:
        raise ValueError(f"Invalid number of devices {n_devices}")
    if not 0 <= rank < n_devices:
        raise ValueError(f"Invalid number of rank {rank} {n_devices}")
    if backend != "nccl":
        raise ValueError(f"{backend} is not supported")
    if host is None:
        host = os.environ.get("CUPYX_DISTRIBUTED_HOST", _HOST)
    if port is None:
        port = int(os.environ.get("CUPYX_DISTRIBUTED_PORT", _PORT))
    return NCCLBackend(n_devices, rank, host, port, use_mpi)


class NCCLBackend:
    """One rank of a process group; parameters as of `init_process_group`.

    Raises
    ------
    NcclError
        If ranks do not come, or do not fit together.
    """

    def __init__(
        self, n_devices: int, rank: int, host: str = _HOST, port: int = _PORT, use_mpi: bool = False
    ) -> None:
        self._n_devices = n_devices
        self.rank = rank
        self._comm = nccl.NcclCommunicator(n_devices, _meeting(n_devices, rank, host, port), rank)

    # Of all ranks

    def all_reduce(self, in_array: Any, out_array: Any, op: str = "sum", stream: Any = None) -> None:
        """Give all ranks the sum (``"prod"``, ``"max"``, ``"min"``) of their arrays."""
        _contiguous(in_array, out_array)
        dtype, count = _numbers(in_array)
        self._comm.allReduce(
            in_array.data.ptr, out_array.data.ptr, count, dtype, _op(op, in_array), _stream(stream)
        )

    def reduce(
        self, in_array: Any, out_array: Any, root: int = 0, op: str = "sum", stream: Any = None
    ) -> None:
        """Give rank `root` the sum of all ranks' arrays."""
        _contiguous(in_array, *([out_array] if self.rank == root else []))
        dtype, count = _numbers(in_array)
        self._comm.reduce(
            in_array.data.ptr, out_array.data.ptr, count, dtype, _op(op, in_array), root, _stream(stream)
        )

    def broadcast(self, in_out_array: Any, root: int = 0, stream: Any = None) -> None:
        """Give all ranks what rank `root` has."""
        _contiguous(in_out_array)
        dtype, count = _numbers(in_out_array)
        self._comm.broadcast(
            in_out_array.data.ptr, in_out_array.data.ptr, count, dtype, root, _stream(stream)
        )

    def reduce_scatter(
        self, in_array: Any, out_array: Any, count: int, op: str = "sum", stream: Any = None
    ) -> None:
        """Give each rank `count` elements of the sum of all ranks' arrays."""
        _contiguous(in_array, out_array)
        dtype, count = _numbers(in_array, count)
        self._comm.reduceScatter(
            in_array.data.ptr, out_array.data.ptr, count, dtype, _op(op, in_array), _stream(stream)
        )

    def all_gather(self, in_array: Any, out_array: Any, count: int, stream: Any = None) -> None:
        """Give all ranks `count` elements of each, one behind the other."""
        _contiguous(in_array, out_array)
        dtype, count = _numbers(in_array, count)
        self._comm.allGather(in_array.data.ptr, out_array.data.ptr, count, dtype, _stream(stream))

    # From rank to rank

    def send(self, array: Any, peer: int, stream: Any = None) -> None:
        """Send to rank `peer`, which receives."""
        _contiguous(array)
        self._send(array, peer, _stream(stream))

    def recv(self, out_array: Any, peer: int, stream: Any = None) -> None:
        """Receive what rank `peer` sends."""
        _contiguous(out_array)
        self._recv(out_array, peer, _stream(stream))

    def send_recv(self, in_array: Any, out_array: Any, peer: int, stream: Any = None) -> None:
        """Send to rank `peer`, and receive from it at once."""
        _contiguous(in_array, out_array)
        self._grouped([(in_array, peer)], [(out_array, peer)], stream)

    def scatter(self, in_array: Any, out_array: Any, root: int = 0, stream: Any = None) -> None:
        """Give each rank its row of what rank `root` has."""
        self._rows("scatter", "in_array", in_array)
        _contiguous(in_array, out_array)
        sends = [(row, peer) for peer, row in enumerate(in_array)] if self.rank == root else []
        self._grouped(sends, [(out_array, root)], stream)

    def gather(self, in_array: Any, out_array: Any, root: int = 0, stream: Any = None) -> None:
        """Give rank `root` the arrays of all, as rows."""
        self._rows("gather", "out_array", out_array)
        _contiguous(in_array, out_array)
        receives = [(row, peer) for peer, row in enumerate(out_array)] if self.rank == root else []
        self._grouped([(in_array, root)], receives, stream)

    def all_to_all(self, in_array: Any, out_array: Any, stream: Any = None) -> None:
        """Give rank r row r of each rank's array, as rows."""
        self._rows("all_to_all", "in_array", in_array)
        self._rows("all_to_all", "out_array", out_array)
        _contiguous(in_array, out_array)
        sends, receives = ([(row, peer) for peer, row in enumerate(a)] for a in (in_array, out_array))
        self._grouped(sends, receives, stream)

    def barrier(self) -> None:
        """Let the host's threads wait for each other."""
        self._comm._barrier()

    def stop(self) -> None:
        """End what rank 0 keeps for the others to meet by: nothing here."""

    def _grouped(
        self, sends: Sequence[tuple[Any, int]], receives: Sequence[tuple[Any, int]], stream: Any
    ) -> None:
        handle = _stream(stream)
        mine = group()
        before = len(mine.calls)
        nccl.groupStart()
        try:
            for array, peer in sends:
                self._send(array, peer, handle)
            for array, peer in receives:
                self._recv(array, peer, handle)
        except Exception:
            mine.depth -= 1
            del mine.calls[before:]
            raise
        nccl.groupEnd()

    def _send(self, array: Any, peer: int, stream: int) -> None:
        dtype, count = _numbers(array)
        self._comm.send(array.data.ptr, count, dtype, peer, stream)

    def _recv(self, array: Any, peer: int, stream: int) -> None:
        dtype, count = _numbers(array)
        self._comm.recv(array.data.ptr, count, dtype, peer, stream)

    def _rows(self, call: str, which: str, array: Any) -> None:
        if not array.shape or array.shape[0] != self._n_devices:
            raise RuntimeError(
                f"{call} requires {which} to have {self._n_devices} elements in its first dimension, found "
                f"{array.shape}"
            )


def _meeting(n_devices: int, rank: int, host: str, port: int) -> bytes:
    """The id by which ranks that name one host and port meet; a new one once a group is complete."""
    everything = world()
    key = (host, port)
    with everything.changed:
        known = everything.groups.get(key)
        clique = None if known is None else everything.cliques.get(known)
        if known is None or clique is None or clique.complete or clique.broken is not None:
            known = everything.groups[key] = nccl.get_unique_id()
            everything.cliques[known] = Clique(n_devices)
        return known


def _numbers(array: Any, count: int | None = None) -> tuple[int, int]:
    """NCCL's type of an array's elements, and how many of that type; complex ones are two."""
    char = getattr(getattr(array, "dtype", None), "char", None)
    if not isinstance(array, ndarray):
        raise TypeError(
            f"cupyx.distributed takes arrays on a GPU, not {type(array).__name__}: cp.asarray(a)."
        )
    if char not in _DTYPES:
        raise TypeError(f"Unknown dtype {array.dtype} for NCCL")
    count = array.size if count is None else count
    return _DTYPES[char], 2 * count if char in "FD" else count


def _op(op: str, array: Any) -> int:
    if op not in _OPS:
        raise RuntimeError(f"Unknown op {op} for NCCL")
    if array.dtype.char in "FD" and op != "sum":
        raise ValueError("Only nccl.SUM is supported for complex arrays")
    return _OPS[op]


def _stream(stream: Any) -> int:
    return int((get_current_stream() if stream is None else stream).ptr)


def _contiguous(*arrays: Any) -> None:
    for array in arrays:
        if isinstance(array, ndarray) and not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise RuntimeError("NCCL requires arrays to be either c- or f-contiguous")
