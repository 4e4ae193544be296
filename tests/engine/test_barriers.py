"""``gl.sanitize`` on barriers that threads reach together or not, beside compute-sanitizer's synccheck."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from tests.engine.barriers import ALL, Barrier
from virtualgpu.compile import nvrtc
from virtualgpu.cuda_errors import LaunchFailure

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
RECORDED = json.loads((Path(__file__).parent / "data" / "synccheck.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:H200"):
        yield


def sanitized(pattern: Barrier, tools: tuple[str, ...] = ("sync",)) -> set[tuple[str, str]]:
    out = cp.zeros(256, np.int32)
    kernel = cp.RawKernel(pattern.code, "k")
    report = gl.sanitize(kernel, pattern.grid, pattern.block, (out, np.int32(8)), tools=tools)
    return {(hazard.kind, hazard.severity) for hazard in report.hazards if hazard.severity != "info"}


@pytest.mark.parametrize("pattern", ALL, ids=lambda pattern: pattern.name)
def test_pattern(pattern: Barrier) -> None:
    assert sanitized(pattern) == ({("divergent barrier", pattern.verdict)} if pattern.wrong else set())


@pytest.mark.parametrize("pattern", ALL, ids=lambda pattern: pattern.name)
def test_error_verdicts_equal_synccheck_on_an_h200(pattern: Barrier) -> None:
    verdict = RECORDED["verdicts"][pattern.name]
    assert bool(verdict.get("errors") or verdict.get("hangs")) == (pattern.verdict == "error")


def test_whole_warps_at_different_barriers_run_to_the_end() -> None:
    """As on GPUs: PTX counts arrivals by the barrier's number."""
    pattern = next(pattern for pattern in ALL if pattern.name == "halves of a block, one line")
    out = cp.zeros(256, np.int32)
    cp.RawKernel(pattern.code, "k")((1,), (64,), (out, np.int32(8)))
    t = np.arange(64)
    assert np.array_equal(out.get()[:64], np.where(t < 32, (t + 1) * 2, (t + 3) * 5))


def test_lanes_of_a_warp_at_different_barriers_are_a_fault() -> None:
    pattern = next(pattern for pattern in ALL if pattern.name == "both arms, one line")
    with pytest.raises(LaunchFailure, match=r"threads of one warp wait at different barriers \(of line"):
        cp.RawKernel(pattern.code, "k")((1,), (64,), (cp.zeros(256, np.int32), np.int32(8)))
    with pytest.raises(LaunchFailure):
        sanitized(pattern, tools=("race",))


def test_the_report_names_both_barriers() -> None:
    pattern = next(pattern for pattern in ALL if pattern.name == "halves of a block, two lines")
    report = gl.sanitize(
        cp.RawKernel(pattern.code, "k"), 1, 64, (cp.zeros(256, np.int32), np.int32(8)), tools=("sync",)
    )
    (hazard,) = report.found("divergent barrier")
    assert hazard.first is not None
    assert {hazard.first.line, hazard.second.line} == {2, 3}
    assert {hazard.first.thread, hazard.second.thread} == {(0, 0, 0), (32, 0, 0)}
    assert "undefined in CUDA C++" in hazard.message
