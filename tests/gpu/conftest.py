"""Fixtures of the tests that need a real GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from gpulab.real.backend import CudaBackend


@pytest.fixture(scope="session")
def cp() -> Any:
    return pytest.importorskip("cupy")


@pytest.fixture(scope="session")
def cuda(cp: Any) -> CudaBackend:
    from gpulab.real.backend import CudaBackend

    return CudaBackend()


@pytest.fixture(autouse=True)
def on_the_gpu(cp: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    from gpulab import session

    if request.node.get_closest_marker("gpu") is None:  # what is looked up in lists needs none
        yield
        return
    assert session.use_device("auto").kind == "cuda"
    yield
    session.use_device("auto")
