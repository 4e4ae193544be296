"""``gl.names``: each row's CuPy side runs, its section exists, and searches find their rows."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import gpulab as gl
from gpulab_course.teach.names import NameRow, load_name_rows
from tests.notebooks.course import NOTEBOOKS, number, read, text

ROWS = load_name_rows()


def namespace() -> dict[str, Any]:
    cp = gl.use_device("virtual:A100").cp
    return {
        "gl": gl,
        "cupy": cp,
        "cupyx": gl.cupyx,
        "x": cp.ones(8, cp.float32),
        "s": cp.cuda.Stream(non_blocking=True),
        "pool": cp.get_default_memory_pool(),
    }


def recommended(row: NameRow) -> set[tuple[str, ...]]:
    """Names of CuPy and gpulab that a row recommends, and the methods of their results that it calls."""
    text = f"{row.here} ; {row.notes}"
    calls = re.findall(r"\b((?:pool|stream|event|hook|a|c|h|s|tuned)(?:\.\w+)+)\(", text)
    return {
        tuple(name.split(".")[1:])
        for name in [*re.findall(r"\b(?:cupyx?|gl)(?:\.[A-Za-z_]\w*)+", text), *calls]
    }


def keywords(text: str, function: str) -> set[str]:
    """Keywords that calls of a function in a text have."""
    calls = re.findall(rf"(?<!torch\.cuda\.)\b{re.escape(function)}\(([^()]*)", text)
    return {word for call in calls for word in re.findall(r"(\w+)=(?!=)", call)}


@pytest.mark.parametrize("row", [row for row in ROWS if row.where == "everywhere"], ids=lambda row: row.torch)
def test_every_call_that_a_row_recommends_runs(
    row: NameRow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(row.run, namespace())
    run = set(re.findall(r"\w+", row.run))
    assert not [name for name in recommended(row) if name[-1] not in run]
    for name in ("sandbox", "tune", "Stream", "Event", "set_limit", "time_range"):
        assert keywords(f"{row.here} ; {row.notes}", name) <= keywords(row.run, name) | {"message"}


@pytest.mark.parametrize("row", [row for row in ROWS if row.where == "GPU"], ids=lambda row: row.torch)
def test_calls_that_need_a_gpu_are_missing_on_the_virtual_one(row: NameRow) -> None:
    with pytest.raises(AttributeError, match=r"virtual GPU|no attribute"):
        exec(row.run, namespace())
    assert "on a real GPU" in repr(gl.names(row.torch))


def test_nvml_calls_match_the_pynvml_signatures() -> None:
    pynvml = pytest.importorskip("pynvml")
    calls = {
        call
        for row in ROWS
        if row.where == "NVML"
        for call in re.findall(r"pynvml\.(\w+)\(([^()]*)\)", row.here)
    }
    assert calls
    for name, arguments in calls:
        values = [eval(text.strip(), {"pynvml": pynvml, "h": 0, "pid": 0}) for text in arguments.split(",")]
        inspect.signature(getattr(pynvml, name)).bind(*values)


def test_rows_that_cannot_run_name_the_reason() -> None:
    for row in ROWS:
        assert bool(row.run) == (row.where in ("everywhere", "GPU")), row.torch
        if row.where in ("NVML", "driver"):
            assert "driver" in repr(gl.names(row.torch)), row.torch
        if row.where == "none":
            assert row.notes, row.torch


SAME = (
    ("Stream Sanitizer", "TORCH_CUDA_SANITIZER"),
    ("TunableOp", "tunable.enable", "tunable.tuning_enable"),
    ("memory_reserved", "memory_cached"),
    ("max_memory_reserved", "max_memory_cached"),
    ("memory_stats", "memory_stats_as_nested_dict"),
    ("host_memory_stats", "host_memory_stats_as_nested_dict"),
    ("AcceleratorError", "CudaError"),
    ("backends.cuda.matmul.allow_tf32", "backends.cuda.matmul.fp32_precision"),
    ("set_float32_matmul_precision", "backends.cuda.matmul.fp32_precision"),
    ("get_sync_debug_mode", "set_sync_debug_mode"),
    ('Tensor.to("cuda")', "Tensor.cuda()"),
    ("nvtx.range", "profiler.record_function"),
)


def test_no_two_rows_contradict_each_other() -> None:
    by_name = {row.torch: row for row in ROWS}
    for group in SAME:
        first, *others = (by_name[name] for name in group)
        for row in others:
            assert (row.kind, row.where, row.section) == (first.kind, first.where, first.section), row.torch
            assert recommended(row) & recommended(first) or row.here == first.here, row.torch
    for row in ROWS:
        assert (row.kind == "none") == row.here.startswith("no "), row.torch
        assert row.kind != "none" or not recommended(row), (
            f"{row.torch} has no equivalent, and recommends one"
        )


def test_every_row_names_an_existing_section_of_the_course() -> None:
    assert len({row.torch for row in ROWS}) == len(ROWS) >= 180
    assert {row.where for row in ROWS} == {"everywhere", "GPU", "NVML", "driver", "none"}
    headings = {
        f"{number(path)} §{heading}"
        for path in NOTEBOOKS
        for heading in re.findall(r"^## (\d+) ·", text(read(path)), re.MULTILINE)
    } | {number(path) for path in NOTEBOOKS}
    shown = {row.section for row in ROWS if not row.section.endswith(", to come")}
    assert shown <= headings
    to_come = {row.section.split(",")[0] for row in ROWS} - {section.split(",")[0] for section in shown}
    assert not to_come & {number(path) for path in NOTEBOOKS}


@pytest.mark.parametrize("query", ["memory_reserved", "torch.cuda.memory_reserved", " MEMORY_reserved"])
def test_an_exact_name_finds_one_row(query: str) -> None:
    (row,) = gl.names(query).record
    assert row.torch == "memory_reserved"
    assert "1 name" in repr(gl.names(query))
    assert "total_bytes()" in repr(gl.names(query))
    assert "10a §1" in gl.names(query)._repr_html_()


def test_partial_names_of_either_library_find_rows() -> None:
    assert {"Stream", "stream", "current_stream"} <= {row.torch for row in gl.names("stream").record}
    assert "empty_cache" in {row.torch for row in gl.names("free_all_blocks").record}
    assert len(gl.names().record) == len(ROWS)
    assert f"{len(ROWS)} names" in repr(gl.names())
    assert "Did you mean 'memory_reserved'" in repr(gl.names("memory_reservd"))
