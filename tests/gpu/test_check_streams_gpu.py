"""``gl.check_streams`` on a real GPU: the same programs, right and wrong, as on the virtual one."""

from __future__ import annotations

import gc
import linecache
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from tests.session.stream_patterns import RIGHT, WRONG, N, idle_arrays, twice, two
from virtualgpu.errors import GpulabError, NotSupportedError

pytestmark = pytest.mark.gpu

# A kernel that is given an address counts as using the whole array there.
WHOLE_ARRAYS = {"kernels_with_the_whole_array_that_interleave"}
# What a host function does, what kernels read of the host's memory, and which page-locked blocks go back to
# CuPy's pool is not seen.
OF_THE_HOST = {
    "host_function_in_another_stream",
    "host_function_fills_what_another_stream_sends",
    "buffer_let_go_too_early",
    "zero_copy_changed_under_a_kernel",
}
# On a GPU the work may be over by the time the host asks, and then it is in order.
QUICK = {"host_asks_once_and_goes_on"}
# What a library's kernel reads is not known; the virtual GPU has none.
LIBRARIES = {"matrix_product_reads_too_early"}
# The virtual GPU that stands for a real one tells nothing of graphs' nodes.
GRAPHS = {name for name in (*RIGHT, *WRONG) if "graph" in name or "capture" in name}


@pytest.fixture(autouse=True)
def told(request: pytest.FixtureRequest) -> None:
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name", "")
    fake = request.config.getoption("--fake-gpu", default=False)
    if name in GRAPHS and fake:
        pytest.skip("needs hardware: nodes of graphs")
    if name in QUICK and not fake:
        pytest.skip("the work is over before the host asks")
    if name in LIBRARIES and not fake:
        pytest.skip("what a library's kernel reads is not known")


def checked(cp: Any, program: Any) -> Any:
    with gl.check_streams() as found:
        program(cp)
    assert "could not be read" not in found.record.left_out, found.record.left_out
    return found


@pytest.mark.parametrize("name", sorted(set(RIGHT) - WHOLE_ARRAYS))
def test_correct_programs_have_no_findings(cp: Any, name: str) -> None:
    found = checked(cp, RIGHT[name])
    assert not found.findings, found.describe()


@pytest.mark.parametrize("name", sorted(set(WRONG) - OF_THE_HOST))
def test_wrong_programs_have_findings(cp: Any, name: str) -> None:
    program, kinds = WRONG[name]
    found = checked(cp, program)
    assert {finding.kind for finding in found.findings} == kinds, found.describe()
    for finding in found.findings:
        for use in (finding.first, finding.second):
            assert use.source is not None
            assert use.source.file == "stream_patterns.py"
            assert use.source.text == linecache.getline(program.__code__.co_filename, use.source.line).strip()


def test_checks_do_not_nest(cp: Any) -> None:
    """CUPTI supports one subscriber per process; the outer check continues."""
    stream = cp.cuda.Stream(non_blocking=True)
    with gl.check_streams() as found:
        with pytest.raises(GpulabError, match="one subscriber"), gl.check_streams():
            pass
        x = cp.arange(1000.0)
        with stream:
            y = x * 2
    assert [finding.kind for finding in found.findings] == ["read after write"]
    del y
    assert not checked(cp, lambda cp: cp.arange(10) + 1).findings


@pytest.mark.parametrize("before", [True, False])
def test_waiting_for_an_event_from_before_the_check_is_valid(cp: Any, before: bool) -> None:
    a = cp.cuda.Stream(non_blocking=True)
    b = cp.cuda.Stream(non_blocking=True)
    x = cp.arange(1000.0)
    event = cp.cuda.Event()
    event.record()
    with gl.check_streams() as found:
        with a:
            x += 1
        b.wait_event(event if before else cp.cuda.Event())
        with b:
            y = x * 2
    del y
    assert "for an event that has not been recorded" in str(found) or before
    assert "nothing orders the two" in str(found) or not before


def test_kernels_and_arrays_from_before_the_check_are_known(cp: Any) -> None:
    """Two launches read one array and write one each: no order is needed."""
    kernel, (x, y, z), (a, b) = twice(cp), idle_arrays(cp, N, N, N), two(cp)
    gc.collect()
    with gl.check_streams() as found:
        for stream, target in ((a, y), (b, z)):
            with stream:
                kernel((16,), (256,), (x, target, np.int32(N)))
    assert not found.findings, found.describe()


def test_a_timeline_and_a_check_run_at_the_same_time(cp: Any) -> None:
    with gl.timeline() as t, gl.check_streams() as found:
        _ = cp.arange(1000.0) * 2
    assert sum(a.kind == "CONCURRENT_KERNEL" for a in t.record.activities) >= 2
    assert found.record.operations >= 2


def test_another_active_profiling_tool_is_reported(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    with pytest.raises(GpulabError, match="Nsight Systems"), gl.check_streams():
        pass


def test_without_cupti_a_virtual_gpu_is_offered(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpulab.real.cupti import library

    monkeypatch.setattr(library, "load_cupti", lambda: None)
    with pytest.raises(NotSupportedError, match=r'use_device\("virtual"\)'), gl.check_streams():
        pass
