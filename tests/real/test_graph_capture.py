"""The tests of ``gl.graph`` once more, with a real GPU's side; with ``--fake-gpu`` on any machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import gpulab as gl
from tests.session.test_graph_capture import (  # noqa: F401  (collects these tests here too)
    TestAddresses,
    TestCallable,
    TestCompare,
    TestLaunch,
    TestPool,
    TestRecord,
    TestRefusals,
    TestUpdate,
)

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_the_gpu() -> Iterator[None]:
    pytest.importorskip("cupy")
    assert gl.use_device("auto").kind == "cuda"
    yield
    gl.use_device("auto")


@pytest.fixture(autouse=True)
def timed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the host's own clock be what it is: only the fake's has no meaning."""
    if not request.config.getoption("--fake-gpu", default=False):
        return
    monkeypatch.setattr(TestCompare, "check", lambda self, found: None)


def test_numbers_are_measured() -> None:
    x: Any = gl.cp.zeros(4)
    assert gl.graph(lambda x: x.fill(1), x).record.provenance.source == "measured"
