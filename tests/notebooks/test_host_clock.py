"""Where the host's clock decides an answer: one call that is held up does not reverse it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab_course.content.n00_start import figures
from tests.notebooks.course import NOTEBOOKS, number, read
from virtualgpu.records import HOST_CLOCK


def cells(notebook: str, *names: str) -> str:
    (path,) = (path for path in NOTEBOOKS if number(path) == notebook)
    sources = {cell.id: cell.source for cell in read(path).cells}
    return "\n".join(sources[name] for name in names)


class HeldUp(np.ndarray):
    """An array of which one addition takes long, as when the computer does something else."""

    added = 0

    def __add__(self, other: Any) -> Any:
        HeldUp.added += 1
        if HeldUp.added == 500:
            time.sleep(0.1)
        return np.asarray(self) + np.asarray(other)


def test_one_delayed_run_does_not_change_which_side_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    side = gl.use_device("virtual:A100")
    ones = np.ones
    monkeypatch.setattr(np, "ones", lambda *a, **k: ones(*a, **k).view(HeldUp))
    run = type("Run", (), {"provenance": HOST_CLOCK})
    space = {"gl": gl, "cp": side.cp, "np": np, "figures": figures, "run": run, "HOST_CLOCK": HOST_CLOCK}
    code = cells("00", "small", "reveal-small")
    exec(f"from timeit import repeat\nfrom time import perf_counter\n{code}", space)
    assert HeldUp.added >= 1000
    assert space["found"] == "NumPy"


@pytest.mark.parametrize(
    ("numpy_us", "gpu_us", "winner", "text"),
    [
        (0.5, 20, "NumPy", "The GPU took 40 times as long as NumPy"),
        (39.1, 23.2, "the GPU", "NumPy took 1.7 times as long as the GPU, on this computer"),
        (20, 22, "both alike", "The GPU took 1.1 times as long as NumPy"),
    ],
)
def test_text_reports_whether_numpy_or_the_gpu_is_faster(
    numpy_us: float, gpu_us: float, winner: str, text: str
) -> None:
    assert figures.sooner(numpy_us, gpu_us) == (winner, text)
