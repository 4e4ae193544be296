"""The sandbox on a real GPU: its own context is lost, this one is not."""

from __future__ import annotations

from typing import Any

import pytest

import gpulab as gl
from tests.session.test_sandbox import faulty

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("kind", "status"), [("illegal", 700), ("assert", 710), ("misaligned", 716), ("trap", 719)]
)
def test_a_fault_is_reported_and_this_context_survives(kind: str, status: int) -> None:
    x = gl.cp.arange(4)
    record = gl.sandbox(faulty, kind).record
    assert record.status == status
    assert record.sticky
    assert record.raised is not None
    assert record.culprit is not None
    assert record.culprit.source is not None
    assert record.culprit.source.text == "kernel((2,), (32,), (x,))"
    assert (x + 1).get().tolist() == [1, 2, 3, 4]


def test_an_infinite_kernel_and_out_of_memory_are_reported() -> None:
    def endless() -> None:
        kernel = gl.cp.RawKernel('extern "C" __global__ void g(volatile int* x) { while (x[0] == 0); }', "g")
        x = gl.cp.zeros(1, dtype=gl.cp.int32)
        kernel((1,), (1,), (x,))
        x.get()

    def large() -> Any:
        return gl.cp.zeros(1 << 45)

    assert "processor time" in gl.sandbox(endless, limit_s=3).record.ended
    seen = gl.sandbox(large).record
    assert "OutOfMemoryError" in seen.error
    assert not seen.sticky
    assert gl.sandbox(lambda: gl.cp.arange(3), returns=True).result.get().tolist() == [0, 1, 2]
