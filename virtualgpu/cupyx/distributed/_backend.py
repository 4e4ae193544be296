"""Process groups for NCCL calls, under CuPy's names; here a rank is a thread, not a process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from virtualgpu.cp._core.array import ndarray
from virtualgpu.cp.cuda import nccl
from virtualgpu.cp.cuda._nccl.cliques import Clique, get_thread_group, get_world
from virtualgpu.cp.cuda.stream import get_current_stream

_DEFAULT_HOST = "127.0.0.1"
_DEFAULT_PORT = 13333
_NCCL_DTYPES = {
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
    "D": nccl.NCCL_FLOAT64,  # two elements each
}
_NCCL_OPS = {"sum": nccl.NCCL_SUM, "prod": nccl.NCCL_PROD, "max": nccl.NCCL_MAX, "min": nccl.NCCL_MIN}


def init_process_group(
    n_devices: int,
    rank: int,
    *,
    backend: str = "nccl",
    host: str | None = None,
    port: int | None = None,
    use_mpi: bool = False,
) -> NCCLBackend:
    """Wait for the other ranks, and return this rank's communicator on the current device.

    Parameters
    ----------
    n_devices, rank : int
        Number of ranks, and the number of this rank. Each rank is a thread of this process that has called
        ``cp.cuda.Device(rank).use()``.
    backend : str
        ``"nccl"``.
    host, port
        Names that identify the group; no connection is made. The defaults are in the environment variables
        ``CUPYX_DISTRIBUTED_HOST`` and ``CUPYX_DISTRIBUTED_PORT``.
    use_mpi : bool
        Has no effect.

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
        host = os.environ.get("CUPYX_DISTRIBUTED_HOST", _DEFAULT_HOST)
    if port is None:
        port = int(os.environ.get("CUPYX_DISTRIBUTED_PORT", _DEFAULT_PORT))
    return NCCLBackend(n_devices, rank, host, port, use_mpi)


class NCCLBackend:
    """The communicator of one rank in a process group. The parameters are the same as those of
    `init_process_group`.

    Raises
    ------
    NcclError
        If ranks are missing or have different arguments.
    """

    def __init__(
        self,
        n_devices: int,
        rank: int,
        host: str = _DEFAULT_HOST,
        port: int = _DEFAULT_PORT,
        use_mpi: bool = False,
    ) -> None:
        self._n_devices = n_devices
        self.rank = rank
        self._comm = nccl.NcclCommunicator(n_devices, _get_group_id(n_devices, rank, host, port), rank)

    # Collective calls

    def all_reduce(self, in_array: Any, out_array: Any, op: str = "sum", stream: Any = None) -> None:
        """Reduce the arrays of all ranks with `op`, by default a sum, and write the result to every rank."""
        _check_contiguous(in_array, out_array)
        dtype, element_count = _find_dtype_and_count(in_array)
        self._comm.allReduce(
            in_array.data.ptr,
            out_array.data.ptr,
            element_count,
            dtype,
            _find_op(op, in_array),
            _get_stream_handle(stream),
        )

    def reduce(
        self, in_array: Any, out_array: Any, root: int = 0, op: str = "sum", stream: Any = None
    ) -> None:
        """Reduce the arrays of all ranks with `op`, by default a sum, and write the result to rank `root`."""
        _check_contiguous(in_array, *([out_array] if self.rank == root else []))
        dtype, element_count = _find_dtype_and_count(in_array)
        self._comm.reduce(
            in_array.data.ptr,
            out_array.data.ptr,
            element_count,
            dtype,
            _find_op(op, in_array),
            root,
            _get_stream_handle(stream),
        )

    def broadcast(self, in_out_array: Any, root: int = 0, stream: Any = None) -> None:
        """Copy the array of rank `root` to all ranks."""
        _check_contiguous(in_out_array)
        dtype, element_count = _find_dtype_and_count(in_out_array)
        self._comm.broadcast(
            in_out_array.data.ptr,
            in_out_array.data.ptr,
            element_count,
            dtype,
            root,
            _get_stream_handle(stream),
        )

    def reduce_scatter(
        self, in_array: Any, out_array: Any, count: int, op: str = "sum", stream: Any = None
    ) -> None:
        """Reduce the arrays of all ranks with `op`, by default a sum, and write `count` elements of the
        result to each rank.
        """
        _check_contiguous(in_array, out_array)
        dtype, count = _find_dtype_and_count(in_array, count)
        self._comm.reduceScatter(
            in_array.data.ptr,
            out_array.data.ptr,
            count,
            dtype,
            _find_op(op, in_array),
            _get_stream_handle(stream),
        )

    def all_gather(self, in_array: Any, out_array: Any, count: int, stream: Any = None) -> None:
        """Copy `count` elements of every rank to all ranks, in the order of the ranks."""
        _check_contiguous(in_array, out_array)
        dtype, count = _find_dtype_and_count(in_array, count)
        self._comm.allGather(in_array.data.ptr, out_array.data.ptr, count, dtype, _get_stream_handle(stream))

    # Point-to-point calls

    def send(self, array: Any, peer: int, stream: Any = None) -> None:
        """Send an array to rank `peer`, which must call `recv`."""
        _check_contiguous(array)
        self._send(array, peer, _get_stream_handle(stream))

    def recv(self, out_array: Any, peer: int, stream: Any = None) -> None:
        """Receive an array from rank `peer`, which must call `send`."""
        _check_contiguous(out_array)
        self._recv(out_array, peer, _get_stream_handle(stream))

    def send_recv(self, in_array: Any, out_array: Any, peer: int, stream: Any = None) -> None:
        """Send an array to rank `peer`, and receive one from it at the same time."""
        _check_contiguous(in_array, out_array)
        self._run_grouped([(in_array, peer)], [(out_array, peer)], stream)

    def scatter(self, in_array: Any, out_array: Any, root: int = 0, stream: Any = None) -> None:
        """Send one row of rank `root`'s array to each rank."""
        self._check_rows("scatter", "in_array", in_array)
        _check_contiguous(in_array, out_array)
        send_rows = [(row, peer) for peer, row in enumerate(in_array)] if self.rank == root else []
        self._run_grouped(send_rows, [(out_array, root)], stream)

    def gather(self, in_array: Any, out_array: Any, root: int = 0, stream: Any = None) -> None:
        """Collect the arrays of all ranks as the rows of an array in rank `root`."""
        self._check_rows("gather", "out_array", out_array)
        _check_contiguous(in_array, out_array)
        receive_rows = [(row, peer) for peer, row in enumerate(out_array)] if self.rank == root else []
        self._run_grouped([(in_array, root)], receive_rows, stream)

    def all_to_all(self, in_array: Any, out_array: Any, stream: Any = None) -> None:
        """Send row r of every rank's array to rank r. Each rank stores the rows that it receives in
        ``out_array``.
        """
        self._check_rows("all_to_all", "in_array", in_array)
        self._check_rows("all_to_all", "out_array", out_array)
        _check_contiguous(in_array, out_array)
        sends, receives = ([(row, peer) for peer, row in enumerate(a)] for a in (in_array, out_array))
        self._run_grouped(sends, receives, stream)

    def barrier(self) -> None:
        """Wait until the threads of all ranks have called this method."""
        self._comm._barrier()

    def stop(self) -> None:
        """Do nothing. In CuPy, this method stops a server of rank 0, which the virtual GPU does not need."""

    def _run_grouped(
        self, sends: Sequence[tuple[Any, int]], receives: Sequence[tuple[Any, int]], stream: Any
    ) -> None:
        handle = _get_stream_handle(stream)
        thread_group = get_thread_group()
        call_count = len(thread_group.calls)
        nccl.groupStart()
        try:
            for array, peer in sends:
                self._send(array, peer, handle)
            for array, peer in receives:
                self._recv(array, peer, handle)
        except Exception:
            thread_group.nesting_depth -= 1
            del thread_group.calls[call_count:]
            raise
        nccl.groupEnd()

    def _send(self, array: Any, peer: int, stream: int) -> None:
        dtype, element_count = _find_dtype_and_count(array)
        self._comm.send(array.data.ptr, element_count, dtype, peer, stream)

    def _recv(self, array: Any, peer: int, stream: int) -> None:
        dtype, element_count = _find_dtype_and_count(array)
        self._comm.recv(array.data.ptr, element_count, dtype, peer, stream)

    def _check_rows(self, call_name: str, parameter: str, array: Any) -> None:
        if not array.shape or array.shape[0] != self._n_devices:
            raise RuntimeError(
                f"{call_name} requires {parameter} to have {self._n_devices} elements "
                f"in its first dimension, found {array.shape}"
            )


