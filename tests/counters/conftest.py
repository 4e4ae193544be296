"""The recorded counters and the virtual GPU's counts of the same launches."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpulab import session
from tests.counters.cases import case
from virtualgpu.protocol import Counters, Launch
from virtualgpu.records import KernelCounters, KernelSource

# What these compare with the H200 is the same launches.
OF_LAUNCHES = ("test_as_run.py", "test_nsight.py")


@pytest.fixture(scope="session")
def recording() -> dict[str, Any]:
    file = Path(__file__).parent / "data" / "h200_counters.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    assert (data["format"], data["version"], data["device"]) == ("gpulab-counters", 1, "NVIDIA H200")
    return dict(data)


@pytest.fixture(scope="session")
def nsight_of(recording: dict[str, Any]) -> Callable[[str, int], dict[str, int]]:
    """Counts of Nsight Compute in one launch, by metric without its unit and ``.sum``."""
    table = recording["kernels"]
    names = [metric.split("__")[1].removesuffix(".sum") for metric in table["metrics"]]
    return lambda kernel, size: dict(zip(names, table[kernel][str(size)], strict=True))


@pytest.fixture(autouse=True, scope="module")
def on_a_virtual_h200() -> Iterator[None]:
    session.use_device("virtual:H200")
    yield
    session.use_device("auto")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests by launch, so that a worker runs each launch once."""

    def launch(item: pytest.Item) -> tuple[str, int]:
        params = getattr(getattr(item, "callspec", None), "params", {})
        return str(params.get("kernel", "")), int(params.get("size", 0))

    places = [place for place, item in enumerate(items) if item.path.name in OF_LAUNCHES]
    for place, item in zip(places, sorted((items[place] for place in places), key=launch), strict=True):
        items[place] = item


@pytest.fixture(scope="session")
def counted() -> Callable[[str, int], KernelCounters]:
    """The virtual GPU's counts; each launch runs once."""

    @functools.cache
    def run(kernel: str, size: int) -> KernelCounters:
        c = case(kernel)
        s = c.shape(size)
        cp = session.cp()
        args = tuple(cp.asarray(v) if isinstance(v, np.ndarray) and v.ndim else v for v in s.values)
        launch = Launch.of(KernelSource(kernel, c.code), s.grid, s.block, args, s.shared_bytes)
        return session.backend().observe(launch, Counters())

    return run
