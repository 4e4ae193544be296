"""Columns that a virtual GPU's trace has beyond a real one's: values, stores, order, loops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records.kernel import WARP_SIZE


@dataclass(frozen=True, slots=True)
class SharedWrites:
    """What a block's warps wrote to its shared memory. Columns have one row for each piece a step wrote.

    A piece has at most 8 bytes a lane; ``offset`` (bytes in shared memory) and ``value`` have one entry
    a lane, of which those in ``mask`` count. Rows, and the lanes of a row, are in the order in which
    they took effect. ``sequence`` is the step's place among all recorded steps and ``type_index`` tells
    the piece's PTX type in ``types``. ``final`` is the memory as it was when the block ended.
    """

    size_bytes: int
    sequence: npt.NDArray[np.int64]
    warp: npt.NDArray[np.int16]
    mask: npt.NDArray[np.uint32]
    offset: npt.NDArray[np.int32]
    width_bytes: npt.NDArray[np.int8]
    value: npt.NDArray[np.uint64]
    type_index: npt.NDArray[np.int16]
    types: tuple[str, ...]
    final: npt.NDArray[np.uint8] | None = None


@dataclass(frozen=True, slots=True)
class StepDetail:
    """What else the steps of one warp did; `WarpTrace.value` is the first register each wrote.

    ``sequence`` is a step's place among the recorded steps of all warps and ``depth`` the depth of
    calls, 0 in the kernel itself. ``extra_`` columns have one row for each further register a step
    wrote (named in ``extra_register``, typed in ``extra_type``). ``stored_`` columns have one row for
    each piece of at most 8 bytes that a step wrote to memory: a store's value, or what an atomic left
    there. ``order`` is the place of every instruction in scheduling order; a row of ``loops`` is a
    loop's first place, where each iteration begins, and its last.
    """

    sequence: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int16]
    extra_step: npt.NDArray[np.int32]
    extra_name: npt.NDArray[np.int32]
    extra_value: npt.NDArray[np.uint64]
    extra_register: tuple[str, ...]
    extra_type: tuple[str, ...]
    stored_step: npt.NDArray[np.int32]
    stored_part: npt.NDArray[np.int16]
    stored_width_bytes: npt.NDArray[np.int8]
    stored_value: npt.NDArray[np.uint64]
    stored_type: tuple[str, ...]
    order: npt.NDArray[np.int32]
    loops: npt.NDArray[np.int32]
    shared: SharedWrites


def lanes_of(masks: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    """Lane masks as a table of booleans, ``[step, lane]``."""
    return (masks[:, None] >> np.arange(WARP_SIZE, dtype=np.uint32) & 1).astype(np.bool_)
