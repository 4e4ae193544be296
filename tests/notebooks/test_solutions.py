"""Each notebook runs from top to bottom with its own folded solutions, and every check passes."""

from __future__ import annotations

import builtins
import dis
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import nbformat
import numpy as np
import pytest

import gpulab as gl
from gpulab_course.content.cells import CHECK_CALL_PATTERN
from gpulab_course.folders import list_exercises as all_exercises
from tests.kernels import until_alive
from tests.notebooks import compiling
from tests.notebooks.course import NOTEBOOKS, exercises, output_text, read, solutions, with_solutions
from tools import sample, shipped_ptx

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
@pytest.mark.parametrize(
    ("path", "device"),
    sample.draw_sample(
        [
            pytest.param(path, device, id=shipped_ptx.make_title(path.stem, device))
            for path in NOTEBOOKS
            for device in shipped_ptx.list_devices(path.name)
        ],
        9,
        lambda case: str(case.id),
    ),
)
def test_the_notebook_runs_with_its_solutions(
    path: Path, device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notebook also compiles exactly the kernels that are shipped precompiled for it."""
    root = path.parents[1]
    noted = tmp_path / "noted"
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("GPULAB_DEVICE", device)
    notebook = with_solutions(read(path))
    for position, source in ((0, compiling.BEGIN), (len(notebook.cells) + 1, compiling.end_in(noted))):
        notebook.cells.insert(position, nbformat.v4.new_code_cell(source))
    for name, cell in exercises(run(notebook, path.parent)).items():
        assert output_text(cell).startswith(f"{name}: passed: "), output_text(cell)
    assert not shipped_ptx.find_problems(shipped_ptx.make_title(path.name, device), compiling.noted(noted))


@functools.cache
def folded() -> dict[str, str]:
    return {name: code for path in NOTEBOOKS for name, code in solutions(read(path)).items()}


@functools.cache
def checked() -> dict[str, str]:
    """Return the source of the answer that each exercise's cell passes to ``gl.check``."""
    cells = {name: cell for path in NOTEBOOKS for name, cell in exercises(read(path)).items()}
    matches = {name: CHECK_CALL_PATTERN.search(cell.source) for name, cell in cells.items()}
    return {name: match["answer"] for name, match in matches.items() if match is not None}


def test_every_exercise_has_a_folded_solution() -> None:
    assert set(folded()) == set(all_exercises())


def asked_for(code: CodeType) -> Iterator[str]:
    """Global names that code uses, and functions within it."""
    yield from (i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from asked_for(inner)


@pytest.mark.parametrize("name", sorted(all_exercises()))
def test_folded_solution_runs_without_its_notebook(name: str) -> None:
    """`test_the_notebook_runs_with_its_solutions` checks that the solution passes."""
    modules = {"np": np, "cp": gl.cp, "cupyx": gl.cupyx}
    names: dict[str, Any] = dict(modules)
    code = compile(folded()[name], name, "exec")
    exec(code, names)  # as a learner would paste it
    answer = compile(checked()[name], name, "eval")
    assert set(asked_for(answer)) <= names.keys() - modules.keys()
    assert set(asked_for(code)) <= names.keys() | vars(builtins).keys()
