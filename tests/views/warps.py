"""Traces of warps with all that a virtual GPU tells: loops, calls, stores, stops, watch expressions."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from tests.views import synthetic
from virtualgpu.records import BlockTrace, WarpTrace
from virtualgpu.records.warp.columns import SharedWrites, StepDetail, Variable
from virtualgpu.records.warp.watched import Stop, Watched

THREADS = 72
ROW_BYTES = 128
VARIABLES = (
    Variable(name="i", type="int", kind="s32", first_line=5, last_line=16, written_by=(1,)),
    Variable(name="v", type="float", kind="f32", first_line=7, last_line=15, written_by=(4, 7, 8)),
    Variable(name="n", type="int", kind="s32", first_line=3, last_line=16),
)


# The instructions of one iteration: those from the load on run twice.
ITERATION = (*range(13), *range(4, 14))


def _plain(warp: int, repeat: int) -> WarpTrace:
    trace = synthetic.warp_trace(THREADS, warp, n=70)
    rows = np.tile(ITERATION, repeat)
    columns = {
        field.name: column[rows]
        for field in fields(trace)
        if isinstance(column := getattr(trace, field.name), np.ndarray)
    }
    return replace(trace, code=f"{trace.code}// after\n" + "// it\n" * 9, **columns)


def _at(trace: WarpTrace, text: int) -> Any:
    return np.flatnonzero(trace.text_index == text).astype(np.int32)


def _shared(repeat: int) -> SharedWrites:
    """Each warp's stores to `tile`, in the order in which the warps take turns."""
    warps = [_plain(warp, repeat) for warp in range(3)]
    rows = sorted(
        (int(step) * 3 + index, index, int(step))
        for index, trace in enumerate(warps)
        for step in _at(trace, 9)
    )
    address = np.array([warps[index].address[step] for _, index, step in rows], np.int64)
    return SharedWrites(
        size_bytes=THREADS * ROW_BYTES,
        sequence=np.array([row[0] for row in rows], np.int64),
        warp=np.array([row[1] for row in rows], np.int16),
        mask=np.array([warps[index].executed_mask[step] for _, index, step in rows], np.uint32),
        offset=np.maximum(address, 0).astype(np.int32),
        width_bytes=np.full(len(rows), 4, np.int8),
        value=np.array([warps[index].value[step - 2] for _, index, step in rows], np.uint64),
        type_index=np.zeros(len(rows), np.int16),
        types=("f32",),
    )


def warp_of(warp: int = 0, repeat: int = 3, **more: Any) -> WarpTrace:
    """A warp with a loop in a loop, calls, an instruction of two registers, stores in one and two parts."""
    trace = _plain(warp, repeat)
    pairs = _at(trace, 1)
    tile = _at(trace, 9)
    out = _at(trace, 12)
    steps = len(trace)
    stored = np.sort(np.concatenate([tile, tile, out]))
    part = np.where(np.append(False, stored[1:] == stored[:-1]), 1, 0)
    detail = StepDetail(
        sequence=np.arange(steps, dtype=np.int64) * 3 + warp,
        depth=np.isin(trace.text_index, (7, 8)).astype(np.int16),
        extra_step=pairs,
        extra_name=np.zeros(pairs.size, np.int32),
        extra_value=trace.value[pairs] * np.uint64(3),
        extra_register=("%rd10",),
        extra_type=("u64",),
        stored_step=stored,
        stored_part=part.astype(np.int16),
        stored_width_bytes=np.full(stored.size, 4, np.int8),
        stored_value=trace.value[stored - 1] + part[:, None].astype(np.uint64),
        stored_type=("",) * 9 + ("f32", "", "", "f32", ""),
        order=np.arange(14, dtype=np.int32),
        loops=np.array([[0, 13], [4, 12]], np.int32),
        shared=_shared(repeat),
    )
    begin = _at(trace, 0)
    loads = _at(trace, 4)
    masks = trace.active_mask
    empty = np.zeros(0, np.int32)
    watched = (
        Watched(
            text="i",
            type="int",
            kind="s32",
            step=begin,
            value=trace.value[begin],
            known=masks[begin],
            outside=0 * masks[begin],
        ),
        Watched(
            text="x[2 * i]",
            type="float",
            kind="f32",
            step=loads,
            value=trace.value[loads],
            known=masks[loads] & 0xFFF,
            outside=masks[loads] & 0xFFF000,
            note="outside of x",
        ),
        Watched(
            text="w",
            type="float",
            kind="f32",
            step=empty,
            value=np.zeros((0, 32), np.uint64),
            known=empty.astype(np.uint32),
            outside=empty.astype(np.uint32),
            note="it has no register",
        ),
    )
    stops = (
        Stop("line 7", "line", loads, masks[loads]),
        Stop("any(v < 0)", "any", loads, masks[loads] & 0xAAAAAAAA),
        Stop("write tile[0]", "write", tile[:1], np.full(1, 0b1011, np.uint32)),
        Stop("all(i > 3)", "all", begin[1:], masks[begin[1:]]),
        Stop("line 2", "line", empty, empty.astype(np.uint32), "the line has no instruction"),
    )
    return replace(trace, detail=detail, variables=VARIABLES, **{"watched": watched, "stops": stops, **more})


def block(repeat: int = 3, **more: Any) -> BlockTrace:
    """Three warps, the last with 8 lanes."""
    warps = tuple(warp_of(warp, repeat, block_index=(4, 2, 1), **more) for warp in range(3))
    first = warps[0]
    return BlockTrace(
        provenance=first.provenance,
        kernel_name=first.kernel_name,
        grid=first.grid,
        block=first.block,
        block_index=first.block_index,
        warps=warps,
        shared=_shared(repeat),
        steps=sum(map(len, warps)),
    )


def long() -> WarpTrace:
    """More steps than the picture has places, in a source of more lines than it shows."""
    trace = synthetic.warp_trace(repeat=100)
    code = "// before\n" * 3 + trace.code + "// after\n" * 20
    line = trace.line + 3
    line[5::14] = 33
    return replace(trace, code=code, line=line, truncated=True, note="Nothing is known beyond.")


def nothing() -> WarpTrace:
    """A warp that ran no instruction."""
    trace = synthetic.warp_trace(repeat=0)
    masks = np.zeros(0, np.uint32)
    lanes = np.zeros((0, 32), np.int64)
    return replace(
        trace, active_mask=masks, executed_mask=masks, address=lanes, value=lanes.astype(np.uint64)
    )
