"""``cp.cuda.nccl``: communicators of virtual GPUs, under CuPy's names and with NCCL's rules.

Ranks live in one process: one thread for all (`NcclCommunicator.initAll`, calls of several ranks between
`groupStart` and `groupEnd`), or a thread a rank (`get_unique_id`). Data are really moved and added, in the
order of a ring. Times are modelled: a ring over the machine's links, from records of two H200, extrapolated
beyond two (`virtualgpu.model.cost.collectives`); what passes each port is recorded. Where NCCL hangs, because
a rank is missing or calls something else, an `NcclError` says which rank and which call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, SupportsIndex

from virtualgpu.cp._missing_names import module_getattr
from virtualgpu.cp.cuda._nccl import work
from virtualgpu.cp.cuda._nccl.calls import (
    DTYPES,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    OPS,
    Call,
    CallName,
    Member,
    NcclError,
)
from virtualgpu.cp.cuda._nccl.cliques import GROUPED, THREADS, Clique, give, group, leave, world
from virtualgpu.model.machine import current

__all__ = [
    "NcclCommunicator",
    "NcclConfig",
    "NcclError",
    "available",
    "get_build_version",
    "get_unique_id",
    "get_version",
    "groupEnd",
    "groupStart",
]

available = True

NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = range(5)
NCCL_INT8 = NCCL_CHAR = 0
NCCL_UINT8 = 1
NCCL_INT32 = NCCL_INT = 2
NCCL_UINT32 = 3
NCCL_INT64 = 4
NCCL_UINT64 = 5
NCCL_FLOAT16 = NCCL_HALF = 6
NCCL_FLOAT32 = NCCL_FLOAT = 7
NCCL_FLOAT64 = NCCL_DOUBLE = 8
NCCL_BFLOAT16 = 9

_VERSION = 22809
_ID_BYTES = 128
_ID_WORD = b"virtual NCCL"


def get_version() -> int:
    """The version of NCCL that the virtual one follows: 2.28.9 as 22809."""
    return _VERSION


def get_build_version() -> int:
    """See `get_version`."""
    return _VERSION


def get_unique_id() -> bytes:
    """A new id, 128 bytes, by which the ranks of one communicator find each other."""
    number = next(world().numbers)
    known = _ID_WORD + os.getpid().to_bytes(8, "little") + number.to_bytes(8, "little")
    return known.ljust(_ID_BYTES, b"\0")


def groupStart() -> None:  # noqa: N802 - CuPy's name
    """Start a group: calls of this thread until `groupEnd` begin together. Groups may be nested."""
    group().depth += 1


def groupEnd() -> None:  # noqa: N802 - CuPy's name
    """End a group, and begin its calls.

    Raises
    ------
    NcclError
        Status 5 without a `groupStart`; and whatever one of the calls raises.
    """
    mine = group()
    if not mine.depth:
        raise NcclError(INVALID_USAGE, "groupEnd() without a groupStart() before it, in this thread.")
    mine.depth -= 1
    if mine.depth:
        return
    calls = mine.calls
    mine.calls = []
    joined = mine.joined
    mine.joined = []
    for clique, member in joined:
        _meet(clique, member)
    give(calls)


class NcclConfig:
    """How a communicator is made; the virtual NCCL keeps what it is given, and heeds none of it."""

    def __init__(self, split_share: int = 0) -> None:
        self.split_share = split_share


class NcclCommunicator:
    """One rank of a communicator, on the current device.

    Waits until all ranks have come; each in a thread of its own, or all within one group.

    Parameters
    ----------
    ndev : int
        How many ranks.
    commId : bytes
        What one of them got from `get_unique_id`.
    rank : int
        Which of them this is.
    config : NcclConfig, optional
        Has no influence.

    Raises
    ------
    NcclError
        Status 4 for a rank that cannot be, 5 for two ranks on one device, 6 if ranks do not come.
    """

    def __init__(self, ndev: int, commId: bytes, rank: int, config: NcclConfig | None = None) -> None:  # noqa: N803
        if not isinstance(commId, bytes):
            raise TypeError(
                f"Argument 'commId' has incorrect type (expected bytes, got {type(commId).__name__}): pass "
                "what get_unique_id() gave."
            )
        if len(commId) != _ID_BYTES:
            raise ValueError(f"commId length {len(commId)} != {_ID_BYTES}.")
        ndev = _whole(ndev)
        rank = _whole(rank)
        if not 0 <= rank < ndev:
            raise NcclError(INVALID_ARGUMENT, f"Rank {rank} of {ndev} cannot be: ranks are 0 to {ndev - 1}.")
        if not commId.startswith(_ID_WORD + os.getpid().to_bytes(8, "little")):
            raise NcclError(
                INVALID_USAGE,
                f"This id is not of this process. {THREADS}, or take NcclCommunicator.initAll(n).",
            )
        everything = world()
        device = current().current_device
        with everything.changed:
            clique = everything.cliques.get(commId)
            if clique is None:
                clique = everything.cliques[commId] = Clique(ndev)
            if clique.broken is not None:
                raise clique.again()
            member = clique.join(rank, ndev, device)
            self._is(clique, member)
            if group().depth:
                group().joined.append((clique, member))
                return
        _meet(clique, member)

    def _is(self, clique: Clique, member: Member) -> None:
        self._clique = clique
        self._member = member

    @staticmethod
    def initAll(devices: int | list[int]) -> list[NcclCommunicator]:  # noqa: N802 - CuPy's name
        """Communicators of several devices, for one thread.

        Parameters
        ----------
        devices : int or list of int
            The first so many devices, or these.

        Raises
        ------
        NcclError
            Status 4 for devices that are not there, 5 for one that is named twice.
        """
        machine = current()
        there = len(machine.devices)
        if isinstance(devices, int) and not isinstance(devices, bool):
            numbers = list(range(min(devices, there + 1)))  # the first that is not there is named
        elif isinstance(devices, list):
            numbers = [_whole(number) for number in devices]
        else:
            raise ValueError('"devices" should be an int or a list of int.')
        absent = [number for number in numbers if not 0 <= number < there]
        if absent or not numbers:
            what = f"Device {absent[0]} is not there" if absent else "A communicator needs a device"
            raise NcclError(
                INVALID_ARGUMENT,
                f"{what}: this machine has {there}. gl.use_device(name, count=n) gives it more virtual GPUs.",
            )
        everything = world()
        with everything.changed:
            clique = Clique(len(numbers))
            comms = []
            for rank, number in enumerate(numbers):
                comm = NcclCommunicator.__new__(NcclCommunicator)
                comm._is(clique, clique.join(rank, len(numbers), machine.devices[number], used=False))
                comms.append(comm)
        return comms

    # What it is

    @property
    def comm(self) -> int:
        """Its handle; 0 once it is destroyed."""
        return 0 if self._member.ended else id(self._member)

    def device_id(self) -> int:
        """Number of its device."""
        return self._alive().device.id

    def rank_id(self) -> int:
        """Its rank."""
        return self._alive().rank

    def size(self) -> int:
        """How many ranks there are."""
        self._alive()
        return self._clique.size

    def destroy(self) -> None:
        """End it; what it was given has run."""
        self._leave("destroyed")

    def abort(self) -> None:
        """End it at once; other ranks that wait for it get an error."""
        self._leave("aborted")

    def _leave(self, how: str) -> None:
        if not self._member.ended:
            leave(self._member, self._clique, how)

    def __del__(self) -> None:
        if hasattr(self, "_member"):
            self._leave("destroyed")

    def check_async_error(self) -> None:
        """Raise what has broken the communicator, if anything has."""
        self._alive()
        if self._clique.broken is not None:
            raise self._clique.again()

    def commSplit(self, color: int, key: int, config: NcclConfig | None = None) -> NcclCommunicator | None:  # noqa: N802
        """A communicator of the ranks with this color, ordered by key; None for color -1.

        All ranks call it, each in a thread of its own.
        """
        if group().depth:
            raise NcclError(INVALID_USAGE, "commSplit within a group gives nothing back: call it outside.")
        call = Call("commSplit", self._alive(), given=(_whole(color), _whole(key)))
        give([(self._clique, call)])
        if call.given is None:
            return None
        comm = NcclCommunicator.__new__(NcclCommunicator)
        comm._is(*call.given)
        return comm

    # Calls

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:  # noqa: N802
        """Give all ranks the sum (or what `op` is) of their arrays."""
        self._call("allReduce", sendbuf, recvbuf, count, datatype, stream, op=op)

    def reduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int
    ) -> None:
        """Give rank `root` the sum (or what `op` is) of all ranks' arrays."""
        self._call("reduce", sendbuf, recvbuf, count, datatype, stream, op=op, other=root)

    def broadcast(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int
    ) -> None:
        """Give all ranks what rank `root` has."""
        self._call("broadcast", sendbuff, recvbuff, count, datatype, stream, other=root)

    def bcast(self, buff: int, count: int, datatype: int, root: int, stream: int) -> None:
        """`broadcast` in place."""
        self._call("broadcast", buff, buff, count, datatype, stream, other=root)

    def reduceScatter(  # noqa: N802
        self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int
    ) -> None:
        """Give each rank its `recvcount` elements of the sum (or what `op` is) of all ranks' arrays."""
        self._call("reduceScatter", sendbuf, recvbuf, recvcount, datatype, stream, op=op)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:  # noqa: N802
        """Give all ranks all arrays, one behind the other: `count` elements of each."""
        self._call("allGather", sendbuf, recvbuf, count, datatype, stream)

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Send to rank `peer`, which receives."""
        self._call("send", sendbuf, 0, count, datatype, stream, other=peer)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Receive what rank `peer` sends."""
        self._call("recv", 0, recvbuf, count, datatype, stream, other=peer)

    def _barrier(self) -> None:
        give([(self._clique, Call("barrier", self._alive()))])

    def _call(
        self,
        name: CallName,
        send: int,
        recv: int,
        count: int,
        datatype: int,
        stream: int,
        op: int | None = None,
        other: int | None = None,
    ) -> None:
        member = self._alive()
        count = _whole(count)
        datatype = _whole(datatype)
        stream = _whole(stream)
        where = f"{name} of rank {member.rank}"
        if count < 0:
            raise OverflowError("can't convert negative value to size_t")
        if not 0 <= datatype < len(DTYPES):
            raise NcclError(INVALID_ARGUMENT, f"{where}: {datatype} is no type; take NCCL_FLOAT32, say.")
        if op is not None and not 0 <= _whole(op) < len(OPS):
            raise NcclError(INVALID_ARGUMENT, f"{where}: {op} is no operation; take NCCL_SUM, say.")
        if other is not None and not 0 <= _whole(other) < self._clique.size:
            what = "peer" if name in ("send", "recv") else "root"
            raise NcclError(
                INVALID_ARGUMENT,
                f"{where}: {what} {other} is no rank; they are 0 to {self._clique.size - 1}.",
            )
        call = Call(
            name,
            member,
            count,
            datatype,
            None if op is None else _whole(op),
            None if other is None else _whole(other),
            _whole(send),
            _whole(recv),
            stream,
        )
        if self._clique.broken is not None:
            raise self._clique.again()
        work.check(call, self._clique.size)
        mine = group()
        if mine.depth:
            mine.calls.append((self._clique, call))
        else:
            give([(self._clique, call)])

    def _alive(self) -> Member:
        if self._member.device.machine is not current():
            raise NcclError(
                INVALID_USAGE,
                f"This communicator is of {self._member.device.info.name}, which is no longer the selected "
                "device: make a new one.",
            )
        if self._member.ended:
            raise NcclError(INVALID_ARGUMENT, f"This communicator was {self._member.ended}: make a new one.")
        return self._member


def _meet(clique: Clique, member: Member) -> None:
    """Wait until all ranks have come."""
    with clique.world.changed:
        clique.wait(
            lambda: clique.complete,
            f"rank {member.rank} waits in NcclCommunicator({clique.size}, id, {member.rank})",
            lambda: [rank for rank in range(clique.size) if rank not in clique.members],
            f"{THREADS}, or take NcclCommunicator.initAll(n)",
        )


def _whole(value: SupportsIndex) -> int:
    if isinstance(value, int):
        return int(value)
    index: Callable[[], int] | None = getattr(value, "__index__", None)
    if index is None:
        raise TypeError(f"an integer is required, not {type(value).__name__}")
    return index()


_explain = module_getattr(
    "cp.cuda.nccl", globals(), {"allReduce": f"it is a method of NcclCommunicator. {GROUPED}"}
)


def __getattr__(name: str) -> Any:
    return _explain(name)
