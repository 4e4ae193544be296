"""``gl.sanitize``: every wrong kernel is found out, no right one is blamed, hardware agrees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from tests.engine.faulty_kernels import BY_NAME, CATALOGUE, HARMLESS, Faulty, arguments
from tools.corpus import CASES, Case
from virtualgpu.compile import nvrtc
from virtualgpu.cuda_errors import LaunchFailure
from virtualgpu.records import Hazard

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

WATCHDOG_S = 0.3
RECORDED = json.loads((Path(__file__).parent / "data" / "sanitizer_h200.json").read_text())["verdicts"]
QUIET = {"all_write_one_value", *(faulty.name for faulty in HARMLESS)}

# Where compute-sanitizer (its memcheck, racecheck, initcheck or synccheck) finds nothing.
ONLY_OURS = {
    "runs_into_the_next_array": "memcheck asks only whether some allocation is there",
    "constant_past_end": "memcheck does not look at constant memory",
    "shared_negative_index": "below the block's shared memory lies the driver's own, which memcheck allows",
    "local_past_end": "memcheck checks the thread's whole stack, not the array on it",
    "zeroed_without_barrier": "racecheck does not look at atomics",
    "blocks_write_one_word": "racecheck does not look at global memory",
    "lost_update": "racecheck does not look at global memory",
    "stencil_in_place": "racecheck does not look at global memory",
    "global_exchange_without_barrier": "racecheck does not look at global memory",
    "last_block_without_fence": "racecheck does not look at global memory",
    "shared_never_written": "initcheck looks at global memory only",
    "local_never_written": "initcheck looks at global memory only",
    "shuffle_from_absent_lanes": "synccheck does not look at shuffles",
    "shuffle_from_exited_lanes": "synccheck does not look at shuffles",
    "lane_outside_its_mask": "synccheck looks at barriers and __syncwarp only",
    "ballot_outside_its_mask": "synccheck looks at barriers and __syncwarp only",
}
# On the H200 these hang, under synccheck too.
HANGING = {
    "barrier_in_both_branches",
    "barrier_in_divergent_loop",
    "named_barrier_of_too_few",
    "two_named_barriers",
    "two_shuffles_wait_for_each_other",
    "endless_loop",
    "endless_in_one_lane",
    "warps_wait_for_each_other",
    "block_waits_for_itself",
}
NO_TOOL = {"root_of_a_negative", "zero_over_zero"}


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:H200"):
        gl.use_device(watchdog_s=WATCHDOG_S)
        yield


def sanitize(faulty: Faulty, **options: Any) -> Any:
    args, _kept = arguments(faulty, gl.cp)
    kernel = gl.cp.RawKernel(faulty.code, "k")
    return gl.sanitize(
        kernel, faulty.grid, faulty.block, args, shared_mem=faulty.shared_bytes, nan=faulty.nan, **options
    )


def main_hazards(report: Any) -> list[Hazard]:
    return [hazard for hazard in report.hazards if hazard.severity != "info"]


def check_recorded(name: str, report: Any) -> None:
    """Compare a report with what compute-sanitizer said on an H200."""
    verdict = RECORDED[name]
    if not verdict["errors"]:
        assert report.clean
        return
    words = verdict["words"][0]
    access = re.match(r"Invalid __(\w+)__ (read|write|atomic) of size (\d+) bytes", words)
    race = re.search(r"Potential (\w+) hazard detected at __shared__", words)
    if race:
        kinds = {(h.first.line, h.second.line) for h in report.found(race[1]) if h.space == "shared"}
        assert any(set(pair) == set(verdict["lines"]) for pair in kinds), repr(report)
        assert words.startswith("Warning") == (report.found(race[1])[0].severity == "warning")
        return
    hazard = report.hazards[0]
    if "thread" in verdict:
        assert list(hazard.second.thread) == verdict["thread"]
        assert list(hazard.second.block) == verdict["block"]
    if verdict.get("lines") and hazard.kind not in ("stack overflow", "trap"):
        assert hazard.second.line in verdict["lines"]
    if access:
        verb = {"read": "read", "write": "wrote", "atomic": "updated"}[access[2]]
        assert hazard.space == access[1]
        assert f"{verb} {access[3]} bytes" in hazard.message
        assert hazard.kind in ("out of bounds", "misaligned")
        return
    kinds_by_words = {
        "Uninitialized __global__ memory read": "uninitialised read",
        "Barrier error detected. Divergent thread(s) in warp": "divergent barrier",
        "Barrier error detected. Invalid arguments": "lane outside its mask",
        "Warp assert": "assert",
        "Trace/breakpoint trap": "trap",
        "Stack overflow": "stack overflow",
    }
    assert hazard.kind == next(kind for start, kind in kinds_by_words.items() if words.startswith(start))


@pytest.mark.parametrize("faulty", CATALOGUE, ids=lambda faulty: faulty.name)
def test_each_kernel_of_the_catalogue_has_its_verdict(faulty: Faulty) -> None:
    report = sanitize(faulty)
    if faulty.name not in {*ONLY_OURS, *HANGING, *NO_TOOL}:
        check_recorded(faulty.name, report)
    assert report.provenance.source == "modelled"
    if faulty.name in QUIET:
        assert report.clean, repr(report)
        return
    assert not report.clean
    if faulty.fault is not None:
        assert report.fault == faulty.fault.error
        hazard = report.hazards[0]
        assert hazard.kind == faulty.fault.kind
        assert hazard.severity == "error"
        assert hazard.second.line in faulty.lines()
        assert hazard.second.block == (faulty.fault.block or hazard.second.block)
        assert hazard.second.thread == (faulty.fault.thread or hazard.second.thread)
        assert hazard.message in repr(report).replace("Kernel 'k'", "kernel 'k'")
        return
    assert not report.fault
    hazards = [h for h in main_hazards(report) if h.kind in faulty.hazards]
    assert {h.kind for h in hazards} == set(faulty.hazards), repr(report)
    for hazard in hazards:
        assert hazard.space == faulty.space
        assert hazard.count >= 1
    ends = {line for h in hazards for line in (h.second.line, h.first.line if h.first else h.second.line)}
    assert set(faulty.lines()) <= ends
    assert set(faulty.lines("//<")) <= ends


def test_hazard_names_threads_array_and_remedy() -> None:
    (race,) = sanitize(BY_NAME["missing_barrier"]).found("RAW")
    assert (race.first.thread, race.second.thread) == ((31, 0, 0), (32, 0, 0))
    assert race.address == 4 * 31
    assert race.array == "s[31]"
    assert "__syncthreads()" in race.message
    (race,) = sanitize(BY_NAME["missing_syncwarp"]).found("RAW")
    assert race.severity == "warning"
    assert "__syncwarp()" in race.message
    report = sanitize(BY_NAME["stencil_in_place"])
    across = [h for h in report.found("WAR") if h.first.block != h.second.block]
    assert across[0].second.block == (1, 0, 0)
    assert across[0].first.block == (0, 0, 0)
    assert across[0].array == "x[32]"
    assert "Blocks run in any order" in across[0].message


def test_report_as_text_and_html() -> None:
    report = sanitize(BY_NAME["missing_barrier"])
    text = repr(report)
    page = report._repr_html_()
    for words in (
        "executed on virtual H200",
        "order of blocks: in order",
        "RAW race, shared memory",
        "s[t] = x[i]",
    ):
        assert words in text
        assert words in page
    assert "<script" not in page
    hostile = gl.cp.RawKernel(
        'extern "C" __global__ void k(float* x) {\nx[0] = 1 <2 ? threadIdx.x : 0;\n}', "k"
    )
    page = gl.sanitize(hostile, 1, 32, (gl.cp.zeros(1, dtype=np.float32),))._repr_html_()
    assert "1 &lt;2" in page
    assert "1 <2" not in page
    clean = gl.sanitize(hostile, 1, 1, (gl.cp.zeros(1, dtype=np.float32),))
    assert "Nothing found." in repr(clean)
    assert clean.clean


def test_arrays_are_restored_after_a_clean_run_and_after_a_fault() -> None:
    x = gl.cp.arange(64, dtype=np.float32)
    kernel = gl.cp.RawKernel(
        'extern "C" __global__ void k(float* x, int n) { x[threadIdx.x] = -1; x[threadIdx.x + n] = 2; }', "k"
    )
    for offset, fault in ((0, ""), (40, "IllegalAddressError")):
        assert gl.sanitize(kernel, 1, 32, (x, np.int32(offset))).fault == fault
        assert np.array_equal(x.get(), np.arange(64, dtype=np.float32))


def test_a_fault_of_a_tool_that_was_not_chosen_is_raised() -> None:
    with pytest.raises(LaunchFailure, match="different barriers"):
        sanitize(BY_NAME["barrier_in_both_branches"], tools=("memory", "race"))
    assert sanitize(BY_NAME["missing_barrier"], tools=("memory", "sync")).clean
    assert sanitize(BY_NAME["shared_never_written"], tools=("race",)).clean
    with pytest.raises(ValueError, match="`tools` must be among"):
        sanitize(BY_NAME["missing_barrier"], tools=("lint",))
    with pytest.raises(ValueError, match="`block_order` must be one of"):
        sanitize(BY_NAME["missing_barrier"], block_order="sorted")


@pytest.mark.parametrize("order", ["reversed", "random"])
def test_races_are_found_in_any_order_of_blocks(order: str) -> None:
    for name in ("missing_barrier", "blocks_write_one_word", "lost_update", "stencil_in_place"):
        report = sanitize(BY_NAME[name], block_order=order, seed=3)
        assert not report.clean
    assert report.block_order.startswith(order)


FENCED = """__device__ unsigned count;
extern "C" __global__ void k(const float* x, float* y, float* z) {
  __shared__ bool last;
  int t = threadIdx.x;
  if (t == 0) {
    y[blockIdx.x] = x[blockIdx.x];
    __threadfence();
    last = atomicAdd(&count, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && t < gridDim.x) z[t] = y[t];
  if (last && t == 0) count = 0;
}"""
LOCKED = """__device__ int lock;
extern "C" __global__ void k(float* x) {
  for (int turn = 0; turn < 32; turn++)
    if (threadIdx.x % 32 == turn) {
      while (atomicCAS(&lock, 0, 1) != 0) { }
      __threadfence();
      x[0] = x[0] + 1;
      __threadfence();
      atomicExch(&lock, 0);
    }
}"""
WARP_TREE = """extern "C" __global__ void k(float* x) {
  __shared__ float s[64];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  if (t < 32) {
    for (int d = 32; d > 0; d /= 2) {
      float v = s[t] + s[(t + d) % 64];
      __syncwarp();
      s[t] = v;
      __syncwarp();
    }
  }
  __syncthreads();
  x[t] = s[0];
}"""
NAMED = """extern "C" __global__ void k(float* x) {
  __shared__ float s[128];
  int t = threadIdx.x, half = t / 64;
  s[t] = x[t];
  asm volatile("bar.sync %0, 64;" :: "r"(half + 1) : "memory");
  x[t] = s[64 * half + 63 - t % 64];
}"""
SUB_WORD = """extern "C" __global__ void k(char* x) {
  __shared__ char s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[63 - threadIdx.x];
}"""


COPIED = """#include <cuda_pipeline.h>
extern "C" __global__ void k(const float* x, float* y) {
  __shared__ float s[64];
  __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x];
}"""
BARRIER_OBJECT = """#include <cuda/barrier>
extern "C" __global__ void k(float* x) {
  __shared__ cuda::barrier<cuda::thread_scope_block> all;
  __shared__ float s[64];
  int t = threadIdx.x;
  if (t == 0) init(&all, blockDim.x);
  __syncthreads();
  for (int turn = 0; turn < 3; turn++) {
    s[t] = x[t];
    all.arrive_and_wait();
    x[t] = s[63 - t] + turn;
    all.arrive_and_wait();
  }
}"""
GRID = """#include <cooperative_groups.h>
extern "C" __global__ void k(float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  for (int turn = 0; turn < 3; turn++) {
    y[i] = x[n - 1 - i];
    cooperative_groups::this_grid().sync();
    x[i] = y[i] + turn;
    cooperative_groups::this_grid().sync();
  }
}"""
TILES = """#include <cooperative_groups.h>
extern "C" __global__ void k(float* x) {
  __shared__ float s[64];
  auto tile = cooperative_groups::tiled_partition<8>(cooperative_groups::this_thread_block());
  int t = threadIdx.x;
  s[t] = x[t];
  tile.sync();
  x[t] = s[t ^ 7];
}"""
MATRIX = """#include <mma.h>
extern "C" __global__ void k(float* x) {
  using namespace nvcuda;
  __shared__ half s[256];
  for (int i = threadIdx.x; i < 256; i += 32) s[i] = __float2half(x[i]);
  __syncwarp();
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;
  wmma::fill_fragment(c, 0.0f);
  wmma::load_matrix_sync(a, s, 16);
  wmma::load_matrix_sync(b, s, 16);
  wmma::mma_sync(c, a, b, c);
  __syncwarp();
  wmma::store_matrix_sync(x, c, 16, wmma::mem_row_major);
}"""


@pytest.mark.parametrize(
    ("code", "shape", "grid", "block"),
    [
        (FENCED, [(8,), (8,), (8,)], 8, 32),
        (LOCKED, [(1,)], 3, 64),
        (WARP_TREE, [(64,)], 1, 64),
        (NAMED, [(128,)], 1, 128),
        (COPIED, [(64,), (64,)], 1, 64),
        (BARRIER_OBJECT, [(64,)], 1, 64),
        (GRID, [(128,), (128,)], 4, 32),
        (TILES, [(64,)], 1, 64),
        (MATRIX, [(256,)], 1, 32),
    ],
    ids=[
        "fence and atomic",
        "lock",
        "syncwarp",
        "named barriers",
        "asynchronous copy",
        "barrier object",
        "grid sync",
        "tiles",
        "matrix",
    ],
)
def test_synchronised_kernels_have_no_hazards(code: str, shape: Any, grid: int, block: int) -> None:
    args = [gl.cp.ones(size, dtype=np.float32) for size in shape]
    gl.use_device(watchdog_s=20)
    kernel = gl.cp.RawKernel(code, "k", enable_cooperative_groups="this_grid" in code)
    report = gl.sanitize(kernel, grid, block, args)
    assert report.clean, repr(report)
    if "tile.sync" in code or "this_grid().sync" in code:
        less = re.sub(r"tile\.sync\(\);|cooperative_groups::this_grid\(\)\.sync\(\);", "", code)
        assert not gl.sanitize(gl.cp.RawKernel(less, "k"), grid, block, args).clean


def test_bytes_of_one_word_are_checked_separately() -> None:
    x = gl.cp.arange(64, dtype=np.int8)
    assert gl.sanitize(gl.cp.RawKernel(SUB_WORD, "k"), 1, 64, (x,)).clean
    racy = SUB_WORD.replace("63 - threadIdx.x", "threadIdx.x ^ 1").replace("  __syncthreads();\n", "")
    (race,) = gl.sanitize(gl.cp.RawKernel(racy, "k"), 1, 64, (x,)).found("RAW")
    assert race.count == 64


def test_wrong_named_barriers_of_two_halves_are_a_race() -> None:
    x = gl.cp.ones(128, dtype=np.float32)
    code = NAMED.replace('"r"(half + 1)', '"r"(t / 32 % 2 + 1)')
    report = gl.sanitize(gl.cp.RawKernel(code, "k"), 1, 128, (x,))
    assert {(h.kind, h.space) for h in main_hazards(report)} >= {("RAW", "shared")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_courses_own_kernels_are_clean(case: Case) -> None:
    gl.use_device(watchdog_s=20)
    kernel = gl.cp.RawKernel(case.code, case.kernel, case.options)
    values = tuple(gl.cp.asarray(v) if isinstance(v, np.ndarray) else v for v in case.make_args(0).values)
    report = gl.sanitize(kernel, case.grid, case.block, values, shared_mem=case.shared_bytes)
    assert report.clean, report.hazards


# Against the recording of compute-sanitizer on an H200


def test_the_recording_covers_the_catalogue() -> None:
    assert set(RECORDED) == {faulty.name for faulty in CATALOGUE}
    assert {name for name, verdict in RECORDED.items() if verdict["plain"] == "hangs"} == HANGING
    silent = {
        name
        for name, verdict in RECORDED.items()
        if name not in HANGING | NO_TOOL | QUIET and not verdict["errors"]
    }
    assert silent == set(ONLY_OURS)
