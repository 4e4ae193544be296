"""``gl.names``: each row's CuPy side runs, its section exists, and what is looked up is found."""

from __future__ import annotations

import re
from typing import Any

import pytest

import gpulab as gl
from gpulab.teach.names import NameRow, Names, everything
from tests.notebooks.course import NOTEBOOKS, number, read, text

ROWS = everything()


def at_hand() -> dict[str, Any]:
    cp = gl.use_device("virtual:A100").cp
    return {
        "gl": gl,
        "cupy": cp,
        "cupyx": gl.cupyx,
        "x": cp.ones(8, cp.float32),
        "s": cp.cuda.Stream(non_blocking=True),
        "pool": cp.get_default_memory_pool(),
    }


@pytest.mark.parametrize("row", [row for row in ROWS if row.where == "everywhere"], ids=lambda row: row.torch)
def test_its_cupy_side_runs(row: NameRow) -> None:
    assert row.run
    exec(row.run, at_hand())


@pytest.mark.parametrize("row", [row for row in ROWS if row.where == "GPU"], ids=lambda row: row.torch)
def test_what_takes_a_gpu_is_not_there_without(row: NameRow) -> None:
    with pytest.raises(AttributeError, match="virtual GPU"):
        exec(row.run, at_hand())


def test_names_of_nvml_exist() -> None:
    pynvml = pytest.importorskip("pynvml")
    used = {name for row in ROWS if row.where == "NVML" for name in re.findall(r"pynvml\.(\w+)", row.here)}
    assert used
    assert not [name for name in used if not hasattr(pynvml, name)]


def test_every_row_says_what_it_takes_and_where_the_course_shows_it() -> None:
    assert len({row.torch for row in ROWS}) == len(ROWS) >= 180
    assert {row.where for row in ROWS} == {"everywhere", "GPU", "NVML", "driver", "none"}
    headings = {
        f"{number(path)} §{found}"
        for path in NOTEBOOKS
        for found in re.findall(r"^## (\d+) ·", text(read(path)), re.MULTILINE)
    } | {number(path) for path in NOTEBOOKS}
    shown = {row.section for row in ROWS if not row.section.endswith(", to come")}
    assert shown <= headings
    to_come = {row.section.split(",")[0] for row in ROWS} - {section.split(",")[0] for section in shown}
    assert not to_come & {number(path) for path in NOTEBOOKS}


@pytest.mark.parametrize("asked", ["memory_reserved", "torch.cuda.memory_reserved", " MEMORY_reserved"])
def test_a_name_is_found_alone(asked: str) -> None:
    (row,) = gl.names(asked).record
    assert row.torch == "memory_reserved"
    assert "total_bytes()" in repr(gl.names(asked))
    assert "10a §1" in gl.names(asked)._repr_html_()


def test_a_row_says_what_differs() -> None:
    def said(**more: str) -> str:
        fields = dict.fromkeys(("torch", "meaning", "here", "kind", "where", "section", "run", "notes"), "")
        (row,) = Names("", [NameRow(**fields | {"meaning": "waits"} | more)])._table.rows
        return str(row[2])

    assert said(kind="direct") == said(kind="none") == "waits"
    assert said(kind="nearest") == "waits (nearest)"
    assert said(kind="composed", notes="of two") == "waits (composed); of two"
    assert said(kind="direct", notes="late") == "waits; late"


def test_the_title_says_how_many_and_about_what() -> None:
    def title(asked: str = "") -> str:
        return repr(gl.names(asked)).splitlines()[0]

    assert title() == f"torch.cuda and CuPy: {len(ROWS)} names."
    assert title("torch.memory_reserved") == "torch.cuda and CuPy: 1 name about 'torch.memory_reserved'."
    near = title("memory_reservd")
    assert near.startswith(
        "torch.cuda and CuPy: 0 names about 'memory_reservd'. Did you mean 'memory_reserved'"
    )
    assert not any("\\n" in row.run for row in ROWS)
    assert any("\n" in row.run for row in ROWS)


def test_parts_of_either_side_are_found() -> None:
    assert {"Stream", "stream", "current_stream"} <= {row.torch for row in gl.names("stream").record}
    assert "empty_cache" in {row.torch for row in gl.names("free_all_blocks").record}
    assert len(gl.names().record) == len(ROWS)
    assert "Did you mean" in repr(gl.names("memory_reservd"))
