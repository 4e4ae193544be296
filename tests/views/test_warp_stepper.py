"""Steps, sentences and derived columns of a warp trace, compared with values counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp
from gpulab.views import WarpStepper
from gpulab.views.warp import step_text
from gpulab.views.warp.columns import SharedMemoryStates, encode_lane_rows, narrow_columns
from gpulab.views.warp.step_text import compare_masks, find_value_type
from gpulab.views.warp.steps import WarpSteps
from tests.trace_state import shared_at
from tests.views import synthetic
from virtualgpu.records.warp.columns import SharedWrites


@pytest.fixture
def steps() -> WarpSteps:
    return WarpSteps(synthetic.warp_trace(n=24))


def test_columns_are_sent_in_the_smallest_integer_types() -> None:
    columns = narrow_columns(
        {"line": np.array([0, 200]), "step": np.array([-1, 70_000]), "empty": np.array([], int)}
    )
    assert {name: column.itemsize for name, column in columns.items()} == {"line": 1, "step": 4, "empty": 1}
    assert columns["step"].tolist() == [-1, 70_000]


def test_next_line_moves_to_the_next_change_of_line(steps: WarpSteps) -> None:
    line = steps.trace.line.tolist()
    starts = [i for i in range(len(line)) if i == 0 or line[i] != line[i - 1]]
    following = [next((s for s in starts if s > i), i) for i in range(len(line))]
    assert steps.moves["next_line"].tolist() == following


def test_a_step_without_a_line_belongs_to_a_neighbouring_line(steps: WarpSteps) -> None:
    line = steps.trace.line.copy()
    line[[0, 3]] = 0
    # After the fourth step lanes part: it belongs to what they did together.
    assert WarpSteps(replace(steps.trace, line=line)).line.tolist()[:5] == [5, 5, 6, 6, 7]


def test_moves_to_the_next_and_previous_access_and_line(steps: WarpSteps) -> None:
    assert steps.accesses.tolist() == [4, 9, 11, 12]
    moves = {name: column.tolist() for name, column in steps.moves.items()}
    assert [moves["next_access"][s] for s in (0, 4, 12)] == [4, 9, 12]
    assert [moves["previous_access"][s] for s in (13, 4, 0)] == [12, 4, 0]
    assert [moves["next_line"][s] for s in (0, 2, 13)] == [2, 4, 13]
    assert [moves["previous_line"][s] for s in (3, 2, 0)] == [2, 0, 0]


def test_ideal_costs_are_computed_from_distinct_bytes(steps: WarpSteps) -> None:
    for index, step in enumerate(steps.accesses.tolist()):
        touched = {a for a in steps.trace.address[step].tolist() if a >= 0}
        size = 4 * len(touched)
        assert steps.ideal_sectors[index] == -(-size // 32)
        assert steps.ideal_wavefronts[index] == -(-size // 128)


def test_a_partial_last_warp_counts_only_its_threads() -> None:
    steps = WarpSteps(synthetic.warp_trace(threads=40, warp=1))
    assert steps.threads == 8
    assert "8 of 8 lanes active" in steps.sentence(0)


def test_stepping_stays_inside_the_trace() -> None:
    view = WarpStepper(synthetic.warp_trace())
    view.step -= 1
    assert view.step == 0
    view.step = 10_000
    assert view.step == len(view.trace) - 1
    assert view.describe().splitlines()[-1] == view.steps.sentence(view.step, by_line=True)
    view.close()


def rows_of(columns: dict[str, np.ndarray]) -> np.ndarray:
    """Rows of 32 values as the browser reads them."""
    out = np.zeros((columns["x_at"].size, 32), np.uint64)
    table = columns["x_table"].reshape(-1, 32).astype(np.uint64)
    for n, index in enumerate(columns["x_at"].tolist()):
        if index < 0:
            base = int(columns["x_base"][~index])
            stride = int(columns["x_stride"][~index])
            out[n] = [(base + stride * lane) % (1 << 64) for lane in range(32)]
        else:
            out[n] = table[index >> 1] | (
                table[(index >> 1) + 1] << np.uint64(32) if index & 1 else np.uint64(0)
            )
    return out


def test_encoded_lane_rows_can_be_decoded() -> None:
    random = np.random.default_rng(3)
    values = random.integers(0, 1 << 63, (60, 32), np.uint64)
    values[20:40] &= np.uint64(0xFFFFFFFF)
    values[:10] = np.arange(32, dtype=np.uint64) * np.uint64(40) + values[:10, :1]
    values[10:15] = values[10:15, :1] - np.arange(32, dtype=np.uint64)
    lanes = random.random((60, 32)) < random.random((60, 1))
    lanes[5] = False
    masks = (lanes << np.arange(32)).sum(axis=1).astype(np.uint32)
    packed = encode_lane_rows("x", values, masks)
    np.testing.assert_array_equal(rows_of(packed)[lanes], values[lanes])
    assert np.all(packed["x_at"][:15] < 0)
    assert packed["x_table"].size <= 32 * (20 + 2 * 25)


def test_an_empty_trace_still_displays() -> None:
    trace = synthetic.warp_trace(repeat=0)
    empty = replace(
        trace,
        address=np.zeros((0, 32), np.int64),
        value=np.zeros((0, 32), np.uint64),
        active_mask=np.zeros(0, np.uint32),
        executed_mask=np.zeros(0, np.uint32),
    )
    view = WarpStepper(empty)
    assert "0 instructions" in repr(view)
    assert view.png().startswith(b"\x89PNG")
    view.close()


def test_differing_masks_are_pointed_out() -> None:
    trace = synthetic.warp_trace(n=24)
    text = compare_masks(trace, synthetic.measured_blocks(trace, flip_at=2))
    assert text.startswith(
        "NVIDIA H200 differs: 5 of 6 basic blocks equal. First difference at block visit 3"
    )
    assert "(line 9): predicted mask 0x00555555, measured mask 0x00555554." in text


def test_paths_in_another_order_are_equal() -> None:
    trace = synthetic.warp_trace(n=24)
    measured = synthetic.measured_blocks(trace)
    order = [0, 1, 3, 2, 4, 5]
    swapped = replace(measured, pc=measured.pc[order], active_mask=measured.active_mask[order])
    assert "another order" in compare_masks(trace, swapped)


def test_a_missing_basic_block_counts_as_a_difference() -> None:
    trace = synthetic.warp_trace(n=24)
    measured = synthetic.measured_blocks(trace)
    doubled = replace(
        measured,
        pc=np.append(measured.pc, measured.pc[-1]),
        active_mask=np.append(measured.active_mask, measured.active_mask[-1]),
        line=np.append(measured.line, 16),
    )
    assert "6 of 7 basic blocks equal" in compare_masks(trace, doubled)


@pytest.mark.parametrize(
    ("text", "declared", "expected"),
    [
        ("mul.wide.s32 %rd1, %r1, 4;", "b64", "s64"),
        ("@%p1 add.f32 %r1, %r2, %r3;", ".b32", "f32"),
        ("mov.b32 %r1, 5;", "b32", "b32"),
        ("setp.lt.s32 %p1, %r1, %r2;", "pred", "pred"),
        ("ld.global.nc.u16 %rs1, [%rd1];", "b16", "u16"),
    ],
)
def test_value_types_are_taken_from_the_instruction(text: str, declared: str, expected: str) -> None:
    assert find_value_type(text, declared) == expected


def test_shared_memory_states_equal_the_replayed_writes() -> None:
    """Overlapping writes of 1, 2, 4 and 8 bytes, several per step, are compared with a simple replay."""
    random = np.random.default_rng(11)
    rows = 60
    size = 75
    width = 2 ** random.integers(0, 4, rows)
    shared = SharedWrites(
        size_bytes=size,
        sequence=np.sort(random.integers(0, 30, rows)),
        warp=np.zeros(rows, np.int16),
        mask=random.integers(0, 1 << 32, rows, np.uint32) & random.integers(0, 1 << 32, rows, np.uint32),
        offset=(random.integers(0, 9, (rows, 32)) * width[:, None] % 72).astype(np.int32),
        width_bytes=width.astype(np.int8),
        value=random.integers(0, 1 << 63, (rows, 32), np.uint64),
        type_index=np.zeros(rows, np.int16),
        types=("u32",),
    )
    states = SharedMemoryStates(shared)
    moments = np.arange(-1, 32)
    for moment, message in zip(moments.tolist(), states.find_sentence_indices(moments).tolist(), strict=True):
        memory, written = shared_at(shared, moment)
        assert states.sentences[message] == (
            f"Shared memory: {written.sum()} of {size} bytes written so far."
        )
        events = shared.sequence[states.row] <= moment
        words = np.full(states.words, 0xFFFFFFFF, np.uint32)
        for word in range(states.words):
            mine = np.flatnonzero(events & (states.word == word))
            if mine.size:
                words[word] = states.bits[mine[-1]]
        assert words.view(np.uint8)[:size].tolist() == memory.tolist()


WATCHED = r"""
extern "C" __global__ void counted(const int* w, int* x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = 0;
    #pragma unroll 1
    for (int k = 0; k < (i & 3); ++k) sum += w[k];
    if (i <= n) x[i] = sum;
}
"""


def watched_view(**options: object) -> WarpStepper:
    gl.use_device("virtual:A100")
    w = cp.arange(4, dtype=np.int32) + 1
    x = cp.zeros(64, dtype=np.int32)
    kernel = cp.RawKernel(WATCHED, "counted")
    return gl.warps(kernel, 1, 64, (w, x, np.int32(40)), **options)


def test_a_view_starts_at_its_first_stop() -> None:
    view = watched_view(watch=["sum", "x[i + 60]"], stop=["any(sum > 3)", "write x[41]"])
    (sums, write), trace = view.trace.stops, view.trace
    assert view.step == sums.step[0] > 0
    assert write.step.size == 0
    line = int(trace.line[view.step])
    message = f"Stop at any(sum > 3): 1 time, first at instruction {view.step + 1} (line {line})."
    assert message in repr(view)
    assert "Stop at write x[41]: never." in repr(view)
    assert "Stop 1 of 1, any(sum > 3): true in lane" in view.describe()
    assert view.describe().splitlines()[-2:] == ["sum in lane 0: 0", "x[i + 60] in lane 0: 0"]
    view.lane = 7
    assert view.describe().splitlines()[-2:] == [
        "sum in lane 7: 6",
        "x[i + 60] in lane 7: outside: the indices of x are 0 to 63",
    ]
    assert view.register == "sum"
    text_ = str(view.draw())
    assert message in text_
    assert "sum in lane 7: 6; x[i + 60] in lane 7: outside" in text_
    view.close()


def test_the_view_of_a_block_shows_the_warp_that_stops_first() -> None:
    view = watched_view(whole_block=True, stop="write x[40]")
    assert view.warp == 1
    assert view.trace.stops[0].lanes.tolist() == [1 << 8]
    assert view.step == view.trace.stops[0].step[0]
    assert f"first at instruction {view.step + 1} of warp 1 (line 8)." in repr(view)
    view.close()


def test_moves_between_stops_equal_a_linear_search() -> None:
    view = watched_view(stop=["line 7", "write sum"])
    steps = view.steps
    stops = sorted({step for stop in view.trace.stops for step in stop.step.tolist()})
    assert len(stops) > 4
    visit_of = steps.visits.visit_of_step.tolist()
    for step_ in range(len(steps)):
        ahead = [s for s in stops if s > step_]
        earlier_stops = [s for s in stops if s < step_]
        assert steps.moves["next_stop"][step_] == next(iter(ahead), step_)
        assert steps.moves["previous_stop"][step_] == (earlier_stops[-1] if earlier_stops else step_)
        later = [s for s in stops if visit_of[s] > visit_of[step_]]
        earlier = [s for s in stops if visit_of[s] < visit_of[step_]]
        assert steps.moves["next_stop_visit"][step_] == next(iter(later), step_)
        first = next((s for s in earlier if visit_of[s] == visit_of[earlier[-1]]), step_)
        assert steps.moves["previous_stop_visit"][step_] == first
    view.close()


def test_lanes_are_listed_as_ranges() -> None:
    assert step_text.list_lanes(0xFFFFFFFF) == "lanes 0 to 31"
    assert step_text.list_lanes(1 << 31) == "lane 31"
    assert step_text.list_lanes(0b1011) == "lanes 0 to 1 and 3"
    assert step_text.list_lanes(0x55555555) == "lanes 0, 2, 4 and 13 more"


@pytest.mark.parametrize(
    ("bits", "kind", "message"),
    [
        (3, "pred", "true"),
        (2, "pred", "false"),
        (0xFFFF_FF80, "s8", "-128"),
        (0xFFFF_FF80, "u8", "128"),
        (0xFFFF_FFFF_FFFF_FFFE, "s64", "-2"),
        (0x3FC0_0000, "f32", "1.5"),
        (0x3FF8_0000_0000_0000, "f64", "1.5"),
        (0x3E00, "f16", "1.5"),
    ],
)
def test_bits_are_formatted_by_type(bits: int, kind: str, message: str) -> None:
    assert step_text.format_bits(bits, kind) == message
