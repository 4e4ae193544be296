"""The tests of graphs once more, with CuPy itself in the virtual GPU's place."""

from __future__ import annotations

from typing import Any

import pytest

from tests.virtual import test_graphs
from tests.virtual.test_graphs import (  # noqa: F401  (collects these tests here too)
    TestDotOutput,
    TestRefusals,
    TestReplay,
    TestRuntimeFunctions,
    add,
)

pytestmark = pytest.mark.gpu


class TestResults:
    test_at_the_launch = TestReplay.test_a_launch_uses_the_inputs_at_launch_time
    test_in_place = TestReplay.test_writing_in_place_waits_for_the_launch


del TestReplay  # the rest of it reads the virtual GPU's log


@pytest.fixture(autouse=True)
def hardware(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests use CuPy."""
    for name, value in {
        "cp": cp,
        "runtime": cp.cuda.runtime,
        "Stream": cp.cuda.Stream,
        "Event": cp.cuda.Event,
        "CUDARuntimeError": cp.cuda.runtime.CUDARuntimeError,
        "CUDADriverError": cp.cuda.driver.CUDADriverError,
    }.items():
        monkeypatch.setattr(test_graphs, name, value)
