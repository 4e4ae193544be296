"""Loops of one block and accesses of whole half warps, which have code of their own: values and counters.

Expected are NumPy's values and the rules of `virtualgpu.records.access`, worked out lane by lane.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.engine import ptx_runner
from virtualgpu.engine.ir import layout
from virtualgpu.engine.machine import jit, processor
from virtualgpu.engine.run import program
from virtualgpu.errors import GpulabError

LEVELS = [
    str(name) for name in ("x86-64-v2", "x86-64-v3", "armv8-a") if name in processor.list_feature_levels()
]
HERE = [*(name for name in LEVELS if not processor.find_missing_features(name)), processor.NATIVE_CHOICE]
LANES = np.arange(32)
ROW = 100 + LANES


@pytest.fixture(params=HERE, autouse=True)
def _target_processor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test for each kind of processor that can be had here."""
    monkeypatch.setenv(processor.CPU_VARIABLE, request.param)


COLLATZ = r"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p0, .param .u64 p1) {
  .reg .b64 %rd<6>; .reg .b32 %r<12>; .reg .pred %p<4>;
  ld.param.u64 %rd0, [p0];
  ld.param.u64 %rd1, [p1];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd2, %r0, 4;
  add.s64 %rd3, %rd0, %rd2;
  add.s64 %rd4, %rd1, %rd2;
  ld.global.u32 %r1, [%rd3];
  mov.u32 %r2, 0;
  mov.u32 %r7, 0;
  setp.eq.u32 %p2, %r1, 0;
LOOP:
  and.b32 %r3, %r1, 1;
  setp.eq.u32 %p0, %r3, 1;
  @%p2 add.u32 %r7, %r7, 1;
  shr.u32 %r4, %r1, 1;
  mad.lo.u32 %r5, %r1, 3, 1;
  selp.b32 %r1, %r5, %r4, %p0;
  mov.pred %p2, %p0;
  add.u32 %r2, %r2, 1;
  setp.gt.u32 %p1, %r1, 1;
  @%p1 bra LOOP;
  mad.lo.u32 %r2, %r7, 65536, %r2;
  st.global.u32 [%rd4], %r2;
  ret;
}
"""


def collatz(start: int) -> tuple[int, int]:
    """Turns of the loop, and how many come after an odd number."""
    turns = odd = 0
    is_odd = start == 0
    while True:
        odd += is_odd
        is_odd = start % 2 == 1
        start = 3 * start + 1 if is_odd else start // 2
        turns += 1
        if start <= 1:
            return turns, odd


def run(ptx: str, arrays: list[npt.NDArray[Any]], block: int) -> tuple[list[npt.NDArray[Any]], Any]:
    """Contents of the arrays after a launch of one block, and its counters."""
    result, contents = ptx_runner.run(ptx, "k", arrays, block=block, instrument="counters")
    return contents, result.counters


@pytest.mark.parametrize("in_passing", [False, True])
def test_lanes_that_left_a_loop_keep_their_values(in_passing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_passing:  # as a long kernel is translated that is met for the first time
        program._compile_kernel_for_processor.cache_clear()
        monkeypatch.setattr(jit, "_QUICK_FIRST_LIMIT_S", -1.0)
        monkeypatch.setattr(jit, "_is_stored", lambda *_: False)
    starts = np.random.default_rng(3).integers(1, 10_000, 80).astype(np.uint32)
    (_, result), counters = run(COLLATZ, [starts, np.zeros(80, np.uint32)], 80)
    turns, odd = np.array([collatz(int(n)) for n in starts]).T
    np.testing.assert_array_equal(result, odd * 65536 + turns)
    warps = [turns[first : first + 32] for first in (0, 32, 64)]
    branch = counters.branches[0]
    assert branch.executed == sum(int(warp.max()) for warp in warps)
    assert branch.divergent == sum(len(np.unique(warp)) - 1 for warp in warps)
    prologue = 10
    body = 10
    epilogue = 3
    assert counters.warp_instructions == 3 * (prologue + epilogue) + body * branch.executed
    assert counters.thread_instructions == 80 * (prologue + epilogue) + body * int(turns.sum())


def test_a_loop_continues_after_its_back_edge_budget() -> None:
    """The loop exceeds the budget several times; no lane may stop when the budget is used up."""
    n = 3 * layout.BACK_EDGE_BUDGET + 5
    ptx = COLLATZ.replace("setp.gt.u32 %p1, %r1, 1;", f"setp.lt.u32 %p1, %r2, {n};")
    ptx = ptx.replace("mad.lo.u32 %r2, %r7, 65536, %r2;", "")
    (_, result), counters = run(ptx, [np.ones(32, np.uint32), np.zeros(32, np.uint32)], 32)
    assert set(result.tolist()) == {n}
    assert counters.branches[0].executed == n
    assert counters.branches[0].divergent == 0


PLACES = {
    "row": ROW,
    "row across sectors": ROW + 3,
    "one": np.full(32, 77),
    "two rows": np.where(LANES < 16, LANES, 300 + LANES),
    "two rows that touch": np.where(LANES < 16, LANES + 4, LANES + 2),
    "the same row twice": 40 + LANES % 16,
    "one and a row": np.where(LANES < 16, 9, 200 + LANES),
    "a row and one": np.where(LANES < 16, 200 + LANES, 511),
    "the second row first": np.where(LANES < 16, 400 + LANES, LANES),
    "two ones": np.where(LANES < 16, 3, 3 + 32),
    "two ones apart": np.where(LANES < 16, 3, 4 + 64),
    "backwards": ROW[::-1],
    "every other": 2 * LANES,
    "almost a row": np.where(LANES == 13, 5, ROW),
    "almost one": np.where(LANES == 31, 5, 77),
    "to the end": 480 + LANES,
    "anywhere": np.random.default_rng(1).integers(0, 512, 32),
}
MASKS = {"all": 0xFFFFFFFF, "some": 0x7FFF0FF3, "the last": 1 << 31, "none": 0}
SIZES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "f32": np.float32, "u64": np.uint64}
MOVE = r"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3) {
  .reg .b64 %rd<12>; .reg .b32 %r<12>; .reg .b64 %v<3>; .reg .pred %p<3>;
  .reg .TYPE %x;
  .shared .align 16 .b8 tile[4096];
  ld.param.u64 %rd0, [p0];
  ld.param.u64 %rd1, [p1];
  ld.param.u64 %rd2, [p2];
  ld.param.u64 %rd3, [p3];
  mov.u32 %r0, %tid.x;
  mul.wide.u32 %rd4, %r0, 4;
  add.s64 %rd0, %rd0, %rd4;
  ld.global.u32 %r1, [%rd0];
  and.b32 %r2, %r1, 65535;
  shr.u32 %r3, %r1, 16;
  setp.ne.u32 %p0, %r3, 0;
  mul.wide.u32 %rd5, %r2, SIZE;
  add.s64 %rd6, %rd1, %rd5;
  add.s64 %rd7, %rd2, %rd5;
BODY
  ret;
}
"""
GLOBAL = "  mov.TYPE %x, ZERO;\n  @%p0 ld.global.TYPE %x, [%rd6];\n  @%p0 st.global.TYPE [%rd7], %x;"
SHARED = """  mov.u32 %r4, tile;
  mad.lo.u32 %r5, %r2, SIZE, %r4;
  mov.TYPE %x, ZERO;
  mul.wide.u32 %rd8, %r0, SIZE;
  add.s64 %rd9, %rd1, %rd8;
  @%p0 st.shared.TYPE [%r5], %x;
  @%p0 ld.shared.TYPE %x, [%r5];
  add.s64 %rd10, %rd3, %rd8;
  st.global.TYPE [%rd10], %x;"""


