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

    With `whole_block`, all warps of the block are traced, and `max_steps` limits their total number of steps.
    The record contains `steps`, the warp's `accesses` to memory, its `fragments`, or several of these.
    """

    block_index: Dim3 = (0, 0, 0)
    warp_index: int = 0
    max_steps: int = 20_000
    whole_block: bool = False
    steps: bool = True
    accesses: bool = False
    fragments: bool = False


class TraceBuffers:
    """The memory that a trace is written to. Each step needs 570 bytes, but pages that are never written use
    no memory.

    `max_steps` bounds the steps of traced warps; with `others` there is room for stores by other warps.
    ``stopped`` means that the block was stopped because it ran too long.
    """

    def __init__(self, max_steps: int, others: bool) -> None:
        step_capacity = max_steps * (1 + _OTHER_WARPS_FACTOR * others)
        self.max_steps = max_steps
        self.all_steps = np.zeros(max(step_capacity, 1), layout.TRACE_STEP)
        self.all_rows = np.zeros(_ROWS_PER_STEP * step_capacity + _SPARE_ROWS, layout.TRACE_ROW)
        self.steps = self.all_steps[:0]
        self.rows = self.all_rows[:0]
        self.truncated = False
        self.stopped = False
        self.shared_address = 0
        self.shared_bytes = 0
        self.shared: npt.NDArray[np.uint8] | None = None

    def fields(self) -> dict[str, int]:
        """Return the initial values of the fields of the context record that control a trace."""
        step_records = self.all_steps
        row_buffer = self.all_rows
        return {
            "trace_cursor": step_records.ctypes.data,
            "trace_end": step_records.ctypes.data + step_records.nbytes,
            "trace_left": self.max_steps,
            "trace_rows": row_buffer.ctypes.data,
            "trace_rows_end": row_buffer.ctypes.data + row_buffer.nbytes,
        }

    def read(self, context_record: Any, shared: npt.NDArray[np.uint8]) -> None:
        """Copy the recorded steps from the memory that the generated code has written."""
        step_count = self._filled_rows(context_record, "trace_cursor", self.all_steps)
        if not step_count:
            return  # another worker ran the traced block
        self.steps = self.all_steps[:step_count]
        rows = self.all_rows[: self._filled_rows(context_record, "trace_rows", self.all_rows)]
        # The last step is incomplete if the rows were exhausted.
        self.rows = rows[rows["step"] < len(self.steps)]
        self.truncated = bool(context_record["truncated"]) or self.stopped
        self.shared_address = int(context_record["shared"])
        self.shared_bytes = shared.size
        if context_record["block_linear"] == context_record["trace_block"]:
            self.shared = shared.copy()

    def note_reduction(
        self,
        context_record: Any,
        warp: int,
        function: int,
        pc: int,
        lanes: npt.NDArray[np.bool_],
        result: int,
    ) -> None:
        """Store the result of a barrier reduction in the trace steps at which lanes arrived."""
        step_records = self.all_steps[: self._filled_rows(context_record, "trace_cursor", self.all_steps)]
        pending_mask = int(np.bitwise_or.reduce(np.flatnonzero(lanes) * 0 + (1 << np.flatnonzero(lanes))))
        is_barrier_step = (
            (step_records["warp"] == warp)
            & (step_records["function"] == function)
            & (step_records["pc"] == pc)
        )
        for step_index in np.flatnonzero(is_barrier_step)[::-1].tolist():
            row_index = self._filled_rows(context_record, "trace_rows", self.all_rows)
            arrived_mask = int(step_records["executed"][step_index]) & pending_mask
            if not pending_mask or row_index >= len(self.all_rows):
                return
            if arrived_mask:
                row_record = self.all_rows[row_index : row_index + 1]
                row_record["step"], row_record["kind"], row_record["mask"] = (
                    step_index,
                    layout.ROW_REGISTER,
                    arrived_mask,
                )
                row_record["lanes"] = result
                context_record["trace_rows"] += self.all_rows.itemsize
                pending_mask &= ~arrived_mask

    @staticmethod
    def _filled_rows(context_record: Any, cursor: str, buffer: npt.NDArray[Any]) -> int:
        return (int(context_record[cursor]) - buffer.ctypes.data) // buffer.itemsize
