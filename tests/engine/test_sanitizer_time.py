"""Time runs out under checks: long kernels are reported as far as they came, endless ones as endless."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from virtualgpu.compile import nvrtc
from virtualgpu.cuda_errors import LaunchTimeoutError
from virtualgpu.sanitizer import run

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

LONG = """extern "C" __global__ void k(const float* x, float* y, int n) {
  __shared__ float s[256];
  int t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  float v = 0;
  for (int j = 0; j < n; j++) {
    for (int i = 0; i < 256; i++) v += s[i] * s[(i + t + j) % 256];
    __syncthreads();
  }
  y[blockIdx.x * 256 + t] = v;
}"""
RACY = LONG.replace("float v = 0;", "float v = s[t ^ 32]; s[t] = v;")
STUCK_AT_LAST = """extern "C" __global__ void k(const float* x, float* y, int n) {
  if (blockIdx.x == 63 && threadIdx.x == 0)
    while (n > 0) y[0] += 1;
}"""
ONE_STAYS = """extern "C" __global__ void k(const float* x, float* y, int n) {
  if (threadIdx.x < 200) return;
  while (n > 0) y[threadIdx.x] += 1;
}"""


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:A100"):
        gl.use_device(watchdog_s=0.2)
        yield


def sanitized(code: str, grid: int, turns: int) -> Any:
    x = cp.ones(256, np.float32)
    y = cp.zeros(256 * grid, np.float32)
    report = gl.sanitize(cp.RawKernel(code, "k"), grid, 256, (x, y, np.int32(turns)))
    assert not y.any(), "arrays get their contents back"
    return report


def test_a_timeout_while_blocks_end_returns_a_partial_report() -> None:
    report = sanitized(LONG, 4000, 6)
    assert report.clean
    assert not report.complete
    assert not report.fault
    assert 0 < report.blocks_checked < 4000
    assert report.verdict == f"{report.blocks_checked:,} of 4,000 blocks checked: nothing found."
    assert f"{report.blocks_checked:,} of 4,000 blocks" in report.left_out
    assert "gl.use_device(watchdog_s=0.6)" in report.left_out


def test_a_partial_report_contains_the_hazards_found_so_far() -> None:
    report = sanitized(RACY, 4000, 6)
    assert report.blocks_checked is not None
    assert {hazard.kind for hazard in report.hazards} == {"RAW", "WAR"}
    assert not report.clean


def test_a_block_that_ends_in_a_plain_launch_is_not_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    gl.use_device(watchdog_s=5)
    monkeypatch.setattr(run, "TIME_FACTOR", 0.02)
    report = sanitized(LONG, 1, 900)
    assert (report.blocks_checked, report.clean, report.fault) == (0, True, "")
    assert report.verdict.startswith("0 of 1 block checked")


@pytest.mark.parametrize("code", [STUCK_AT_LAST, ONE_STAYS], ids=["after 63 blocks", "after 200 threads"])
def test_a_launch_in_which_no_block_ends_is_endless(code: str) -> None:
    report = sanitized(code, 64, 1)
    assert report.fault == "LaunchTimeoutError"
    assert report.hazards[0].kind == "endless"
    assert "Look for a loop that cannot end" in report.hazards[0].message
    assert report.blocks_checked is None
    assert not report.complete


def test_a_plain_launch_in_which_blocks_end_is_not_endless() -> None:
    x = cp.ones(256, np.float32)
    y = cp.zeros(256 * 65_000, np.float32)
    with pytest.raises(
        LaunchTimeoutError, match=r"after [\d,]+ of its 65,000 blocks.*The launch was still making progress"
    ):
        cp.RawKernel(LONG, "k")((65_000,), (256,), (x, y, np.int32(100)))
