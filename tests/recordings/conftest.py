"""The virtual GPU as an H200, and the recording of the real one."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from gpulab import session
from tools.corpus import Case
from tools.recordings import Recording, load_recording
from virtualgpu.launch.compiled import compile_module
from virtualgpu.launch.launch import Launch
from virtualgpu.launch.prepare import PreparedLaunch, prepare_launch
from virtualgpu.records import KernelSource


@pytest.fixture(scope="session")
def h200() -> Recording:
    return load_recording("h200")


@pytest.fixture(autouse=True)
def on_a_virtual_h200() -> Iterator[None]:
    session.use_device("virtual:H200")
    yield
    session.use_device("auto")


@pytest.fixture
def prepare_ptx() -> Callable[[Case, str, Sequence[Any]], PreparedLaunch]:
    """Make a launch of a case that executes given PTX in the place of what NVRTC makes of its source."""
    from virtualgpu.model import machine as slot

    def prepared(c: Case, ptx: str, values: Sequence[Any]) -> PreparedLaunch:
        device = slot.current().current_device
        module = compile_module(c.code, c.options, (), device.info.compute_capability)
        module = dataclasses.replace(
            module,
            ptx=ptx,
            _programs=weakref.WeakKeyDictionary(),
            _kernels=weakref.WeakKeyDictionary(),
            _lock=threading.Lock(),
        )
        kernel = KernelSource(c.kernel, c.code, c.options)
        return prepare_launch(
            device,
            module.kernel(c.kernel, device),
            Launch.of(kernel, c.grid, c.block, tuple(values), c.shared_bytes),
        )

    return prepared
