"""Notebook 19: attention on CUDA cores and on tensor cores, and the recording."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab_course.content.n19_attention import figures
from tools.recordings import attention
from virtualgpu.compile import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    session.use_device("virtual:A100")
    yield
    session.use_device("auto")


def attended(q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    """Return the attention of each head, computed by NumPy in float64."""
    q, k, v = (np.asarray(array, np.float64) for array in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


@pytest.mark.parametrize(
    ("name", "d", "causal"),
    [
        ("A100", 64, False),
        ("A100", 64, True),
        ("A100", 128, False),
        ("A100", 128, True),
        ("T4", 64, False),
        ("T4", 128, True),
    ],
)
def test_attention_on_tensor_cores_is_correct(name: str, d: int, causal: bool) -> None:
    session.use_device(f"virtual:{name}")
    cp = session.cp()
    for n, heads, factor in ((1, 1, 1), (100, 1, 30), (130, 2, 1)):  # one, two and three blocks of 64 rows
        q, k, v, out = figures.tensors(n, d, heads=heads, dtype="float16")
        q *= np.float16(factor)  # 30: large scores, so most weights are 0
        gl.launch(**figures.tensor_launch(q, k, v, out, causal))
        expected = attended(cp.asnumpy(q), cp.asnumpy(k), cp.asnumpy(v), causal)
        np.testing.assert_allclose(cp.asnumpy(out), expected, rtol=2e-3, atol=3e-3)


@pytest.mark.parametrize("name", ["A100", "T4"])
def test_tensor_core_attention_has_no_bank_conflicts_or_races(name: str) -> None:
    session.use_device(f"virtual:{name}")
    q, k, v, out = figures.tensors(200, 128, dtype="float16")
    launch = figures.tensor_launch(q, k, v, out, causal=True)
    counters = gl.count(**launch)
    assert counters.total("bank_conflicts", "shared") == 0
    # Blocks of 64 rows go over 64, 128, 192 and 200 keys in tiles of 32; two products of 2 · 64 · 32 · 128.
    assert sum(counters.record.tensor_operations.values()) == (2 + 4 + 6 + 7) * 4 * 64 * 32 * 128
    assert gl.sanitize(**launch).record.hazards == ()


def test_heads_do_not_mix_on_cuda_cores() -> None:
    cp = session.cp()
    arrays = figures.tensors(40, 64, heads=3)
    gl.launch(**attention.forward_launch(arrays))
    q, k, v, out = (cp.asnumpy(array) for array in arrays)
    np.testing.assert_allclose(out, attended(q, k, v), rtol=1e-4, atol=1e-5)


def test_the_recording_tool_runs_on_a_virtual_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "REPEATS", 1)
    out = tmp_path / "recorded.json"
    arguments = ["--device", "virtual:A100", "--tokens", "64", "--heads", "2", "--out", str(out)]
    attention.main(arguments)
    (record,) = json.loads(out.read_text())
    monkeypatch.setattr(attention, "measure", lambda tokens, heads: record | {"heads": heads + 1})
    attention.main(arguments)
    assert json.loads(out.read_text()) == [record | {"heads": 3}]  # instead of the first record
    (shipped, *_) = figures.recorded()
    assert set(record) == set(shipped)
    library = {name for name in shipped["tflops"]["d = 64"] if name.startswith("PyTorch")}
    assert set(record["tflops"]["d = 64"]) == set(shipped["tflops"]["d = 64"]) - library
    assert min(record["decode_us"].values()) > 0


def test_the_record_names_its_device_and_library() -> None:
    text = str(figures.recorded_speeds())
    assert "NVIDIA H200" in text
    assert "PyTorch 2." in text
    (record,) = figures.recorded()
    ours, library = (record["tflops"]["d = 128"][name] for name in ("tensor cores, FP16", "PyTorch, FP16"))
    (row,) = (row for row in figures.recorded_speeds().rows if row[0] == "tensor cores, FP16")
    assert f"{ours / library:.0%}" in str(row[2])
    assert "µs" in str(figures.recorded_times())
