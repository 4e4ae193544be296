"""Registers and shared memory at any step of a trace, played from its writes: what views are held against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from virtualgpu.records import WARP_SIZE, WarpTrace
from virtualgpu.records.warp.columns import SharedWrites, expand_lane_masks


@dataclass(frozen=True, slots=True)
class Register:
    """One register: its 32 values as bits, which lanes have one, and its PTX type.

    ``last_step`` is the last step that wrote it.
    """

    type: str
    value: npt.NDArray[np.uint64]
    written: npt.NDArray[np.bool_]
    last_step: int


def natural(register: str) -> tuple[str, int]:
    """A key that sorts ``%r2`` before ``%r10``."""
    stem = register.rstrip("0123456789")
    return stem, int(register[len(stem) :] or 0)


def activation_start(trace: WarpTrace, step: int) -> int:
    """First step of the function call that a step belongs to (0 in the kernel itself)."""
    if trace.detail is None or not trace.detail.depth[step]:
        return 0
    outside = np.flatnonzero(trace.detail.depth[:step] < trace.detail.depth[step])
    return int(outside[-1]) + 1 if outside.size else 0


def registers_at(trace: WarpTrace, step: int) -> dict[str, Register]:
    """All registers of the running function after a step.

    Parameters
    ----------
    trace
        A warp's trace by instruction, with values.
    step
        A step of it, from 0.

    Returns
    -------
    dict
        By register name, in the order of the names. A lane has a value once it has executed an
        instruction that writes the register; in a called function, only since this call began.

    Raises
    ------
    IndexError
        If the trace has no such step.
    """
    if not 0 <= step < len(trace):
        raise IndexError(f"The trace has steps 0 to {len(trace) - 1}, so there is no step {step}.")
    if trace.value is None:
        return {}
    start = activation_start(trace, step)
    steps = np.arange(start, step + 1)
    if trace.detail is not None:
        steps = steps[trace.detail.depth[steps] == trace.detail.depth[step]]
    types: dict[str, str] = {}
    firsts = _by_name(trace.value_register, trace.value_type, trace.text_index[steps], types)
    extras: dict[str, npt.NDArray[np.int64]] = {}
    rows = np.zeros(0, np.int64)
    detail = trace.detail
    if detail is not None:
        rows = np.flatnonzero(np.isin(detail.extra_step, steps))
        extras = _by_name(detail.extra_register, detail.extra_type, detail.extra_name[rows], types)
    registers = {}
    for name, kind in sorted(types.items(), key=lambda item: natural(item[0])):
        first = steps[firsts[name]] if name in firsts else steps[:0]
        extra = rows[extras[name]] if name in extras else rows[:0]
        steps_of_writes = first
        if detail is not None and extra.size:
            steps_of_writes = np.concatenate([first, detail.extra_step[extra].astype(np.int64)])
        order = np.argsort(steps_of_writes, kind="stable")
        executed = expand_lane_masks(trace.executed_mask[steps_of_writes[order]])
        last = order[len(order) - 1 - np.argmax(executed[::-1], axis=0)]
        value = np.zeros(WARP_SIZE, np.uint64)
        for lane, index in enumerate(last.tolist()):
            if index < first.size:
                value[lane] = trace.value[first[index], lane]
            elif detail is not None:
                value[lane] = detail.extra_value[extra[index - first.size], lane]
        written: npt.NDArray[np.bool_] = np.asarray(executed.any(axis=0))
        value[~written] = 0
        registers[name] = Register(kind, value, written, int(steps_of_writes.max()))
    return registers


def _by_name(
    names: tuple[str, ...], kinds: tuple[str, ...], used: npt.NDArray[np.int32], types: dict[str, str]
) -> dict[str, npt.NDArray[np.int64]]:
    """Where each register is named in a column of indices into `names`; notes its type."""
    indices_by_name: dict[str, list[int]] = {}
    for index in np.unique(used).tolist():
        if names[index]:
            indices_by_name.setdefault(names[index], []).append(index)
            types.setdefault(names[index], kinds[index])
    return {name: np.flatnonzero(np.isin(used, indices)) for name, indices in indices_by_name.items()}


def shared_at(shared: SharedWrites, sequence: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Shared memory after a step, by its place in the block's order.

    Parameters
    ----------
    shared
        What the block wrote, from `BlockTrace.shared` or a warp's ``detail.shared``.
    sequence
        A step's place, as in ``detail.sequence``; -1 means before the first step.

    Returns
    -------
    memory, written
        Its bytes, and which of them have been written. Bytes never written hold garbage on a GPU; here
        they are 0xFF.
    """
    memory = np.full(shared.size_bytes, 0xFF, np.uint8)
    written = np.zeros(shared.size_bytes, np.bool_)
    count = int(np.searchsorted(shared.sequence, sequence, side="right"))
    place, bits = _bytes_of(shared, slice(0, count))
    memory[place] = bits  # of several bits for one place the last stays
    written[place] = True
    return memory, written


def shared_changes(shared: SharedWrites, sequence: int) -> npt.NDArray[np.int64]:
    """Offsets of the bytes that one step wrote, in ascending order, each once."""
    first, last = np.searchsorted(shared.sequence, [sequence, sequence + 1]).tolist()
    return np.unique(_bytes_of(shared, slice(first, last))[0])


def _bytes_of(shared: SharedWrites, rows: slice) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The rows' bytes in their order: where each goes, and what it is."""
    row, lane = np.nonzero(expand_lane_masks(shared.mask[rows]))
    byte = np.arange(8)
    place = shared.offset[rows][row, lane][:, None].astype(np.int64) + byte
    bits = shared.value[rows][row, lane].astype("<u8").view(np.uint8).reshape(-1, 8)
    inside = (byte < shared.width_bytes[rows][row][:, None]) & (place < shared.size_bytes)
    return place[inside], bits[inside]
