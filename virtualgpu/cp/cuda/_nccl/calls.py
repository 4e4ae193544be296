"""Calls of ranks as values: their types, operations and sentences, and NCCL's error."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from virtualgpu.cuda_errors import _Sent
from virtualgpu.model.links.rings import RingCall
from virtualgpu.model.machine import VirtualDevice

CallName = RingCall | Literal["send", "recv", "commSplit", "barrier"]
SUM, PROD, MAX, MIN, AVG = range(5)
OPS = ("sum", "prod", "max", "min", "avg")
BFLOAT16 = 9
# By NCCL's numbers: name in messages, name in kernels, and NumPy's type (of bfloat16, its bits).
DTYPES: tuple[tuple[str, str, type[np.generic]], ...] = (
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
REDUCING = ("allReduce", "reduce", "reduceScatter")
ROOTED = ("reduce", "broadcast")
_KERNELS = {
    "allReduce": "AllReduce",
    "reduce": "Reduce",
    "broadcast": "Broadcast",
    "reduceScatter": "ReduceScatter",
    "allGather": "AllGather",
}
_STATUS = {
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
UNHANDLED_CUDA = 1
INVALID_ARGUMENT = 4
INVALID_USAGE = 5
REMOTE = 6


class NcclError(_Sent, RuntimeError):
    """Like ``cupy.cuda.nccl.NcclError``: ``status`` is NCCL's code; `why` says what to do."""

    def __init__(self, status: int, why: str = "") -> None:
        name, text = _STATUS.get(status, ("NCCL_ERROR_SUCCESS", "no error"))
        super().__init__(f"{name}: {text}" + (f". {why}" if why else ""))
        self.status = status


@dataclass(eq=False, slots=True)
class Member:
    """A rank of a communicator: its device, and the thread that acts for it."""

    rank: int
    device: VirtualDevice
    thread: Any
    used: bool = False  # whether that thread has called, so that it is known to act for this rank
    ended: str = ""  # "destroyed" or "aborted"


@dataclass(eq=False, slots=True)
class Call:
    """What a rank asks for. ``other`` is the root, or of `send` and `recv` the peer."""

    name: CallName
    member: Member
    count: int = 0
    dtype: int = 1
    op: int | None = None
    other: int | None = None
    send: int = 0
    recv: int = 0
    stream: int = 0
    given: Any = None  # of commSplit: color and key; then what came of it
    ends: tuple[Any, Any] = ((), ())  # the arrays that the pointers meant when it was called
    done: bool = False
    group: Any = None  # stands for the group that it was called in

    @property
    def kind(self) -> tuple[object, ...]:
        """What calls of one group have in common that share a kernel."""
        return self.name, self.dtype, self.op, self.group

    @property
    def rank(self) -> int:
        return self.member.rank

    @property
    def what(self) -> tuple[object, ...]:
        """What has to be the same for all ranks."""
        return self.name, self.count, self.dtype, self.op, self.other

    @property
    def item_bytes(self) -> int:
        return np.dtype(DTYPES[self.dtype][2]).itemsize

    @property
    def sentence(self) -> str:
        """Such as ``allReduce(1000 x float32, sum)``."""
        if self.name in ("commSplit", "barrier"):
            return self.name
        about = [f"{self.count:,} x {DTYPES[self.dtype][0]}"]
        if self.op is not None:
            about.append(OPS[self.op])
        if self.other is not None:
            about.append(f"{'root' if self.name in ROOTED else 'peer'} {self.other}")
        return f"{self.name}({', '.join(about)})"

    @property
    def kernel(self) -> str:
        """What NCCL calls its kernel."""
        if self.name not in _KERNELS:
            return "ncclDevKernel_SendRecv"
        about = f"_{OPS[self.op].capitalize()}_{DTYPES[self.dtype][1]}" if self.op is not None else ""
        return f"ncclDevKernel_{_KERNELS[self.name]}{about}_RING_LL"


@dataclass(eq=False, slots=True)
class Batch:
    """Sends and receives that a rank starts together; those that are over are gone from it."""

    calls: list[Call] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return not self.calls

    @property
    def sentence(self) -> str:
        return " and ".join(call.sentence for call in self.calls)


Item = Call | Batch
