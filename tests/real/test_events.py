"""A timeline from pairs of events, where CUPTI is not there. With `--fake-gpu` on any machine."""

from __future__ import annotations

from typing import Any

import pytest

import gpulab as gl
from virtualgpu.records import Provenance

pytestmark = pytest.mark.gpu
HERE = Provenance("measured", "a device")


@pytest.fixture(autouse=True)
def on_the_gpu() -> Any:
    pytest.importorskip("cupy")
    assert gl.use_device("auto").kind == "cuda"
    yield
    gl.use_device("auto")


def test_a_timeline_lasts_until_its_last_range_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work outlives the call that gave it out: the device goes on after the host has come to `stop`."""
    import cupy

    from gpulab.real.events import EventRecorder

    recorder = EventRecorder(HERE, "no CUPTI")
    recorder.start()
    cupy.cuda.nvtx.RangePush("outer")
    with recorder.record_range("inner"):
        pass
    cupy.cuda.nvtx.RangePop()
    since_ms = iter((2_000.0, 5_000_000.0, 1_000.0, 5_000_500.0))  # of each range, where it begins and ends
    monkeypatch.setattr(cupy.cuda, "get_elapsed_time", lambda *_: next(since_ms))
    timeline = recorder.stop()
    assert [item.name for item in timeline.activities] == ["outer", "inner"]
    assert timeline.end_ns - timeline.start_ns == 5_000_500_000_000
    assert [(item.name, item.depth) for item in timeline.ranges] == [("outer", 0), ("inner", 1)]
    assert getattr(cupy.cuda.nvtx.RangePush, "__module__", "") != "gpulab.real.events"
