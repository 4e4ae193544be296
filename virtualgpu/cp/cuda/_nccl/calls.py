"""NCCL calls of a rank, with their data types and reduction operations, and NCCL's error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from virtualgpu.cuda_errors import _PicklableError
from virtualgpu.model.links.rings import RingCall
from virtualgpu.model.machine import VirtualDevice

CallName = RingCall | Literal["send", "recv", "commSplit", "barrier"]
SUM_OP, PROD_OP, MAX_OP, MIN_OP, AVG_OP = range(5)
OP_NAMES = ("sum", "prod", "max", "min", "avg")
BFLOAT16_DTYPE = 9
# Types by NCCL's numbers: name in messages, name in kernels, and NumPy's type (for bfloat16, of its bits).
NCCL_DTYPES: tuple[tuple[str, str, type[np.generic]], ...] = (
    ("int8", "i8", np.int8),
    ("uint8", "u8", np.uint8),
    ("int32", "i32", np.int32),
    ("uint32", "u32", np.uint32),
    ("int64", "i64", np.int64),
    ("uint64", "u64", np.uint64),
    ("float16", "f16", np.float16),
    ("float32", "f32", np.float32),
    ("float64", "f64", np.float64),
    ("bfloat16", "bf16", np.uint16),
)
REDUCING_CALLS = ("allReduce", "reduce", "reduceScatter")
ROOTED_CALLS = ("reduce", "broadcast")
_KERNEL_NAMES = {
    "allReduce": "AllReduce",
    "reduce": "Reduce",
    "broadcast": "Broadcast",
    "reduceScatter": "ReduceScatter",
    "allGather": "AllGather",
}
_STATUS_TEXTS = {
    1: ("NCCL_ERROR_UNHANDLED_CUDA_ERROR", "unhandled cuda error (run with NCCL_DEBUG=INFO for details)"),
    2: ("NCCL_ERROR_SYSTEM_ERROR", "unhandled system error (run with NCCL_DEBUG=INFO for details)"),
    3: ("NCCL_ERROR_INTERNAL_ERROR", "internal error - please report this issue to the NCCL developers"),
    4: ("NCCL_ERROR_INVALID_ARGUMENT", "invalid argument (run with NCCL_DEBUG=WARN for details)"),
    5: ("NCCL_ERROR_INVALID_USAGE", "invalid usage (run with NCCL_DEBUG=WARN for details)"),
    6: (
        "NCCL_ERROR_REMOTE_ERROR",
        "remote process exited or there was a network error",
    ),
}
UNHANDLED_CUDA_STATUS = 1
INVALID_ARGUMENT_STATUS = 4
INVALID_USAGE_STATUS = 5
REMOTE_STATUS = 6


class NcclError(_PicklableError, RuntimeError):
    """Error raised by NCCL functions, with CuPy's class name. The attribute ``status`` is NCCL's error code.

    The message ends with `reason`.
    """

    def __init__(self, status: int, reason: str = "") -> None:
        name, status_text = _STATUS_TEXTS.get(status, ("NCCL_ERROR_SUCCESS", "no error"))
        super().__init__(f"{name}: {status_text}" + (f". {reason}" if reason else ""))
        self.status = status


@dataclass(eq=False, slots=True)
class CommunicatorMember:
    """A rank in a communicator, with its device and its calling thread."""

    rank: int
    device: VirtualDevice
    thread: Any
    has_called: bool = False  # whether a call has shown that this thread acts for the rank
    end_state: str = ""  # "destroyed" or "aborted"


@dataclass(eq=False, slots=True)
class NcclCall:
    """A record of one rank's call of an NCCL function. The field ``other_rank`` is the root rank of a
    collective or the peer of `send` or `recv`.
    """

    name: CallName
    member: CommunicatorMember
    count: int = 0
    dtype: int = 1
    op: int | None = None
    other_rank: int | None = None
    send_address: int = 0
    receive_address: int = 0
    stream: int = 0
    split_data: Any = None  # for commSplit: color and key, later the new clique and member
    arrays: tuple[Any, Any] = ((), ())  # the arrays that it reads and writes
    is_done: bool = False
    group_token: Any = None  # identifies the group of the call

    @property
    def kernel_key(self) -> tuple[object, ...]:
        """Key that is equal for all calls of a group that share one kernel."""
        return self.name, self.dtype, self.op, self.group_token

    @property
    def rank(self) -> int:
        return self.member.rank

    @property
    def signature(self) -> tuple[object, ...]:
        """Properties of the NCCL call that must be equal in all ranks."""
        return self.name, self.count, self.dtype, self.op, self.other_rank

    @property
    def item_bytes(self) -> int:
        return np.dtype(NCCL_DTYPES[self.dtype][2]).itemsize

    @property
    def description(self) -> str:
        """Description of the NCCL call in words, such as ``allReduce(1000 x float32, sum)``."""
        if self.name in ("commSplit", "barrier"):
            return self.name
        description_parts = [f"{self.count:,} x {NCCL_DTYPES[self.dtype][0]}"]
        if self.op is not None:
            description_parts.append(OP_NAMES[self.op])
        if self.other_rank is not None:
            description_parts.append(f"{'root' if self.name in ROOTED_CALLS else 'peer'} {self.other_rank}")
        return f"{self.name}({', '.join(description_parts)})"

    @property
    def kernel_name(self) -> str:
        """Name of the NCCL kernel that executes the call."""
        if self.name not in _KERNEL_NAMES:
            return "ncclDevKernel_SendRecv"
        op_and_type_suffix = (
            f"_{OP_NAMES[self.op].capitalize()}_{NCCL_DTYPES[self.dtype][1]}" if self.op is not None else ""
        )
        return f"ncclDevKernel_{_KERNEL_NAMES[self.name]}{op_and_type_suffix}_RING_LL"


@dataclass(eq=False, slots=True)
class ExchangeBatch:
    """A batch of pending sends and receives that one rank started in a group."""

    calls: list[NcclCall] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return not self.calls

    @property
    def description(self) -> str:
        return " and ".join(call.description for call in self.calls)


QueuedItem = NcclCall | ExchangeBatch
