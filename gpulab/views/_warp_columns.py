"""What the browser needs of a warp's trace, as columns: addresses and values only where steps have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpulab.views import _lane_rows
from gpulab.views._warp_steps import WarpSteps, lane_bits, value_type
from virtualgpu.records import WarpTrace
from virtualgpu.records.columns import SharedWrites

Columns = dict[str, npt.NDArray[Any]]


def bounded(trace: WarpTrace, most: int) -> WarpTrace:
    """The first steps of a trace, marked as cut if there are more."""
    if len(trace) <= most:
        return trace
    fields = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            fields[name] = value[:most]
    detail = trace.detail
    if detail is not None:
        extra, stored = detail.extra_step < most, detail.stored_step < most
        fields["detail"] = replace(
            detail,
            sequence=detail.sequence[:most],
            depth=detail.depth[:most],
            extra_step=detail.extra_step[extra],
            extra_name=detail.extra_name[extra],
            extra_value=detail.extra_value[extra],
            stored_step=detail.stored_step[stored],
            stored_part=detail.stored_part[stored],
            stored_width_bytes=detail.stored_width_bytes[stored],
            stored_value=detail.stored_value[stored],
        )
    return WarpTrace(**{**fields, "truncated": True})


class Names:
    """Texts that many rows share, by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


def of_warp(steps: WarpSteps, registers: Names, types: Names) -> Columns:
    """The columns of one warp; registers and types are numbered in `registers` and `types`."""
    trace, accesses = steps.trace, steps.accesses
    loops = steps.loops
    columns: Columns = {
        "pc": trace.pc.astype(np.int32),
        "line": steps.line,
        "column": np.where(trace.line == steps.line, trace.column, 0).astype(np.int16),
        "active": trace.active_mask.astype(np.uint32),
        "executed": trace.executed_mask.astype(np.uint32),
        "text": trace.text_index.astype(np.int32),
        "line_starts": steps.line_starts,
        "accesses": accesses,
        "loop_first": loops.first,
        "loop_last": loops.last,
        "loop_at": loops.at,
        "loop_starts": loops.starts,
        "loop_parent": loops.parent,
        "loop_open": loops.open,
        "loop_of": loops.of_step,
    }
    if accesses.size and trace.access_space is not None:
        columns["space"] = trace.access_space[accesses].astype(np.int8)
        columns["sectors"], columns["ideal_sectors"] = steps.sectors, steps.ideal_sectors
        columns["wavefronts"], columns["ideal_wavefronts"] = steps.wavefronts, steps.ideal_wavefronts
        if trace.access_is_store is not None:
            columns["is_store"] = trace.access_is_store[accesses].astype(np.uint8)
        if trace.access_size_bytes is not None:
            columns["size_bytes"] = trace.access_size_bytes[accesses].astype(np.int16)
        if trace.address is not None:
            lanes = trace.address[accesses] >= 0
            columns |= _rows("address", trace.address[accesses].astype(np.uint64), lanes)
    if trace.detail is not None:
        columns["sequence"] = trace.detail.sequence.astype(np.int32)
        if trace.detail.depth.any():
            columns["depth"] = trace.detail.depth.astype(np.uint8)
    return columns | _values(trace, registers, types)


def _rows(name: str, values: npt.NDArray[np.uint64], lanes: npt.NDArray[np.bool_]) -> Columns:
    packed = _lane_rows.encode(values, lanes)
    return {f"{name}_{part}": column for part, column in packed.items()}


def _values(trace: WarpTrace, registers: Names, types: Names) -> Columns:
    """Registers written, one row each in the order of steps, and what steps store to memory."""
    columns: Columns = {}
    if trace.value is None or not trace.value_register:
        return columns
    kinds = [
        types.number(value_type(text, declared))
        for text, declared in zip(trace.instruction, trace.value_type, strict=True)
    ]
    names = [registers.number(name) if name else -1 for name in trace.value_register]
    name = np.array(names, np.int32)[trace.text_index]
    at = np.flatnonzero(name >= 0)
    when, which = at.astype(np.int32), name[at]
    kind = np.array(kinds, np.uint8)[trace.text_index[at]]
    bits = trace.value[at].astype(np.uint64)
    detail = trace.detail
    if detail is not None:
        extra_names = np.array([registers.number(n) for n in detail.extra_register], np.int32)
        extra_kinds = np.array([types.number(k) for k in detail.extra_type], np.uint8)
        if detail.extra_step.size:
            when = np.concatenate([when, detail.extra_step])
            which = np.concatenate([which, extra_names[detail.extra_name]])
            kind = np.concatenate([kind, extra_kinds[detail.extra_name]])
            bits = np.concatenate([bits, detail.extra_value])
        stored = np.array([types.number(k) for k in detail.stored_type], np.uint8)
        columns["store_step"], columns["store_part"] = detail.stored_step, detail.stored_part
        columns["store_type"] = stored[trace.text_index[detail.stored_step]]
        columns |= _rows("store", detail.stored_value, lane_bits(trace.executed_mask[detail.stored_step]))
    order = np.argsort(when, kind="stable")
    when = when[order]
    columns |= {"write_step": when, "write_name": which[order], "write_type": kind[order]}
    return columns | _rows("write", bits[order], lane_bits(trace.executed_mask[when]))


def of_shared(shared: SharedWrites, types: Names) -> Columns:
    """What a block wrote to its shared memory, one row for each piece a step wrote."""
    kinds = np.array([types.number(kind) for kind in shared.types], np.uint8)
    lanes = lane_bits(shared.mask)
    columns: Columns = {
        "sequence": shared.sequence.astype(np.int32),
        "warp": shared.warp.astype(np.uint8),
        "mask": shared.mask,
        "width": shared.width_bytes.astype(np.uint8),
        "type": kinds[shared.type_index],
    }
    columns |= _rows("offset", shared.offset.astype(np.uint64), lanes)
    return columns | _rows("value", shared.value, lanes)
