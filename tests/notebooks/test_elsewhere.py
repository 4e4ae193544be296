"""Each learner's copy runs from top to bottom without NVRTC, on another GPU than the default.

Both at once: that the shipped kernels are enough on the default GPU, too, is tested with them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from gpulab_course.content import copies
from tests.kernels import until_alive
from tools import sample

ROOT = Path(__file__).resolve().parents[2]
CELL_TIMEOUT_S = 240

# GPULAB_ELSEWHERE names one. The sample has a notebook or two on each device.
NAMED = os.environ.get("GPULAB_ELSEWHERE")
DEVICES = (NAMED,) if NAMED else ("T4", "RTX 4090", "H100")
CASES = sample.draw_sample(
    [
        pytest.param(path, device, id=f"{path.stem}-{device}")
        for path in copies.find_originals().values()
        for device in DEVICES
    ],
    20,
    lambda case: str(case.id),
    lambda case: case.values[1],
)

# As on macOS. The library is looked for when the first kernel is compiled.
HIDE_NVRTC = """
from virtualgpu.compile import nvrtc
nvrtc._load_library = lambda: FileNotFoundError("no libnvrtc")
assert not nvrtc.is_available()
"""


def run(path: Path, folder: Path, first: Sequence[str] = ()) -> None:
    notebook = nbformat.from_dict(copies.make_copy(path))
    notebook.cells[:0] = [nbformat.v4.new_code_cell(source) for source in first]
    place = {"metadata": {"path": str(folder)}}
    until_alive(
        lambda: NotebookClient(
            notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources=place
        ).execute()
    )


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


@pytest.mark.slow
@pytest.mark.parametrize(("path", "device"), CASES)
def test_notebook_copy_runs_without_nvrtc(
    path: Path, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPULAB_DEVICE", f"virtual:{device}")
    run(path, tmp_path, [HIDE_NVRTC, f"import gpulab as gl; assert {device!r} in repr(gl.which_device())"])
