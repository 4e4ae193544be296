"""Which steps are one visit of a source line, on instructions as NVRTC arranges them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.records.traces import warp_trace
from virtualgpu.records.warp.lines import LineVisits, find_visits
from virtualgpu.records.warp.steps import TraceSteps

ALL = 0xFFFFFFFF
EVEN = 0x55555555
ODD = 0xAAAAAAAA


def visits(code: str, *steps: tuple[str, int, int], pc: list[int] | None = None) -> LineVisits:
    """Visits of steps given as instruction, line and active lanes, each another instruction if no `pc`."""
    texts, line, mask = zip(*steps, strict=True)
    positions = list(range(len(steps))) if pc is None else pc
    instruction = [""] * (max(positions) + 1)
    for place, text in zip(positions, texts, strict=True):
        instruction[place] = text
    masks = np.array(mask, np.uint32)
    return find_visits(
        warp_trace(
            positions,
            line=np.array(line, np.int32),
            instruction=tuple(instruction),
            code=code,
            text_index=np.array(positions, np.int32),
            active_mask=masks,
            executed_mask=masks,
        )
    )


def lines_and_lanes(result: LineVisits) -> list[tuple[int, int]]:
    """Line and number of lanes of each visit."""
    return list(zip(result.line.tolist(), np.bitwise_count(result.active_mask).tolist(), strict=True))


def test_parameter_loads_and_jumps_are_not_separate_visits() -> None:
    result = visits(
        "void f(int* y) {\n  int t = threadIdx.x;\n  y[t] = 0;\n}",
        ("ld.param.u64 %rd1, [f_param_0];", 1, ALL),
        ("mov.u32 %r1, %tid.x;", 2, ALL),
        ("cvta.to.global.u64 %rd2, %rd1;", 2, ALL),
        ("mul.wide.s32 %rd3, %r1, 4;", 3, ALL),
        ("st.shared.u32 [%rd3], %r1;", 3, ALL),
        ("bra.uni $L1;", 2, ALL),
        ("ret;", 4, ALL),
    )
    assert result.line.tolist() == [2, 3, 4]
    assert result.begin.tolist() == [0, 2, 5]
    assert result.end.tolist() == [1, 4, 6]


def test_moved_instructions_join_the_next_visit() -> None:
    """Both arms compute part of the store's line; the store itself comes once, with all lanes."""
    code = "void f(int* y) {\n  if (t & 1)\n    v = 3 * v;\n  else\n    v = 5 * v;\n  y[t] = v;\n}"
    result = visits(
        code,
        ("@%p1 bra $L2;", 2, ALL),
        ("mul.lo.s32 %r2, %r2, 3;", 3, EVEN),
        ("shl.b64 %rd2, %rd1, 2;", 6, EVEN),
        ("mul.lo.s32 %r2, %r2, 5;", 5, ODD),
        ("shl.b64 %rd2, %rd1, 2;", 6, ODD),
        ("shfl.sync.idx.b32 %r3, %r2, 0, 31, -1;", 6, ALL),
    )
    assert lines_and_lanes(result) == [(2, 32), (3, 16), (5, 16), (6, 32)]
    assert result.moved_lines == ((), (6,), (6,), ())


def test_a_line_begun_early_in_the_same_run_is_visited_once() -> None:
    result = visits(
        "a\nb\nc",
        ("mov.u32 %r1, %ctaid.x;", 2, ALL),
        ("mov.u32 %r2, %tid.x;", 1, ALL),
        ("add.s32 %r3, %r1, %r2;", 2, ALL),
    )
    assert lines_and_lanes(result) == [(1, 32), (2, 32)]
    assert result.moved_lines == ((2,), ())


def test_branches_within_one_line_are_separate_visits() -> None:
    """`if (...) v = 1; else v = 2;` on one line: its arms only write registers, and are still shown."""
    result = visits(
        "if (vote) v = 1; else v = 2;",
        ("vote.sync.any.pred %p1, %p2, -1;", 1, ALL),
        ("@%p1 bra $L1;", 1, ALL),
        ("mov.u32 %r1, 1;", 1, EVEN),
        ("mov.u32 %r1, 2;", 1, ODD),
    )
    assert lines_and_lanes(result) == [(1, 32), (1, 16), (1, 16)]


@pytest.mark.parametrize("turns", [1, 3])
@pytest.mark.parametrize(
    "body", [[("add.s32 %r1, %r1, %r2;", 1, ALL), ("@%p1 bra $L1;", 1, ALL)], [("@%p1 bra $L1;", 1, ALL)]]
)
def test_each_iteration_of_a_one_line_loop_is_a_visit(body: list[tuple[str, int, int]], turns: int) -> None:
    result = visits("for (;;) sum += i;", *body * turns, pc=[*range(len(body))] * turns)
    assert result.begin.tolist() == [len(body) * turn for turn in range(turns)]


def test_step_without_a_line_joins_the_following_step() -> None:
    result = visits(
        "a\nb",
        ("add.s32 %r1, %r1, 1;", 1, EVEN),
        ("setp.lt.s32 %p1, %r1, 1;", 0, ODD),
        ("@%p1 bra $L1;", 2, ODD),
    )
    assert result.line.tolist() == [1, 2]
    assert result.step_line.tolist() == [1, 2, 2]


def test_moves_between_lines() -> None:
    steps = TraceSteps(warp_trace([0, 1, 2, 3, 4, 5], line=np.array([0, 4, 4, 0, 5, 6], np.int32)))
    assert len(steps) == 6
    assert steps.line.tolist() == [4, 4, 4, 5, 5, 6]
    assert steps.moves["next_line"].tolist() == [3, 3, 3, 5, 5, 5]
    assert steps.moves["previous_line"].tolist() == [0, 0, 0, 0, 3, 3]
    assert {*steps.loops.moves} < {*steps.moves}
    assert steps.accesses.size == 0
    assert steps.moves["next_access"].tolist() == steps.moves["previous_access"].tolist() == [*range(6)]


def test_an_empty_trace_has_no_visits() -> None:
    assert len(find_visits(warp_trace([]))) == 0
