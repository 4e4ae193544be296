"""Traces of every step of one warp, or of all warps of one block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from virtualgpu.records.kernel import Dim3
from virtualgpu.records.origin import Provenance
from virtualgpu.records.warp.columns import SharedAccesses, SharedWrites, StepDetail, Variable
from virtualgpu.records.warp.watched import Stop, Watched


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpTrace:
    """A recording of all steps that one warp executed. Columns have one row per step, and columns of shape
    ``[n, 32]`` have one value per lane.

    A step is one PTX instruction on the virtual GPU and one basic block in a trace taken on a
    real GPU (``granularity``). ``active_mask`` bit i is lane i; ``executed_mask`` also takes the
    instruction's own predicate into account. ``line`` is 1-based in ``code``, 0 if unknown.
    Memory columns contain -1 if a step does not access memory. ``value`` is the first register that a step
    wrote; further results of a virtual GPU are in ``detail``. ``variables`` are those of the source, as far
    as the compiler or a debug build of the kernel describes them; ``watched`` and ``stops`` were requested.
    """

    provenance: Provenance
    kernel_name: str
    code: str
    grid: Dim3
    block: Dim3
    block_index: Dim3
    warp_index: int
    granularity: Literal["instruction", "basic block"]
    instruction: tuple[str, ...]
    pc: npt.NDArray[np.int32]
    line: npt.NDArray[np.int32]
    column: npt.NDArray[np.int32]
    active_mask: npt.NDArray[np.uint32]
    executed_mask: npt.NDArray[np.uint32]
    text_index: npt.NDArray[np.int32]
    space: tuple[str, ...] = ()
    access_space: npt.NDArray[np.int8] | None = None
    access_is_store: npt.NDArray[np.bool_] | None = None
    access_size_bytes: npt.NDArray[np.int16] | None = None
    address: npt.NDArray[np.int64] | None = None
    sectors: npt.NDArray[np.int32] | None = None
    wavefronts: npt.NDArray[np.int32] | None = None
    value: npt.NDArray[np.uint64] | None = None
    value_type: tuple[str, ...] = ()
    value_register: tuple[str, ...] = ()
    variables: tuple[Variable, ...] = ()
    truncated: bool = False
    note: str = ""
    detail: StepDetail | None = None
    watched: tuple[Watched, ...] = ()
    stops: tuple[Stop, ...] = ()

    def __len__(self) -> int:
        return int(self.pc.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTrace:
    """Every step of all warps of one block, in the order in which the virtual GPU executed the steps.

    For each warp, ``detail.sequence`` contains the positions of its steps in that order. ``steps`` counts the
    steps of all warps. ``accesses`` are those of the recorded steps to shared memory, None if they were not
    recorded.
    """

    provenance: Provenance
    kernel_name: str
    grid: Dim3
    block: Dim3
    block_index: Dim3
    warps: tuple[WarpTrace, ...]
    shared: SharedWrites
    steps: int
    accesses: SharedAccesses | None = None
    truncated: bool = False
    note: str = ""
