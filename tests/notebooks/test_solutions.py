"""Each notebook runs from top to bottom with its own folded solutions, and every check passes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.teach import check
from gpulab.teach.folders import exercises as all_exercises
from tests.kernels import until_alive
from tests.notebooks.course import NOTEBOOKS, exercises, output_text, read, solutions, with_solutions

CELL_TIMEOUT_S = 240


def run(notebook: Any, folder: Path) -> Any:
    from nbclient import NotebookClient

    place = {"metadata": {"path": str(folder)}}
    return until_alive(
        lambda: NotebookClient(
            notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources=place
        ).execute()
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_with_its_solutions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = path.parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]))
    notebook = run(with_solutions(read(path)), path.parent)
    for name, cell in exercises(notebook).items():
        assert output_text(cell).startswith(f"{name}: passed: "), output_text(cell)


def folded() -> dict[str, str]:
    return {name: code for path in NOTEBOOKS for name, code in solutions(read(path)).items()}


def test_every_exercise_has_a_folded_solution() -> None:
    assert set(folded()) == set(all_exercises())


@pytest.mark.parametrize("name", sorted(all_exercises()))
def test_the_folded_solution_passes_its_check(name: str) -> None:
    given = {"np": np, "cp": gl.cp, "cupyx": gl.cupyx}
    names: dict[str, Any] = dict(given)
    exec(folded()[name], names)  # the learner pastes it just so
    (answer,) = [value for key, value in names.items() if not key.startswith("__") and key not in given]
    verdict = check(name, answer)
    assert verdict.passed, verdict.message
