"""Requests for a trace, and its buffers: a record for each step, and rows of 32 lanes for its effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir import layout
from virtualgpu.records import Dim3

# A store takes three rows (device address, host address, bits), most instructions one.
_ROWS_PER_STEP = 2
_SPARE_ROWS = 256
# Room for stores to shared memory by the other warps of the block, in multiples of the traced warp's steps.
_OTHER_WARPS_FACTOR = 4


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """A request for a trace, with the warp or block to trace and the maximum number of steps.

    If `is_whole_block` is true, all warps of the block are traced, and `max_steps` limits their total number
    of steps. The flags `with_steps`, `with_accesses` (to memory) and `with_fragments` select the contents of
    the record.
    """

    block_index: Dim3 = (0, 0, 0)
    warp_index: int = 0
    max_steps: int = 20_000
    is_whole_block: bool = False
    with_steps: bool = True
    with_accesses: bool = False
    with_fragments: bool = False


class TraceBuffers:
    """The memory that a trace is written to. Each step needs 570 bytes, but pages that are never written use
    no memory.

    `max_steps` limits the steps of traced warps. `with_other_warps` adds room for stores by other warps.
    ``is_stopped`` means that the block was stopped because it ran too long.
    """

    def __init__(self, max_steps: int, with_other_warps: bool) -> None:
        step_capacity = max_steps * (1 + _OTHER_WARPS_FACTOR * with_other_warps)
        self.max_steps = max_steps
        self.step_buffer = np.zeros(max(step_capacity, 1), layout.TRACE_STEP)
        self.trace_row_buffer = np.zeros(_ROWS_PER_STEP * step_capacity + _SPARE_ROWS, layout.TRACE_ROW)
        self.steps = self.step_buffer[:0]
        self.rows = self.trace_row_buffer[:0]
        self.truncated = False
        self.is_stopped = False
        self.shared_address = 0
        self.shared_bytes = 0
        self.shared: npt.NDArray[np.uint8] | None = None

    def make_initial_fields(self) -> dict[str, int]:
        """Return the initial values of the fields of the context record that control a trace."""
        step_records = self.step_buffer
        row_buffer = self.trace_row_buffer
        return {
            "trace_cursor": step_records.ctypes.data,
            "trace_end": step_records.ctypes.data + step_records.nbytes,
            "trace_left": self.max_steps,
            "trace_rows": row_buffer.ctypes.data,
            "trace_rows_end": row_buffer.ctypes.data + row_buffer.nbytes,
        }

    def read(self, context_record: Any, shared: npt.NDArray[np.uint8]) -> None:
        """Copy the recorded steps from the memory that the generated code has written."""
        step_count = self._count_filled_rows(context_record, "trace_cursor", self.step_buffer)
        if not step_count:
            return  # another worker ran the traced block
        self.steps = self.step_buffer[:step_count]
        rows = self.trace_row_buffer[
            : self._count_filled_rows(context_record, "trace_rows", self.trace_row_buffer)
        ]
        # The last step is incomplete if the rows were exhausted.
        self.rows = rows[rows["step"] < len(self.steps)]
        self.truncated = bool(context_record["truncated"]) or self.is_stopped
        self.shared_address = int(context_record["shared"])
        self.shared_bytes = shared.size
        if context_record["block_linear"] == context_record["trace_block"]:
            self.shared = shared.copy()

    def record_reduction(
        self,
        context_record: Any,
        warp: int,
        function: int,
        pc: int,
        lanes: npt.NDArray[np.bool_],
        result: int,
    ) -> None:
        """Store the result of a barrier reduction in the trace steps at which lanes arrived."""
        step_records = self.step_buffer[
            : self._count_filled_rows(context_record, "trace_cursor", self.step_buffer)
        ]
        pending_mask = int(np.bitwise_or.reduce(np.flatnonzero(lanes) * 0 + (1 << np.flatnonzero(lanes))))
        is_barrier_step = (
            (step_records["warp"] == warp)
            & (step_records["function"] == function)
            & (step_records["pc"] == pc)
        )
        for step_index in np.flatnonzero(is_barrier_step)[::-1].tolist():
            row_index = self._count_filled_rows(context_record, "trace_rows", self.trace_row_buffer)
            arrived_mask = int(step_records["executed"][step_index]) & pending_mask
            if not pending_mask or row_index >= len(self.trace_row_buffer):
                return
            if arrived_mask:
                row_record = self.trace_row_buffer[row_index : row_index + 1]
                row_record["step"], row_record["kind"], row_record["mask"] = (
                    step_index,
                    layout.ROW_REGISTER,
                    arrived_mask,
                )
                row_record["lanes"] = result
                context_record["trace_rows"] += self.trace_row_buffer.itemsize
                pending_mask &= ~arrived_mask

    @staticmethod
    def _count_filled_rows(context_record: Any, cursor: str, buffer: npt.NDArray[Any]) -> int:
        return (int(context_record[cursor]) - buffer.ctypes.data) // buffer.itemsize
