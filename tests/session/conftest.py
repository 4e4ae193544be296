"""Fixtures of the session's tests: a fresh session, Jupyter kernels, and a CuPy that fails on demand."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from gpulab.session import current
from tests.kernels import until_alive
from virtualgpu.model import machine

FAKE_CUPY = """
class CUDARuntimeError(RuntimeError):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status

class OutOfMemoryError(MemoryError):
    pass

def _fail(where):
    error = {failures!r}.get(where)
    if error == "oom":
        raise OutOfMemoryError("Out of memory allocating 512 bytes")
    if error is not None:
        raise CUDARuntimeError(error, f"cudaError: failure {{error}} at {{where}}")

_fail("import")

class ndarray:
    pass

def zeros(*args, **kwargs):
    _fail("zeros")
    return ndarray()

class runtime:
    @staticmethod
    def getDeviceCount():
        _fail("count")
        return {count}
    @staticmethod
    def getDeviceProperties(index):
        return dict(name=b"NVIDIA Fake 3000", major=9, minor=0)

class nvrtc:
    @staticmethod
    def getVersion():
        _fail("nvrtc")
        return 13, 0

class Device:
    pci_bus_id = "0000:00:00.0"
    def __init__(self, index=0):
        self.index = index
    def use(self):
        pass
    def synchronize(self):
        _fail("synchronize")
    def __enter__(self):
        return self
    def __exit__(self, *rest):
        pass

class cuda:
    runtime, nvrtc, Device = runtime, nvrtc, Device
"""


@pytest.fixture(autouse=True)
def fresh_session() -> Iterator[None]:
    """Let each test choose its device anew, and restore the machine and the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPULAB_DEVICE", raising=False)
        patch.delenv("GPULAB_WATCHDOG_S", raising=False)
        patch.setattr(current, "_session", None)
        patch.setattr(machine._current_machine, "machine", machine._current_machine.machine)
        yield


@pytest.fixture
def fake_cupy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a ``cupy`` with so many devices, which fails in the named calls with a CUDA error code."""

    def install(devices: int = 1, **failures: int | str) -> None:
        folder = tmp_path / "site"
        folder.mkdir(exist_ok=True)
        (folder / "cupy.py").write_text(textwrap.dedent(FAKE_CUPY).format(count=devices, failures=failures))
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, "cupy", raising=False)

    yield install
    sys.modules.pop("cupy", None)


@pytest.fixture
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which CuPy is not installed."""
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *arguments: None if name == "cupy" else find(name, *arguments),
    )


@pytest.fixture(scope="module")
def jupyter() -> Iterator[NotebookClient]:
    """A live Jupyter kernel on a virtual A100, shared by the tests of a module."""
    with pytest.MonkeyPatch.context() as environment, ExitStack() as kernel:
        environment.setenv("GPULAB_DEVICE", "virtual:A100")
        environment.delenv("GPULAB_WATCHDOG_S", raising=False)

        def start() -> NotebookClient:
            client = NotebookClient(nbformat.v4.new_notebook(), timeout=120, kernel_name="python3")
            kernel.enter_context(client.setup_kernel())
            return client

        yield until_alive(start)
