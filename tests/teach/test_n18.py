"""Notebook 18: MMA layouts, versions of matrix multiplication, pictures and the recording."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpulab import session
from gpulab_course import folders
from gpulab_course.content.n18_tensor_cores import figures, layouts, versions
from gpulab_course.content.n18_tensor_cores.versions import VERSIONS
from gpulab_course.teach.judge.budget import COUNTERS, Costs
from gpulab_course.teach.judge.check import judge
from gpulab_course.teach.judge.exercise import KernelExercise
from tools.recordings import tensor_cores
from virtualgpu.compile import nvrtc
from virtualgpu.engine.lower.ops.matrices.tensor import _compute_mma_positions
from virtualgpu.errors import GpulabError

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


@pytest.fixture(autouse=True)
def a_device() -> Iterator[None]:
    session.use_device("virtual:A100")
    yield
    session.use_device("auto")


@pytest.mark.parametrize("name", layouts.SHAPES)
def test_the_mma_layout_equals_that_of_the_virtual_gpu(name: str) -> None:
    rows, columns = _compute_mma_positions(name, (16, 8, 16), "f16")
    rows, columns = np.broadcast_arrays(rows, columns)
    for (lane, element), row in np.ndenumerate(rows):
        column = int(columns[lane, element])
        register = element if name == "d" else element // 2
        assert layouts.find_lane_and_register(name, int(row), column) == (lane, register)
        assert layouts.find_lane_element(name, int(row), column) == element


def matrices(side: int) -> tuple[Any, Any, Any]:
    cp = session.cp()
    rng = np.random.default_rng(1)
    a, b = ((rng.integers(-8, 9, (side, side)) / 4).astype(np.float16) for _ in range(2))
    return cp.asarray(a), cp.asarray(b), a.astype(np.float32) @ b.astype(np.float32)


@needs_nvrtc
@pytest.mark.parametrize("name", [version.name for version in VERSIONS])
def test_each_version_is_correct(name: str) -> None:
    cp = session.cp()
    a, b, expected = matrices(128)
    c = cp.zeros((128, 128), np.float32)
    versions.launch(name, a, b, c)()
    np.testing.assert_array_equal(cp.asnumpy(c), expected)


def test_wrong_matrix_sizes_and_version_names_are_errors() -> None:
    cp = session.cp()
    a = cp.zeros((64, 32), np.float16)
    with pytest.raises(GpulabError, match="multiples of 64, not 64, 32 and 32"):
        versions.launch("tiles", a, a[:32], a)
    with pytest.raises(GpulabError, match="no version 'tile'"):
        versions.launch("tile", a, a, a)


@needs_nvrtc
def test_tensor_operations_and_full_waits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    import gpulab as gl

    cp = session.cp()
    a, b, _ = matrices(128)
    for name, waits in (("registers", 4 * 4 * 2), ("stages", 0)):
        step = versions.launch(name, a, b, cp.zeros((128, 128), np.float32))
        costs = Costs(gl.count(**step), None)  # type: ignore[arg-type]
        assert COUNTERS["tensor_operations"][1](costs) == 2 * 128**3
        assert COUNTERS["full_waits"][1](costs) == waits
        # Four groups are closed, and each of the two waits leaves one of them pending.
        assert COUNTERS["pending_groups"][1](costs) == (50 if name == "stages" else 0)


def test_picture_captions_name_elements_conflicts_and_steps() -> None:
    lanes, registers = figures.positions(np.arange(8).reshape(2, 2, 2), (2, 4))
    assert lanes.tolist() == [[0, 0, 1, 1]] * 2
    assert registers.tolist() == [[0] * 4, [1] * 4]
    picture = figures.fragments({"a": (lanes, registers)}, lane=1)
    assert picture.png.startswith(b"\x89PNG")
    assert picture.caption.endswith("elements of a: (0, 2), (0, 3), (1, 2), (1, 3).")
    row, v = np.indices((8, 8))
    caption = figures.banks({"plain": row * 8 + v, "swizzled": row * 8 + (v ^ row)}).caption
    assert "plain: at most 8 marked vectors" in caption
    assert "swizzled: at most 1 marked vector in" in caption
    assert (
        "iteration 1: multiply tile 1 in buffer 1" in figures.pipeline([(0, 0), (1, 1)], [[1], []], 2).caption
    )


def test_the_recording_is_shown_or_reported_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    tflops = {"naive": 1.0, "cuBLAS": 50.0}
    record = {"device": "NVIDIA H200", "driver": "1", "date": "2026-01-01", "side": 8192, "tflops": tflops}
    monkeypatch.setattr(figures, "recorded", lambda: [record])
    text = figures.recorded_series()
    assert "1.0 TFLOP/s, 2% of cuBLAS" in text
    assert "NVIDIA H200" in text
    monkeypatch.setattr(figures, "recorded", list)
    assert "tools.recordings.tensor_cores" in figures.recorded_series()


@needs_nvrtc
def test_the_recording_tool_runs_on_a_virtual_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_cores, "REPEATS", 1)
    out = tmp_path / "recorded.json"
    tensor_cores.main(["--device", "virtual:A100", "--side", "128", "--out", str(out)])
    (record,) = json.loads(out.read_text())
    assert set(record["tflops"]) == {*(version.name for version in VERSIONS), "cuBLAS"}
    assert min(record["tflops"].values()) > 0


@needs_nvrtc
def test_pipeline_waits_are_judged_on_a_t4() -> None:
    exercise = folders.list_exercises()["18-stages"]
    assert isinstance(exercise, KernelExercise)
    code = exercise.source(exercise.reference)
    session.use_device("virtual:T4")
    verdict = judge(exercise, code)
    assert verdict
    assert "virtual A100" in verdict.message
    too_early = code.replace("__pipeline_wait_prior(1)", "__pipeline_wait_prior(2)")
    assert judge(exercise, too_early).failed_stage == "results"
    assert session.which_device().device == "T4"
