"""``cp.cuda.nccl``: communicators of virtual GPUs, under CuPy's names and with NCCL's rules.

All ranks are in one process: one thread for all (`NcclCommunicator.initAll`, with calls of several ranks
between `groupStart` and `groupEnd`), or one thread per rank (`get_unique_id`). Data are really moved and
added, in the order of a ring. Times are modelled for a ring over the machine's links, from records of two
H200, extrapolated beyond two (`virtualgpu.model.cost.collectives`). The traffic of each port is recorded.
Where NCCL hangs, because a rank is missing or makes another call, an `NcclError` names the rank and the
call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, SupportsIndex

from virtualgpu.cp._missing_names import make_module_getattr
from virtualgpu.cp.cuda._nccl import work
from virtualgpu.cp.cuda._nccl.calls import (
    INVALID_ARGUMENT_STATUS,
    INVALID_USAGE_STATUS,
    NCCL_DTYPES,
    OP_NAMES,
    CallName,
    CommunicatorMember,
    NcclCall,
    NcclError,
)
from virtualgpu.cp.cuda._nccl.cliques import (
    GROUP_REMEDY,
    THREAD_REMEDY,
    Clique,
    get_thread_group,
    get_world,
    leave_communicator,
    run_calls,
)
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

_NCCL_VERSION = 22809
_ID_BYTES = 128
_ID_PREFIX = b"virtual NCCL"


def get_version() -> int:
    """Return the version number of the NCCL that the virtual GPU emulates, such as 22809 for 2.28.9."""
    return _NCCL_VERSION


def get_build_version() -> int:
    """Return the same NCCL version number as `get_version`."""
    return _NCCL_VERSION


def get_unique_id() -> bytes:
    """Return a new id of 128 bytes for a communicator. All ranks of the communicator share this id."""
    id_number = next(get_world().id_numbers)
    unique_id = _ID_PREFIX + os.getpid().to_bytes(8, "little") + id_number.to_bytes(8, "little")
    return unique_id.ljust(_ID_BYTES, b"\0")


def groupStart() -> None:  # noqa: N802 - CuPy's name
    """Start a group of NCCL calls in this thread. The calls run together after `groupEnd`, and groups can be
    nested.
    """
    get_thread_group().nesting_depth += 1


def groupEnd() -> None:  # noqa: N802 - CuPy's name
    """End a group of NCCL calls, and run all of its calls together.

    Raises
    ------
    NcclError
        Status 5 without a `groupStart`; also the errors of the calls.
    """
    thread_group = get_thread_group()
    if not thread_group.nesting_depth:
        raise NcclError(INVALID_USAGE_STATUS, "groupEnd() without a groupStart() before it, in this thread.")
    thread_group.nesting_depth -= 1
    if thread_group.nesting_depth:
        return
    calls = thread_group.calls
    thread_group.calls = []
    new_members = thread_group.new_members
    thread_group.new_members = []
    for clique, member in new_members:
        _wait_for_ranks(clique, member)
    run_calls(calls)


class NcclConfig:
    """Options for a communicator. The virtual GPU stores the options, but they have no effect."""

    def __init__(self, split_share: int = 0) -> None:
        self.split_share = split_share


class NcclCommunicator:
    """One rank of an NCCL communicator, on the device that is current during its creation.

    The constructor waits until all ranks have been created, in separate threads or in one group.

    Parameters
    ----------
    ndev : int
        Number of ranks.
    commId : bytes
        The id that one rank got from `get_unique_id`.
    rank : int
        Number of this rank.
    config : NcclConfig, optional
        Has no effect.

    Raises
    ------
    NcclError
        Status 4 for an invalid rank, 5 for two ranks on one device, 6 if ranks are missing.
    """

    def __init__(self, ndev: int, commId: bytes, rank: int, config: NcclConfig | None = None) -> None:  # noqa: N803
        if not isinstance(commId, bytes):
            raise TypeError(
                f"Argument 'commId' has incorrect type (expected bytes, got {type(commId).__name__}). Pass "
                "the value that get_unique_id() returned."
            )
        if len(commId) != _ID_BYTES:
            raise ValueError(f"commId length {len(commId)} != {_ID_BYTES}.")
        ndev = _convert_index(ndev)
        rank = _convert_index(rank)
        if not 0 <= rank < ndev:
            raise NcclError(
                INVALID_ARGUMENT_STATUS, f"Rank {rank} is invalid: the {ndev} ranks are 0 to {ndev - 1}."
            )
        if not commId.startswith(_ID_PREFIX + os.getpid().to_bytes(8, "little")):
            raise NcclError(
                INVALID_USAGE_STATUS,
                f"This id comes from another process. {THREAD_REMEDY}, or use NcclCommunicator.initAll(n).",
            )
        nccl_world = get_world()
        device = current().current_device
        with nccl_world.change_condition:
            clique = nccl_world.cliques.get(commId)
            if clique is None:
                clique = nccl_world.cliques[commId] = Clique(ndev)
            if clique.error is not None:
                raise clique.make_repeated_error()
            member = clique.join(rank, ndev, device)
            self._bind_member(clique, member)
            if get_thread_group().nesting_depth:
                get_thread_group().new_members.append((clique, member))
                return
        _wait_for_ranks(clique, member)

    def _bind_member(self, clique: Clique, member: CommunicatorMember) -> None:
        self._clique = clique
        self._member = member

    @staticmethod
    def initAll(devices: int | list[int]) -> list[NcclCommunicator]:  # noqa: N802 - CuPy's name
        """Return one communicator for each of several devices. A single thread can make the calls of all
        these communicators.

        Parameters
        ----------
        devices : int or list of int
            Number of devices, or a list of device numbers.

        Raises
        ------
        NcclError
            Status 4 for devices that do not exist, 5 for a device that is listed twice.
        """
        machine = current()
        device_count = len(machine.devices)
        if isinstance(devices, int) and not isinstance(devices, bool):
            device_ids = list(
                range(min(devices, device_count + 1))
            )  # the error names the first missing device
        elif isinstance(devices, list):
            device_ids = [_convert_index(device_id) for device_id in devices]
        else:
            raise ValueError('"devices" should be an int or a list of int.')
        invalid_numbers = [device_id for device_id in device_ids if not 0 <= device_id < device_count]
        if invalid_numbers or not device_ids:
            problem_text = (
                f"Device {invalid_numbers[0]} does not exist"
                if invalid_numbers
                else "A communicator needs a device"
            )
            raise NcclError(
                INVALID_ARGUMENT_STATUS,
                f"{problem_text}: this machine has {device_count}. Call use_device(name, "
                "count=n) for more virtual GPUs.",
            )
        nccl_world = get_world()
        with nccl_world.change_condition:
            clique = Clique(len(device_ids))
            comms = []
            for rank, device_id in enumerate(device_ids):
                comm = NcclCommunicator.__new__(NcclCommunicator)
                comm._bind_member(
                    clique, clique.join(rank, len(device_ids), machine.devices[device_id], has_called=False)
                )
                comms.append(comm)
        return comms

    # Properties

    @property
    def comm(self) -> int:
        """Handle of the communicator, or 0 after it has been destroyed."""
        return 0 if self._member.end_state else id(self._member)

    def device_id(self) -> int:
        """Return the number of the device that this rank uses."""
        return self._get_live_member().device.id

    def rank_id(self) -> int:
        """Return the number of this rank."""
        return self._get_live_member().rank

    def size(self) -> int:
        """Return the number of ranks in the communicator."""
        self._get_live_member()
        return self._clique.size

    def destroy(self) -> None:
        """Destroy the communicator."""
        self._leave_communicator("destroyed")

    def abort(self) -> None:
        """Destroy the communicator at once. Ranks that wait for this rank raise an error."""
        self._leave_communicator("aborted")

    def _leave_communicator(self, end_state: str) -> None:
        if not self._member.end_state:
            leave_communicator(self._member, self._clique, end_state)

    def __del__(self) -> None:
        if hasattr(self, "_member"):
            self._leave_communicator("destroyed")

    def check_async_error(self) -> None:
        """Raise the error that made the communicator unusable, if there is one."""
        self._get_live_member()
        if self._clique.error is not None:
            raise self._clique.make_repeated_error()

    def commSplit(self, color: int, key: int, config: NcclConfig | None = None) -> NcclCommunicator | None:  # noqa: N802
        """Return a communicator for the ranks with the same color, ordered by key. For the color -1, the
        result is None.

        All ranks call it, each in its own thread.
        """
        if get_thread_group().nesting_depth:
            raise NcclError(
                INVALID_USAGE_STATUS,
                "commSplit cannot return a communicator inside a group. Call it outside the group.",
            )
        call = NcclCall(
            "commSplit", self._get_live_member(), split_data=(_convert_index(color), _convert_index(key))
        )
        run_calls([(self._clique, call)])
        if call.split_data is None:
            return None
        comm = NcclCommunicator.__new__(NcclCommunicator)
        comm._bind_member(*call.split_data)
        return comm

    # Calls

    def allReduce(self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int) -> None:  # noqa: N802
        """Reduce the arrays of all ranks with `op`, such as a sum, and write the result to every rank."""
        self._run_call("allReduce", sendbuf, recvbuf, count, datatype, stream, op=op)

    def reduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, root: int, stream: int
    ) -> None:
        """Reduce the arrays of all ranks with `op`, such as a sum, and write the result to rank `root`."""
        self._run_call("reduce", sendbuf, recvbuf, count, datatype, stream, op=op, other_rank=root)

    def broadcast(
        self, sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, stream: int
    ) -> None:
        """Copy the array of rank `root` to all ranks."""
        self._run_call("broadcast", sendbuff, recvbuff, count, datatype, stream, other_rank=root)

    def bcast(self, buff: int, count: int, datatype: int, root: int, stream: int) -> None:
        """Copy the array of rank `root` to all ranks, in place."""
        self._run_call("broadcast", buff, buff, count, datatype, stream, other_rank=root)

    def reduceScatter(  # noqa: N802
        self, sendbuf: int, recvbuf: int, recvcount: int, datatype: int, op: int, stream: int
    ) -> None:
        """Reduce the arrays of all ranks with `op`, and distribute the result in equal parts to the ranks.

        Each part contains `recvcount` elements.
        """
        self._run_call("reduceScatter", sendbuf, recvbuf, recvcount, datatype, stream, op=op)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:  # noqa: N802
        """Collect `count` elements from every rank, and copy all of them to each rank in rank order."""
        self._run_call("allGather", sendbuf, recvbuf, count, datatype, stream)

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Send `count` elements to rank `peer`, which must call `recv`."""
        self._run_call("send", sendbuf, 0, count, datatype, stream, other_rank=peer)

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        """Receive `count` elements from rank `peer`, which must call `send`."""
        self._run_call("recv", 0, recvbuf, count, datatype, stream, other_rank=peer)

    def _barrier(self) -> None:
        run_calls([(self._clique, NcclCall("barrier", self._get_live_member()))])

    def _run_call(
        self,
        name: CallName,
        send_address: int,
        receive_address: int,
        count: int,
        datatype: int,
        stream: int,
        op: int | None = None,
        other_rank: int | None = None,
    ) -> None:
        member = self._get_live_member()
        count = _convert_index(count)
        datatype = _convert_index(datatype)
        stream = _convert_index(stream)
        error_subject = f"{name} of rank {member.rank}"
        if count < 0:
            raise OverflowError("can't convert negative value to size_t")
        if not 0 <= datatype < len(NCCL_DTYPES):
            raise NcclError(
                INVALID_ARGUMENT_STATUS,
                f"{error_subject}: {datatype} is not a type; write NCCL_FLOAT32, for example.",
            )
        if op is not None and not 0 <= _convert_index(op) < len(OP_NAMES):
            raise NcclError(
                INVALID_ARGUMENT_STATUS,
                f"{error_subject}: {op} is not an operation; write NCCL_SUM, for example.",
            )
        if other_rank is not None and not 0 <= _convert_index(other_rank) < self._clique.size:
            rank_role = "peer" if name in ("send", "recv") else "root"
            raise NcclError(
                INVALID_ARGUMENT_STATUS,
                f"{error_subject}: {rank_role} {other_rank} is not a rank; ranks are 0 to "
                f"{self._clique.size - 1}.",
            )
        call = NcclCall(
            name,
            member,
            count,
            datatype,
            None if op is None else _convert_index(op),
            None if other_rank is None else _convert_index(other_rank),
            _convert_index(send_address),
            _convert_index(receive_address),
            stream,
        )
        if self._clique.error is not None:
            raise self._clique.make_repeated_error()
        work.check_call(call, self._clique.size)
        thread_group = get_thread_group()
        if thread_group.nesting_depth:
            thread_group.calls.append((self._clique, call))
        else:
            run_calls([(self._clique, call)])

    def _get_live_member(self) -> CommunicatorMember:
        if self._member.device.machine is not current():
            raise NcclError(
                INVALID_USAGE_STATUS,
                f"This communicator belongs to {self._member.device.info.name}, which is "
                "no longer the selected device. Create a new one.",
            )
        if self._member.end_state:
            raise NcclError(
                INVALID_ARGUMENT_STATUS, f"This communicator was {self._member.end_state}: create a new one."
            )
        return self._member


def _wait_for_ranks(clique: Clique, member: CommunicatorMember) -> None:
    """Wait until all ranks have joined."""
    with clique.world.change_condition:
        clique.wait_for_ranks(
            lambda: clique.is_complete,
            f"rank {member.rank} waits in NcclCommunicator({clique.size}, id, {member.rank})",
            lambda: [rank for rank in range(clique.size) if rank not in clique.members],
            f"{THREAD_REMEDY}, or use NcclCommunicator.initAll(n)",
        )


def _convert_index(value: SupportsIndex) -> int:
    if isinstance(value, int):
        return int(value)
    index: Callable[[], int] | None = getattr(value, "__index__", None)
    if index is None:
        raise TypeError(f"an integer is required, not {type(value).__name__}")
    return index()


_raise_missing_name = make_module_getattr(
    "cp.cuda.nccl", globals(), {"allReduce": f"it is a method of NcclCommunicator. {GROUP_REMEDY}"}
)


def __getattr__(name: str) -> Any:
    return _raise_missing_name(name)
