"""What is to be traced, and the buffers it fills: a short record a step, rows of 32 lanes for what it did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from virtualgpu.engine.ir import layout
from virtualgpu.records import Dim3

# A store takes three rows (address, place, bits), most instructions one.
_ROWS_A_STEP = 2
_SPARE_ROWS = 256
# Beside the steps of a warp, stores to shared memory by the others of its block.
_OTHERS = 4


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Which warp of a launch to trace, and how many steps to keep at most.

    With `whole_block` all warps of the block are traced; `max_steps` then bounds all of them together.
    `steps` are told, `accesses` of the warp to memory, or both.
    """

    block_index: Dim3 = (0, 0, 0)
    warp_index: int = 0
    max_steps: int = 20_000
    whole_block: bool = False
    steps: bool = True
    accesses: bool = False


class TraceBuffers:
    """Bounded memory for a trace: about 570 bytes a step. Pages that are not used take none.

    `max_steps` bounds the steps of traced warps; with `others` there is room for stores by other warps.
    ``stopped`` tells that the block computed so long that it was not let to its end.
    """

    def __init__(self, max_steps: int, others: bool) -> None:
        room = max_steps * (1 + _OTHERS * others)
        self.max_steps = max_steps
        self.all_steps = np.zeros(max(room, 1), layout.TRACE_STEP)
        self.all_rows = np.zeros(_ROWS_A_STEP * room + _SPARE_ROWS, layout.TRACE_ROW)
        self.steps = self.all_steps[:0]
        self.rows = self.all_rows[:0]
        self.truncated = False
        self.stopped = False
        self.shared_address = 0
        self.shared_bytes = 0
        self.shared: npt.NDArray[np.uint8] | None = None

    def fields(self) -> dict[str, int]:
        """Values of the context's fields before the first step."""
        steps = self.all_steps
        rows = self.all_rows
        return {
            "trace_cursor": steps.ctypes.data,
            "trace_end": steps.ctypes.data + steps.nbytes,
            "trace_left": self.max_steps,
            "trace_rows": rows.ctypes.data,
            "trace_rows_end": rows.ctypes.data + rows.nbytes,
        }

    def read(self, row: Any, shared: npt.NDArray[np.uint8]) -> None:
        """Take over what generated code wrote, from its context and shared memory."""
        count = self._filled(row, "trace_cursor", self.all_steps)
        if not count:
            return  # another worker ran the traced block
        self.steps = self.all_steps[:count]
        rows = self.all_rows[: self._filled(row, "trace_rows", self.all_rows)]
        # The last step is incomplete where the rows ran out.
        self.rows = rows[rows["step"] < len(self.steps)]
        self.truncated = bool(row["truncated"]) or self.stopped
        self.shared_address = int(row["shared"])
        self.shared_bytes = shared.size
        if row["block_linear"] == row["trace_block"]:
            self.shared = shared.copy()

    def reduced(
        self, row: Any, warp: int, function: int, pc: int, lanes: npt.NDArray[np.bool_], answer: int
    ) -> None:
        """Note the result of a barrier's reduction with the steps at which these lanes arrived."""
        steps = self.all_steps[: self._filled(row, "trace_cursor", self.all_steps)]
        left = int(np.bitwise_or.reduce(np.flatnonzero(lanes) * 0 + (1 << np.flatnonzero(lanes))))
        arrivals = (steps["warp"] == warp) & (steps["function"] == function) & (steps["pc"] == pc)
        for step in np.flatnonzero(arrivals)[::-1].tolist():
            number = self._filled(row, "trace_rows", self.all_rows)
            mask = int(steps["executed"][step]) & left
            if not left or number >= len(self.all_rows):
                return
            if mask:
                filled = self.all_rows[number : number + 1]
                filled["step"], filled["kind"], filled["mask"] = step, layout.ROW_REGISTER, mask
                filled["lanes"] = answer
                row["trace_rows"] += self.all_rows.itemsize
                left &= ~mask

    @staticmethod
    def _filled(row: Any, cursor: str, buffer: npt.NDArray[Any]) -> int:
        return (int(row[cursor]) - buffer.ctypes.data) // buffer.itemsize
