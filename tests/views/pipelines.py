"""Traces of blocks with a pipeline in shared memory, written down without running a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpulab.views import PipelineView
from tests.views import synthetic
from virtualgpu.records import BlockTrace, WarpTrace
from virtualgpu.records.warp.columns import SHARED_ACCESS_KINDS, SharedAccesses, SharedWrites, StepDetail

LANES = 32
# Each buffer has 512 bytes for each warp: 16 for each lane.
PART_BYTES = 16 * LANES
CODE = """__global__ void pipeline(const float4* x, float4* y, int tiles) {
    for (int t = 0; t < stages - 1; ++t) {
        copy(t); commit();
    }
    for (int t = 0; t < tiles; ++t) {
        wait();
        __syncthreads();
        if (t + stages - 1 < tiles) copy(t + stages - 1);
        commit();
        sum += buffer[t % stages][other];
    }
}"""
# Instruction, source line, number of pending groups.
TEXTS = {
    "copy": ("cp.async.cg.shared.global [%r1], [%rd1], 16, 16", 8),
    "commit": ("cp.async.commit_group", 9),
    "wait": ("cp.async.wait_group 1", 6),
    "wait for all": ("cp.async.wait_group 0", 6),
    "barrier": ("bar.sync 0", 7),
    "read": ("ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%r2]", 10),
    "store": ("st.shared.v4.f32 [%r1], {%f1, %f2, %f3, %f4}", 8),
}
Step = tuple[str, int]  # an action of TEXTS, and the buffer of a copy, store or read


def copies_ahead(stages: int, tiles: int, leave_out: Sequence[str] = ()) -> list[Step]:
    """The steps of a warp that copies ``stages - 1`` tiles ahead and waits for one tile at a time."""
    steps: list[Step] = []
    for tile in range(stages - 1):
        steps += [("copy", tile), ("commit", 0)]
    for tile in range(tiles):
        steps += [("wait" if stages > 2 else "wait for all", 0), ("barrier", 0)]
        if (ahead := tile + stages - 1) < tiles:
            steps.append(("copy", ahead % stages))
        steps += [("commit", 0), ("read", tile % stages)]
    return [step for step in steps if step[0] not in leave_out]


def stores(tiles: int) -> list[Step]:
    """The steps of a warp that fills two buffers in turns, with stores and one barrier per tile."""
    steps: list[Step] = [("store", 0), ("barrier", 0)]
    for tile in range(tiles):
        steps += [("store", (tile + 1) % 2)] if tile + 1 < tiles else []
        steps += [("read", tile % 2), ("barrier", 0)]
    return steps


def block(programs: Sequence[Sequence[Step]], **more: Any) -> BlockTrace:
    """A block whose warps execute these steps; each warp runs until it waits at a barrier.

    Warp w writes part w of a buffer and reads part w + 1.
    """
    warps = len(programs)
    position = [0] * warps
    order: list[tuple[int, str, int]] = []
    while any(position[warp] < len(program) for warp, program in enumerate(programs)):
        for warp, program in enumerate(programs):
            while position[warp] < len(program):
                action, buffer = program[position[warp]]
                position[warp] += 1
                order.append((warp, action, buffer))
                if action == "barrier":
                    break
    return _traced(order, warps, more)


def _traced(order: Sequence[tuple[int, str, int]], warps: int, more: dict[str, Any]) -> BlockTrace:
    names = [*TEXTS]
    part = 16 * np.arange(LANES)
    pending: list[list[tuple[int, int]]] = [[] for _ in range(warps)]  # group and first byte
    groups = [0] * warps
    accesses = []
    landed = []
    for sequence, (warp, action, buffer) in enumerate(order):
        first = PART_BYTES * (buffer * warps + (warp + (action == "read")) % warps)
        if action == "copy":
            pending[warp].append((groups[warp], first))
        if action in ("copy", "store", "read"):
            kind = SHARED_ACCESS_KINDS.index("load" if action == "read" else action)
            accesses.append((sequence, kind, first + part))
        groups[warp] += action == "commit"
        if action.startswith("wait"):
            limit = groups[warp] - (action == "wait")
            landed += [(sequence, warp, start) for group, start in pending[warp] if group < limit]
            pending[warp] = [copy for copy in pending[warp] if copy[0] >= limit]
    count = len(landed)
    shared = SharedWrites(
        size_bytes=PART_BYTES * warps * 8,
        sequence=np.array([sequence for sequence, *_ in landed], np.int64),
        warp=np.array([warp for _, warp, _ in landed], np.int16),
        mask=np.full(count, 0xFFFFFFFF, np.uint32),
        offset=np.array([start + part for *_, start in landed], np.int32).reshape(-1, LANES),
        width_bytes=np.full(count, 4, np.int8),
        value=np.zeros((count, LANES), np.uint64),
        type_index=np.zeros(count, np.int16),
        types=("b32",),
    )
    first_trace = synthetic.warp_trace()
    traces = []
    for warp in range(warps):
        own = [(n, names.index(action)) for n, (w, action, _) in enumerate(order) if w == warp]
        traces.append(_warp(warp, own, names, shared, (LANES * warps, 1, 1)))
    return BlockTrace(
        **{
            "provenance": first_trace.provenance,
            "kernel_name": "pipeline",
            "grid": (4, 1, 1),
            "block": (LANES * warps, 1, 1),
            "block_index": (2, 0, 0),
            "warps": tuple(traces),
            "shared": shared,
            "steps": len(order),
            "accesses": SharedAccesses(
                sequence=np.array([sequence for sequence, *_ in accesses], np.int64),
                kind=np.array([kind for _, kind, _ in accesses], np.int8),
                width_bytes=np.full(len(accesses), 16, np.int16),
                offset=np.array([offset for *_, offset in accesses], np.int32).reshape(-1, LANES),
            ),
            **more,
        }
    )


def _warp(
    warp: int, steps: Sequence[tuple[int, int]], names: Sequence[str], shared: SharedWrites, threads: Any
) -> WarpTrace:
    index = np.array([text for _, text in steps], np.int32)
    masks = np.full(index.size, 0xFFFFFFFF, np.uint32)
    empty = np.zeros(0, np.int32)
    rows = np.zeros((0, LANES), np.uint64)
    return WarpTrace(
        provenance=synthetic.warp_trace().provenance,
        kernel_name="pipeline",
        code=CODE,
        grid=(4, 1, 1),
        block=threads,
        block_index=(2, 0, 0),
        warp_index=warp,
        granularity="instruction",
        instruction=tuple(TEXTS[name][0] for name in names),
        pc=index,
        line=np.array([TEXTS[names[text]][1] for text in index.tolist()], np.int32),
        column=index * 0,
        active_mask=masks,
        executed_mask=masks,
        text_index=index,
        value=np.zeros((index.size, LANES), np.uint64),
        detail=StepDetail(
            sequence=np.array([sequence for sequence, _ in steps], np.int64),
            depth=np.zeros(index.size, np.int16),
            extra_step=empty,
            extra_name=empty,
            extra_value=rows,
            extra_register=(),
            extra_type=(),
            stored_step=empty,
            stored_part=empty.astype(np.int16),
            stored_width_bytes=empty.astype(np.int8),
            stored_value=rows,
            stored_type=(),
            order=np.arange(len(names), dtype=np.int32),
            loops=np.zeros((0, 2), np.int32),
            shared=shared,
        ),
    )


ALL: dict[str, Callable[[], Any]] = {
    "pipeline": lambda: PipelineView(block([copies_ahead(3, 6)] * 4)),
    "pipeline without a wait": lambda: PipelineView(block([copies_ahead(3, 4, ["wait"])] * 2)),
    "pipeline without a barrier": lambda: PipelineView(block([copies_ahead(2, 4, ["barrier"])] * 2)),
    "pipeline of stores": lambda: PipelineView(
        block([stores(5)] * 2, truncated=True, note="It was stopped.")
    ),
    "pipeline of many tiles": lambda: PipelineView(block([copies_ahead(4, 90)] * 8)),
}