def _get_group_id(n_devices: int, rank: int, host: str, port: int) -> bytes:
    """Return the id shared by the ranks with this host and port, or a new id if their group is complete."""
    nccl_world = get_world()
    key = (host, port)
    with nccl_world.change_condition:
        unique_id = nccl_world.group_ids.get(key)
        clique = None if unique_id is None else nccl_world.cliques.get(unique_id)
        if unique_id is None or clique is None or clique.is_complete or clique.error is not None:
            unique_id = nccl_world.group_ids[key] = nccl.get_unique_id()
            nccl_world.cliques[unique_id] = Clique(n_devices)
        return unique_id


def _find_dtype_and_count(array: Any, count: int | None = None) -> tuple[int, int]:
    """Return NCCL's data type and the number of elements of an array; complex elements count twice."""
    dtype_char = getattr(getattr(array, "dtype", None), "char", None)
    if not isinstance(array, ndarray):
        raise TypeError(
            f"cupyx.distributed takes arrays on a GPU, not {type(array).__name__}. "
            "Convert the array with cp.asarray(a)."
        )
    if dtype_char not in _NCCL_DTYPES:
        raise TypeError(f"Unknown dtype {array.dtype} for NCCL")
    count = array.size if count is None else count
    return _NCCL_DTYPES[dtype_char], 2 * count if dtype_char in "FD" else count


def _find_op(op: str, array: Any) -> int:
    if op not in _NCCL_OPS:
        raise RuntimeError(f"Unknown op {op} for NCCL")
    if array.dtype.char in "FD" and op != "sum":
        raise ValueError("Only nccl.SUM is supported for complex arrays")
    return _NCCL_OPS[op]


def _get_stream_handle(stream: Any) -> int:
    return int((get_current_stream() if stream is None else stream).ptr)


def _check_contiguous(*arrays: Any) -> None:
    for array in arrays:
        if isinstance(array, ndarray) and not (array.flags.c_contiguous or array.flags.f_contiguous):
            raise RuntimeError("NCCL requires arrays to be either c- or f-contiguous")