def moved(kind: str, body: str, places: npt.NDArray[Any], mask: int) -> tuple[Any, ...]:
    """Values found, values stored, and counters."""
    dtype = SIZES[kind]
    data = np.arange(1, 513).astype(dtype)
    active = (mask >> LANES & 1).astype(np.uint32)
    indices = (places.astype(np.uint32) | active << 16).astype(np.uint32)
    ptx = MOVE.replace("BODY", body)
    zero = "0f00000000" if kind == "f32" else "0"
    register = {"u8": "u16"}.get(kind, kind)
    ptx = ptx.replace(".reg .TYPE", f".reg .{register}").replace("mov.TYPE", f"mov.{register}")
    ptx = ptx.replace("TYPE", kind).replace("ZERO", zero).replace("SIZE", str(np.dtype(dtype).itemsize))
    (_, _, stored, out), counters = run(ptx, [indices, data, np.zeros(512, dtype), np.zeros(32, dtype)], 32)
    return data, active.astype(bool), stored, out, counters


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", SIZES)
def test_global_accesses_move_lane_values_and_count_sectors(kind: str, mask: str) -> None:
    for name, places in PLACES.items():
        data, active, stored, _, counters = moved(kind, GLOBAL, places, MASKS[mask])
        expected = np.zeros_like(data)
        expected[places[active]] = data[places[active]]
        np.testing.assert_array_equal(stored, expected, err_msg=name)
        sectors = len(np.unique(places[active] * data.itemsize // 32))
        _, load, store = counters.accesses
        for access in (load, store):
            assert (name, access.requests, access.sectors) == (name, int(active.any()), sectors)
            assert access.bytes_requested == active.sum() * data.itemsize
        assert (name, load.missed_sectors) == (name, sectors)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["u8", "u16", "u32"])
def test_shared_loads_have_the_right_values_and_bank_conflicts(kind: str, mask: str) -> None:
    for name, places in PLACES.items():
        body = SHARED.replace("mov.TYPE %x, ZERO;", "mov.TYPE %x, ZERO;\n  ld.global.TYPE %x, [%rd6];")
        data, active, _, out, counters = moved(kind, body, places, MASKS[mask])
        np.testing.assert_array_equal(out, data[places], err_msg=name)
        words = np.unique(places[active] * data.itemsize // 4)
        passes = int(np.bincount(words % 32, minlength=1).max()) if active.any() else 0
        (load,) = (a for a in counters.accesses if a.space == "shared" and a.kind == "load")
        assert (name, load.requests, load.wavefronts) == (name, int(active.any()), passes)


@pytest.mark.parametrize("first", [20, 1])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_a_row_past_the_end_faults_at_its_first_lane_outside(space: str, first: int) -> None:
    address = "  mov.u32 %r5, 3968;\n  mad.lo.u32 %r5, %r2, SIZE, %r5;\n  add.s64 %rd6, %rd3, %rd5;\n"
    operand = "[%rd6]" if space == "global" else "[%r5]"
    body = SHARED[: SHARED.index("  mad")] + f"{address}  ld.{space}.TYPE %x, {operand};"
    with pytest.raises(GpulabError, match=rf"thread \({32 - first}, 0, 0\)"):
        moved("u32", body, LANES + first, MASKS["all"])
