"""The pipeline of a block, compared with positions computed by hand, the sanitizer and a schedule."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from gpulab.analysis.pipeline.find import find_pipeline
from gpulab.analysis.pipeline.record import Pipeline
from gpulab_course.content.n18_tensor_cores import versions
from tests.answers import n18_tensor_cores
from tests.views.pipelines import block, copies_ahead, stores
from virtualgpu.compile import nvrtc
from virtualgpu.errors import GpulabError
from virtualgpu.launch import debugging
from virtualgpu.records.warp.columns import SHARED_ACCESS_KINDS

needs_headers = pytest.mark.skipif(
    not nvrtc.is_available() or not nvrtc.find_include_options(),
    reason="NVRTC or the CUDA headers are not installed",
)
TILES = 6


# -- hand-written traces -----------------------------------------------------------------------------------


def test_positions_of_fills_and_uses_with_three_buffers() -> None:
    pipeline = find_pipeline(block([copies_ahead(3, 3)] * 2))
    # Each warp: copy, commit, copy, commit, wait, barrier (5), copy, commit, read (8), wait, barrier (10).
    assert [(fill.buffer, fill.start, fill.landed) for fill in pipeline.fills] == [
        (0, 0, 4),
        (1, 2, 9),
        (2, 6, 13),
    ]
    assert [(use.buffer, use.fill, use.start, use.end) for use in pipeline.uses] == [
        (0, 0, 8, 9),
        (1, 0, 12, 13),
        (2, 0, 16, 17),
    ]
    assert [m.position for m in pipeline.marks if m.kind == "barrier"] == [5, 10, 14]
    assert [m.pending for m in pipeline.marks if m.kind == "wait"] == [1, 1, 1]
    assert all(mark.warps == (0, 1) for mark in pipeline.marks)
    assert [iteration.position for iteration in pipeline.iterations] == [4, 9, 13]
    assert pipeline.length == 17
    assert pipeline.mistakes == ()


@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_a_copy_is_in_flight_for_its_prefetch_distance(stages: int) -> None:
    pipeline = find_pipeline(block([copies_ahead(stages, 12)] * 3))
    starts = np.array([iteration.position for iteration in pipeline.iterations])
    assert len(starts) == 12
    for fill in pipeline.fills:
        tile = fill.number * stages + fill.buffer
        started = np.searchsorted(starts, fill.start, side="right") - 1
        assert started == max(-1, tile - stages + 1)
        # One group may stay in flight, so tile t is waited for in iteration t, or two iterations earlier
        # if more copies than two are ahead.
        waited = np.searchsorted(starts, fill.landed, side="right") - 1
        assert waited == (tile if stages <= 3 else max(0, tile - stages + 3))
    uses = [(use.buffer, use.fill) for use in sorted(pipeline.uses, key=lambda use: use.start)]
    assert uses == [(tile % stages, tile // stages) for tile in range(12)]
    assert pipeline.mistakes == ()


@pytest.mark.parametrize(
    ("left_out", "kinds"), [("wait for all", {"early"}), ("barrier", {"early", "overwritten"})]
)
def test_a_missing_wait_or_barrier_is_a_mistake(left_out: str, kinds: set[str]) -> None:
    pipeline = find_pipeline(block([copies_ahead(2, TILES, [left_out])] * 2))
    assert {mistake.kind for mistake in pipeline.mistakes} == kinds
    assert all((m.use.line, m.fill.line) == (10, 8) for m in pipeline.mistakes)
    (early,) = (m for m in pipeline.mistakes if m.kind == "early")
    # Every read of both warps, of the other warp's part.
    assert early.count == 2 * TILES
    assert early.use.warp != early.fill.warp
    assert [*early.fills] == [(buffer, number) for buffer in (0, 1) for number in range(TILES // 2)]
    first_fill = min(fill.start for fill in pipeline.fills)
    assert early.fill.position == first_fill


def test_stores_without_waits_are_separated_by_reads() -> None:
    program = [step for step in stores(TILES) if step[0] != "barrier"]
    pipeline = find_pipeline(block([program] * 2))
    # Without waits, the first two stores belong together; then each one follows a read.
    assert {mistake.kind for mistake in pipeline.mistakes} == {"early", "overwritten"}
    assert sum(buffer.size_bytes for buffer in pipeline.buffers) == 2 * 2 * 512
    assert len(pipeline.fills) >= TILES - 1


def test_stores_before_the_barrier_overwrite_the_buffer() -> None:
    program = stores(TILES)
    assert find_pipeline(block([program] * 2)).mistakes == ()
    assert not any(fill.asynchronous for fill in find_pipeline(block([program] * 2)).fills)
    # The store of iteration 2 moves before the barrier that ends iteration 1, whose buffer it fills.
    at = [n for n, step in enumerate(program) if step[0] == "barrier"][2]
    moved = [*program]
    moved[at], moved[at + 1] = moved[at + 1], moved[at]
    (mistake,) = find_pipeline(block([moved] * 2)).mistakes
    assert (mistake.kind, mistake.use.line, mistake.fill.line) == ("overwritten", 10, 8)
    assert mistake.fills == ((1, 1),)


def test_atomic_and_volatile_accesses_are_ignored() -> None:
    trace = block([copies_ahead(2, TILES, ["barrier"])] * 2)
    assert trace.accesses is not None
    atomic = replace(
        trace.accesses,
        kind=np.where(trace.accesses.kind == SHARED_ACCESS_KINDS.index("load"), 2, trace.accesses.kind),
    )
    with pytest.raises(GpulabError, match="no pipeline"):
        find_pipeline(replace(trace, accesses=atomic))
    texts = tuple(t.replace("ld.shared", "ld.volatile.shared") for t in trace.warps[0].instruction)
    volatile = tuple(replace(warp, instruction=texts) for warp in trace.warps)
    with pytest.raises(GpulabError, match="no pipeline"):
        find_pipeline(replace(trace, warps=volatile))


def test_an_error_explains_why_a_block_has_no_pipeline() -> None:
    with pytest.raises(GpulabError, match="does not fill shared memory"):
        find_pipeline(block([[("barrier", 0)]] * 2))
    with pytest.raises(GpulabError, match="once"):
        find_pipeline(block([[("store", 0), ("barrier", 0), ("read", 0)]] * 2))
    once = find_pipeline(block([copies_ahead(2, 1)] * 2))  # copies are a pipeline, even for one tile
    assert len(once.fills) == 1


# -- kernels -----------------------------------------------------------------------------------------------


def product(text: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a kernel of the exercise 18-stages and arguments for one block."""
    k = 32 * TILES
    arrays = cp.ones((32, k), "f2"), cp.ones((k, 32), "f2"), cp.zeros((32, 32), "f4")
    return cp.RawKernel(text, "product"), (*arrays, np.int32(32), np.int32(k))


