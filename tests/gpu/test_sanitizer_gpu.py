"""A real GPU under compute-sanitizer says of the wrong kernels what the recording says."""

from __future__ import annotations

import concurrent.futures
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.engine.faulty_kernels import BY_NAME
from tests.gpu.sanitizer_verdicts import AT_ONCE, verdict

pytestmark = pytest.mark.gpu

RECORDED = json.loads(
    (Path(__file__).parent.parent / "engine" / "data" / "sanitizer_h200.json").read_text(encoding="utf-8")
)["verdicts"]
# One of each tool and kind of report, and one each that a tool does not see.
NAMES = (
    "global_read_past_end",
    "use_after_free",
    "misaligned_float4",
    "shared_static_past_end",
    "missing_barrier",
    "all_write_one_value",
    "missing_syncwarp",
    "global_never_written",
    "barrier_in_one_branch",
    "syncwarp_outside_its_mask",
    "device_assert",
    "lost_update",
    "shuffle_from_absent_lanes",
)


@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="needs compute-sanitizer")
def test_verdicts_equal_the_recording() -> None:
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(NAMES, pool.map(lambda name: verdict(BY_NAME[name]), NAMES), strict=True))
    for name, theirs in found.items():
        wanted = RECORDED[name]
        told = {key: theirs.get(key) for key in ("plain", "tool", "lines", "block")}
        assert told == {key: wanted.get(key) for key in told}, name
        assert theirs.get("words", [])[:1] == wanted.get("words", [])[:1], name
        assert bool(theirs["errors"]) == bool(wanted["errors"]), name


def test_a_fault_is_found_and_the_context_survives() -> None:
    for needed in ("llvmlite", "platformdirs"):
        pytest.importorskip(needed, reason=f"the virtual GPU needs {needed}")
    import cupy

    import gpulab as gl

    gl.use_device("cuda")
    x = cupy.arange(100, dtype=np.float32)
    kernel = cupy.RawKernel(BY_NAME["global_write_past_end"].code, "k")
    report = gl.sanitize(kernel, 1, 32, (x,))
    assert report.fault == "IllegalAddressError"
    assert report.hazards[0].second.thread == (10, 0, 0)
    assert "Executed on the virtual GPU" in repr(report)
    assert np.array_equal(x.get(), np.arange(100, dtype=np.float32))
