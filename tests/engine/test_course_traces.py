"""A full trace of one warp of each kernel of the course that uses shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpulab import session
from tests.trace_state import shared_at
from tools.corpus import CASES, Case
from virtualgpu.launch import debugging
from virtualgpu.protocol import Launch, Warp


@pytest.fixture(autouse=True)
def on_a_virtual_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(debugging, "run_debug_build", lambda *_: debugging.DebugBuild())  # no variables
    session.use_device("virtual:A100")
    yield
    session.use_device("auto")


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.shared_bytes or "__shared__" in case.code],
    ids=lambda case: case.name,
)
def test_a_full_trace_reproduces_the_shared_memory(case: Case, capfd: pytest.CaptureFixture[str]) -> None:
    cp = session.cp()
    args: list[Any] = [cp.asarray(v) if isinstance(v, np.ndarray) else v for v in case.make_args(1).values]
    kernel = cp.RawKernel(case.code, case.kernel, options=case.options)
    launch = Launch.of(kernel, case.grid, case.block, args, case.shared_bytes)
    trace = session.backend().observe(launch, Warp())
    assert not trace.truncated
    assert trace.detail is not None
    # What was recorded of all warps' writes is what the block's shared memory held in the end.
    shared = trace.detail.shared
    memory, written = shared_at(shared, np.iinfo(np.int64).max)
    assert shared.final is not None
    np.testing.assert_array_equal(memory[written], shared.final[written])
    assert np.all(shared.final[~written] == 0xFF)
