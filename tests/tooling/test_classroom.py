"""Kernels compiled once for a class are readable by all learners and writable by none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from gpulab_course.content import copies
from tools.classroom.compile_ahead import compile_ahead
from virtualgpu.compile import nvrtc

ROOT = Path(__file__).resolve().parents[2]
CELL = """
from gpulab import cp
x = cp.zeros(1, "int32")
cp.RawKernel('extern "C" __global__ void k(int* x) { x[0] = 7; }', "k")((1,), (1,), (x,))
assert int(x[0]) == 7
"""


def compiled_by_a_learner(home: Path, shared: Path) -> int:
    """Return the number of cache entries that a learner's kernel had to compile for the cell."""
    places = {
        "GPULAB_CACHE_DIR": str(home),
        "GPULAB_CACHE_SHARED": str(shared),
        "GPULAB_DEVICE": "virtual:A100",
    }
    subprocess.run([sys.executable, "-c", CELL], env=os.environ | places, cwd=ROOT, check=True)
    return sum(path.is_file() for path in home.rglob("*"))


@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
def test_learners_reuse_kernels_compiled_in_advance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbformat.write(notebook, tmp_path / "00_small.ipynb")
    monkeypatch.setattr(copies, "find_originals", lambda: {"00_small.ipynb": tmp_path / "00_small.ipynb"})
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    shared = tmp_path / "shared"
    assert compile_ahead(shared, ["01"], "virtual:A100") == 0
    assert compile_ahead(shared, [""], "virtual:A100") > 1
    modes = {stat.S_IMODE(path.stat().st_mode) for path in shared.rglob("*") if path.is_file()}
    assert modes == {0o644}
    assert compiled_by_a_learner(tmp_path / "alone", tmp_path / "nowhere") > 1
    assert compiled_by_a_learner(tmp_path / "in class", shared) == 0