@pytest.fixture(autouse=True)
def no_debug_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a debug build fail. It takes seconds, and no pipeline needs the variables that it finds."""

    def fail(*_: Any) -> None:
        raise AssertionError("gl.pipeline must not make a debug build")

    monkeypatch.setattr(debugging, "run_debug_build", fail)


def found(text: str, device: str = "virtual:A100") -> Pipeline:
    """Return the pipeline of an answer."""
    with session.on_device(device):
        kernel, args = product(text)
        return gl.pipeline(kernel, 1, 128, args).record


def hazards_in_shared_memory(text: str) -> list[Any]:
    """Return the hazards that the sanitizer finds in an answer."""
    with session.on_device("virtual:A100"):
        kernel, args = product(text)
        hazards = gl.sanitize(kernel, 1, 128, args).record.hazards
    return [hazard for hazard in hazards if hazard.space == "shared"]


def line_of(text: str, part: str) -> int:
    return next(number for number, line in enumerate(text.split("\n"), 1) if part in line)


ANSWERS = {answer.what: answer.answer for answer in n18_tensor_cores._PIPELINES}
RIGHT = ("one buffer", "waits for all copies", "four buffers")
WRONG = {
    "waits for one tile too few": {"early"},
    "no barrier": {"early", "overwritten"},
    "copies before the barrier": {"overwritten"},
    "no group for a missing tile": {"early"},
}


@needs_headers
@pytest.mark.parametrize("name", RIGHT)
def test_kernels_with_correct_waits_have_no_mistakes(name: str) -> None:
    text = ANSWERS[name]
    pipeline = found(text)
    assert pipeline.mistakes == ()
    buffers = {"one buffer": 1, "four buffers": 4}.get(name, 3)
    assert [(b.start_byte, b.size_bytes) for b in pipeline.buffers] == [
        (4096 * n, 4096) for n in range(buffers)
    ]
    assert len(pipeline.fills) == len(pipeline.uses) == TILES
    in_flight = len(pipeline.overlapped())
    assert in_flight == (0 if name == "one buffer" else 4 if name == "waits for all copies" else TILES - 1)
    copies = {
        line_of(text, "&to[0]" if buffers > 1 else "&tile[0][0][8"),
        line_of(text, "__pipeline_memcpy_async"),
    }
    assert copies <= {line for fill in pipeline.fills for line in fill.lines}
    waits = {number for number, line in enumerate(text.split("\n"), 1) if "__pipeline_wait_prior" in line}
    assert {mark.line for mark in pipeline.marks if mark.kind == "wait"} <= waits
    barriers = {number for number, line in enumerate(text.split("\n"), 1) if "__syncthreads" in line}
    assert {mark.line for mark in pipeline.marks if mark.kind == "barrier"} == barriers


@needs_headers
@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_on_the_lines_found_by_the_sanitizer(name: str) -> None:
    text = ANSWERS[name]
    pipeline = found(text)
    assert {mistake.kind for mistake in pipeline.mistakes} == WRONG[name]
    reads = {number for number, line in enumerate(text.split("\n"), 1) if "load_matrix_sync" in line}
    copies = {number for number, line in enumerate(text.split("\n"), 1) if "__pipeline_memcpy_async" in line}
    assert {mistake.use.line for mistake in pipeline.mistakes} == reads
    assert {mistake.fill.line for mistake in pipeline.mistakes} == copies
    pairs = {frozenset((m.use.line, m.fill.line)) for m in pipeline.mistakes}
    reported = {frozenset((h.first.line, h.second.line)) for h in hazards_in_shared_memory(text) if h.first}
    assert pairs == {pair for pair in reported if pair & reads}  # others are two copies to one address
    if name == "no group for a missing tile":
        assert {pair for mistake in pipeline.mistakes for pair in mistake.fills} == {(2, 1)}  # the last tile


@needs_headers
def test_copies_into_a_buffer_in_use_are_mistakes() -> None:
    pipeline = found(ANSWERS["copies into the buffer in use"])
    overwriting = [m for m in pipeline.mistakes if m.kind == "overwritten"]
    assert {pair for m in overwriting for pair in m.fills} == {(0, 1), (1, 1)}
    assert all(m.fill.position < m.use.position for m in overwriting)


@needs_headers
def test_a_device_without_asynchronous_copies_uses_stores() -> None:
    pipeline = found(ANSWERS["three buffers"], "virtual:T4")
    assert not any(fill.asynchronous for fill in pipeline.fills)
    assert len(pipeline.buffers) == 3
    assert pipeline.mistakes == ()


@needs_headers
def test_the_matmul_of_the_notebook_overlaps_its_copies() -> None:
    with session.on_device("virtual:A100"):
        a, b, c = cp.ones((64, 448), "f2"), cp.ones((448, 64), "f2"), cp.zeros((64, 64), "f4")
        for name, overlapped in (("stages", 6), ("registers", 0)):
            run = gl.launch(**versions.launch(name, a, b, c))
            pipeline = run.pipeline().record
            assert len(pipeline.overlapped()) == overlapped
            assert (len(pipeline.fills), pipeline.mistakes) == (7, ())
            run.close()


HEADERS = "#include <cuda/pipeline>\n#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"
ROLES = """
extern "C" __global__ void k(const float4* x, float* y, int tiles) {
    __shared__ float4 buffer[2][32];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(cg::this_thread_block(), &state, role);
    int lane = threadIdx.x % 32;
    float sum = 0;
    for (int t = 0; t < tiles; ++t) {
        if (role == cuda::pipeline_role::producer) {
            pipe.producer_acquire();
            cuda::memcpy_async(&buffer[t % 2][lane], x + t * 32 + lane, cuda::aligned_size_t<16>(16), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            sum += buffer[t % 2][lane ^ 1].x;
            pipe.consumer_release();
        }
    }
    if (threadIdx.x >= 32) y[threadIdx.x - 32] = sum;
}"""


def of_roles(text: str, device: str) -> Pipeline:
    with session.on_device(device):
        kernel = cp.RawKernel(HEADERS + text, "k", options=("--std=c++17",))
        return gl.pipeline(
            kernel, 1, 96, (cp.ones(128 * TILES, "f4"), cp.zeros(64, "f4"), np.int32(TILES))
        ).record


@needs_headers
@pytest.mark.filterwarnings("ignore::virtualgpu.errors.SourceWarning")
@pytest.mark.parametrize("device", ["virtual:A100", "virtual:H100"])
def test_producer_and_consumer_warps_are_recognized(device: str) -> None:
    pipeline = of_roles(ROLES, device)
    assert pipeline.mistakes == ()
    assert {fill.warps for fill in pipeline.fills} == {(0,)}
    assert {use.warps for use in pipeline.uses} == {(1, 2)}
    assert len(pipeline.fills) == TILES
    code = HEADERS + ROLES
    assert {line for fill in pipeline.fills for line in fill.wait_lines} == {line_of(code, "consumer_wait")}
    for use in pipeline.uses:
        (fill,) = (f for f in pipeline.fills if (f.buffer, f.number) == (use.buffer, use.fill))
        assert fill.start < fill.landed < use.start
        later = [f for f in pipeline.fills if (f.buffer, f.number) == (use.buffer, use.fill + 1)]
        assert all(f.start >= use.end for f in later)


@needs_headers
@pytest.mark.filterwarnings("ignore::virtualgpu.errors.SourceWarning")
@pytest.mark.parametrize(
    ("left_out", "kind"), [("pipe.consumer_wait();", "early"), ("pipe.producer_acquire();", "overwritten")]
)
def test_a_producer_or_consumer_without_a_wait_is_a_mistake(left_out: str, kind: str) -> None:
    text = ROLES.replace(left_out, "")
    pipeline = of_roles(text, "virtual:A100")
    code = HEADERS + text
    lines = {(m.use.line, m.fill.line) for m in pipeline.mistakes}
    assert lines == {(line_of(code, "sum +="), line_of(code, "memcpy_async"))}
    assert kind in {m.kind for m in pipeline.mistakes}


@needs_headers
def test_a_kernel_without_shared_memory_refers_to_gl_warps() -> None:
    with session.on_device("virtual:A100"):
        kernel = cp.RawKernel('extern "C" __global__ void k(float* x) { x[threadIdx.x] = 1; }', "k")
        with pytest.raises(GpulabError, match=re.escape("gl.warps")):
            gl.pipeline(kernel, 1, 32, (cp.zeros(32, "f4"),))
