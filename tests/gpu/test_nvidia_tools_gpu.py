"""compute-sanitizer and Nsight Compute on a GPU, each in a process of its own beside this one's context."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.lab.faults import nvidia
from tests.engine.faulty_kernels import BY_NAME, arguments
from virtualgpu.compile.toolkit import find_tool
from virtualgpu.errors import ToolMissingError
from virtualgpu.protocol import Launch

pytestmark = pytest.mark.gpu

RECORDED = json.loads(
    (Path(__file__).parent.parent / "engine" / "data" / "sanitizer_h200.json").read_text(encoding="utf-8")
)["verdicts"]
N = 1 << 20


def needs(tool: str) -> Any:
    try:
        return pytest.mark.skipif(not find_tool(tool), reason=f"needs {tool}")
    except ToolMissingError as why:
        return pytest.mark.skip(reason=str(why))


def theirs(name: str, cp: Any, limit_s: float = 60.0, tools: tuple[str, ...] = ()) -> Any:
    faulty = BY_NAME[name]
    args, _kept = arguments(faulty, cp)
    kernel = cp.RawKernel(faulty.code, "k")
    of = {"memcheck": "memory", "racecheck": "race", "initcheck": "init", "synccheck": "sync"}
    launch = Launch.of(kernel, faulty.grid, faulty.block, args, faulty.shared_bytes)
    return nvidia.run_sanitizer(launch, tools or (of[faulty.tool or "memcheck"],), limit_s)


@needs("compute-sanitizer")
@pytest.mark.parametrize(
    ("name", "kind", "space"),
    [
        ("global_read_past_end", "out of bounds", "global"),
        ("global_atomic_past_end", "out of bounds", "global"),
        ("misaligned_float4", "misaligned", "global"),
        ("shared_static_past_end", "out of bounds", "shared"),
        ("missing_barrier", "RAW", "shared"),
        ("shift_in_place", "WAR", "shared"),
        ("all_write_one_word", "WAW", "shared"),
        ("barrier_in_one_branch", "divergent barrier", ""),
        ("device_assert", "assert", ""),
    ],
)
def test_compute_sanitizer_finds_the_recorded_hazards(name: str, kind: str, space: str, cp: Any) -> None:
    x = cp.arange(4)
    report = theirs(name, cp)
    assert not report.unavailable
    assert not report.clean
    assert report.provenance.source == "measured"
    assert report.found(kind), report
    found = report.found(kind)[0]
    assert found.space == space
    lines = {place.line for each in report.hazards for place in (each.first, each.second) if place}
    assert lines >= set(RECORDED[name].get("lines", ())), (lines, report.hazards)
    if "block" in RECORDED[name]:
        assert found.second.block == tuple(RECORDED[name]["block"])
        assert found.second.thread == tuple(RECORDED[name]["thread"])
    assert (x + 1).get().tolist() == [1, 2, 3, 4]  # this context is unharmed


@needs("compute-sanitizer")
def test_a_correct_kernel_is_clean_for_all_four_tools(cp: Any) -> None:
    source = 'extern "C" __global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1; }'
    x = cp.ones(64, cp.float32)
    y = cp.zeros(64, cp.float32)
    report = gl.sanitize(cp.RawKernel(source, "k"), 1, 64, (x, y), tool="compute-sanitizer")
    assert report.clean, report
    assert report.tools == ("memory", "race", "init", "sync")
    assert y.get().sum() == 0  # it ran over copies


@needs("compute-sanitizer")
def test_reports_of_both_sanitizers_are_compared(cp: Any) -> None:
    faulty = BY_NAME["missing_barrier"]
    args, _kept = arguments(faulty, cp)
    step = cp.RawKernel(faulty.code, "k"), faulty.grid, faulty.block, tuple(args)
    shown = gl.sanitize(*step).compare(gl.sanitize(*step, tool="compute-sanitizer"))
    rows = shown.table().cells
    assert any("RAW" in ours and "RAW" in told for _, _, ours, told in rows), shown


@needs("compute-sanitizer")
def test_an_infinite_kernel_is_stopped_and_reported(cp: Any) -> None:
    report = theirs("endless_loop", cp, limit_s=10.0, tools=("memory",))
    assert "did not finish within 10 s" in report.unavailable
    assert cp.arange(3).sum().get() == 3


def counted(fn: Callable[..., Any], *args: Any) -> Any:
    record = gl.profile(fn, *args, counters=True).record
    if record.no_counters:
        assert "not available on this machine" in record.no_counters
        pytest.skip(record.no_counters)
    return {each.key: each for each in record.counters}


@needs("ncu")
def test_counters_equal_the_expected_arithmetic(cp: Any) -> None:
    source = r"""extern "C" __global__ void axpy(const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += 2.0f * x[i];
    }"""
    axpy = cp.RawKernel(source, "axpy")

    def program(x: Any, y: Any) -> None:
        for _ in range(3):
            axpy((N // 256,), (256,), (x, y, np.int32(N)))

    found = counted(program, cp.ones(N, cp.float32), cp.zeros(N, cp.float32))
    assert list(found) == ["axpy"]  # what loads and compiles is not counted
    axpy_counted = found["axpy"]
    assert axpy_counted.count == 3
    assert axpy_counted.sectors == 3 * 3 * N * 4 // 32
    assert axpy_counted.flop == 3 * 2 * N
    assert axpy_counted.warp_instructions % (3 * N // 32) == 0
    assert axpy_counted.dram_bytes is not None
    assert 0 <= axpy_counted.l1_hit_rate <= 1
    assert 0 <= axpy_counted.l2_hit_rate <= 1
    assert axpy_counted.time_ns > 0


@needs("ncu")
def test_counters_have_the_kernel_names_of_the_profile(cp: Any) -> None:
    def program(a: Any) -> Any:
        return (a * 2).sum()

    found = counted(program, cp.ones(N, cp.float32))
    keys = {kernel.key for kernel in gl.profile(program, cp.ones(N, cp.float32), warmup=1).record.kernels}
    assert set(found) == keys
