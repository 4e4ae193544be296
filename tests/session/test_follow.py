"""``gl.call_layers``: the layers that a call goes through, on this device and as recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpulab as gl
from gpulab import session
from gpulab.lab.libraries import follow as module
from gpulab.views.layers.view import MAX_SYMBOLS, LayersView
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance
from virtualgpu.records.libraries.layers import LAYERS, CallLayers

cp: Any = None
PLANTED = CallLayers(
    provenance=Provenance("recorded", "NVIDIA Test", "planted"),
    package="PyTorch",
    call="x @ w",
    layers=(
        (("matmul", 1),),
        (("libcublas: cublasSgemm_v2", 1),),
        (("cudaLaunchKernelExC", 2),),
        (),
        (("gemm", 1),),
    ),
)


@pytest.fixture(autouse=True)
def on_a_virtual_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    global cp
    gl.use_device("virtual:T4")
    cp = gl.cp
    monkeypatch.setattr(module, "read_recorded_layers", lambda: (PLANTED,))
    yield
    cp = None


def test_matmul_layers_are_compared_with_their_record() -> None:
    x = cp.ones((32, 32), cp.float32)
    own, other = gl.call_layers(lambda: x @ x).record
    assert own.of("framework") == (("@", 1),)
    assert own.of("library") == ()
    assert own.of("driver") == (("cuLaunchKernel", 1),)
    assert own.of("device") == (("cupy_matmul", 1),)
    assert "no library, runtime or driver" in own.note
    assert other is PLANTED
    assert own.provenance.source == "modelled"


def test_copy_to_host_uses_the_runtime_and_no_kernel() -> None:
    x = cp.ones(100)
    (own,) = gl.call_layers(lambda: cp.asnumpy(x)).record
    assert (own.of("CUDA runtime"), own.of("driver")) == ((("cudaMemcpyAsync", 1),), ())
    assert own.of("device") == (("Memcpy DtoH", 1),)


def test_user_kernel_keeps_its_name_and_has_no_record() -> None:
    kernel = cp.RawKernel('extern "C" __global__ void k(float* x) { x[0] = 1; }', "k")
    x = cp.zeros(4, cp.float32)
    (own,) = gl.call_layers(lambda y: kernel((1,), (1,), (y,)), x).record
    assert own.of("device") == (("k", 1),)
    assert x[0] == 1


def test_a_recorded_call_is_looked_up_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gl.call_layers("x @ w").record == (PLANTED,)
    with pytest.raises(GpulabError, match=r"'sort' is not recorded\. Recorded: 'x @ w'"):
        gl.call_layers("sort")
    monkeypatch.setattr(module, "read_recorded_layers", lambda: ())
    with pytest.raises(GpulabError, match="No call is recorded"):
        gl.call_layers("x @ w")


def test_the_layers_are_described_and_saved(tmp_path: Path) -> None:
    x = cp.ones((32, 32), cp.float32)
    report = gl.call_layers(lambda: x @ x)
    assert repr(report).count("symbol") == 7
    assert "PyTorch, CUDA runtime: cudaLaunchKernelExC (2 times)." in report.describe()
    assert "PyTorch, driver: no call was recorded" in report.describe()
    assert report.save(tmp_path / "layers.png").read_bytes().startswith(b"\x89PNG")


def test_symbols_beyond_the_drawing_limit_are_counted() -> None:
    many = tuple((f"cuCall{n}", n + 1) for n in range(MAX_SYMBOLS + 2))
    view = LayersView(
        [CallLayers(provenance=PLANTED.provenance, package="CuPy", call="c", layers=((), (), (), many, ()))]
    )
    drawn = json.dumps(
        view.draw().wire(), default=lambda box: box.wire() if hasattr(box, "wire") else str(box)
    )
    assert "driver: 2 more symbols" in drawn
    assert "cuCall6 (7 times)" in view.describe()
    assert len(LAYERS) == len(view.record[0].layers)


def test_shipped_records_have_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert module.read_recorded_layers()
    for call in module.read_recorded_layers():
        assert call.provenance.source == "recorded"
        assert len(call.layers) == len(LAYERS)
        assert call.of("device")


def test_on_a_real_gpu_the_driver_s_calls_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[Any] = []
    calls: list[str] = []
    lower = ((("cudaLaunchKernel", 1),), (("cuLaunchKernel", 1),))

    def function(text: str) -> None:
        calls.append(text)

    monkeypatch.setattr(session, "count_driver_calls", lambda *call: recorded.append(call) or lower)  # type: ignore[func-returns-value]
    (own,) = gl.call_layers(function, "x").record
    assert (recorded, calls, own.of("driver")) == ([], ["x", "x"], ())
    provenance = Provenance("measured", "NVIDIA Test")
    real = SimpleNamespace(provenance=provenance, timeline_recorder=session.backend().timeline_recorder)
    monkeypatch.setattr(session, "backend", lambda: real)
    (own,) = gl.call_layers(function, "y").record
    assert recorded == [(function, ("y",))]
    assert (own.of("CUDA runtime"), own.of("driver")) == lower
    assert (own.provenance, own.note, own.call) == (provenance, "", "function")
