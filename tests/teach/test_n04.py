"""Notebook 04: the error catalogue, out-of-bounds writes, recorded screens and pictures."""

from __future__ import annotations

import itertools
import re
import sys
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp
from gpulab_course.content.n04_debugging import catalogue, exercises, figures
from gpulab_course.content.screens import Screens
from virtualgpu.records.faults.history import Write
from virtualgpu.records.hazards import Place


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_every_row_of_the_catalogue_raises_its_named_error() -> None:
    runs = catalogue.run()
    statuses = {name: run.record.status for name, run in runs.runs.items()}
    assert statuses == {
        "too_much_memory": 0,
        "too_many_threads": 1,
        "illegal_address": 700,
        "misaligned_address": 716,
        "device_assert": 710,
        "launch_failure": 719,
        "endless_kernel": 702,
    }
    assert runs.lost == [name for name, status in statuses.items() if status >= 700]
    assert "lives" in repr(runs)
    assert repr(runs).count("lost") == len(runs.lost)


def test_the_arrow_points_at_the_overwritten_byte() -> None:
    store = gl.cp.zeros(1024 + 256, dtype=gl.cp.int32)
    rows = store[:1024]
    index = store[1024:]
    place = Place(4, "rows[i] = i;", (4, 0, 0), (0, 0, 0))
    for offset in (0, 128):
        write = Write(kind="store", name="number_rows", launch=1, place=place)
        stray = figures.Stray({"rows": rows, "index": index}, write, "rows", 1024 + offset)
        assert f"writes index[{offset}]" in stray.describe()
        page = stray._repr_html_()
        boxes = [float(x) for x in re.findall(r'<rect x="([\d.]+)"', page)]
        share = (boxes[2] - boxes[0]) / (630 - boxes[0])
        assert share == pytest.approx((1024 + offset) / 1280, abs=0.01)
        assert f'aria-label="{stray.describe()}"' in page


def nans(program: Any) -> list[str]:
    """Return the names of arrays that contain a NaN, in the order of their steps."""
    return [
        name
        for name, values in {"x": program.states[0]["x"], **program.written_values}.items()
        if (values != values).any()
    ]


@pytest.mark.parametrize("seed", range(5))
def test_the_nan_hunt_expects_the_first_array_with_nan(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for stale, kind in itertools.product((False, True), exercises.HUNT_PROGRAM_KINDS):
        program = exercises.draw_program(rng, kind, stale)
        names = list(program.written_values)
        arrays = nans(program)
        assert (program.expected is None) == (kind == "none") == (not arrays)
        if program.expected is not None:
            assert program.expected[0] == arrays[0]
        if kind in ("last", "two", "alone"):
            assert arrays == [names[-1]]
        if kind in ("two", "twice"):
            row, col = program.expected[1]
            rows, cols = np.nonzero(np.isnan(program.written_values[arrays[0]]))
            assert (rows.min(), cols[rows.argmin()]) == (row, col)
            assert cols.min() < col
        assert (arrays[:1] == ["x"]) == (kind == "input")
        assert len(set(program.array_names.values())) < len(program.array_names) or kind not in (
            "in place",
            "over the input",
        )
        before = [program.states[0][program.array_names[name]] for name in names]
        own = [values for name, values in zip(names, before, strict=True) if program.array_names[name] != "x"]
        assert all(np.isnan(values).all() == stale for values in own)
        assert program.has_state_after(0, list(program.states[0].values()))
        assert program.has_state_after(len(names), list(program.states[-1].values()))


def test_recorded_compute_sanitizer_names_the_lines_of_gpulab() -> None:
    screens = Screens("gpulab_course.content.n04_debugging", "compute_sanitizer")
    code = screens.program.split('r"""')[1].split('"""')[0]
    x = cp.zeros(5 * 256, dtype=cp.int32)
    sums = cp.zeros(5, dtype=cp.int32)
    (runs,) = gl.sanitize(cp.RawKernel(code, "block_sum"), 5, 256, (x, sums)).hazards
    theirs = re.findall(r"\.cu:(\d+)", screens.screen("racecheck", only="========="))
    assert runs.first is not None
    assert sorted(map(int, theirs)) == sorted([runs.first.line, runs.second.line])
    assert "0 errors" in screens.screen("memcheck", only="=========")
    (line,) = re.findall(r"\.cu:(\d+)", screens.screen("memcheck", "no-pool", only="========="))
    assert "sums[blockIdx.x]" in code.splitlines()[int(line) - 1]
    assert screens.screen("memcheck") != screens.screen("memcheck", "no-pool")


def test_memory_reuse_is_drawn_only_if_freed_before_the_wait() -> None:
    careless = ("double", "add", "del", "z", "wait", "multiply")
    assert repr(figures.reuse(careless)).endswith("here writes z into it while side may still read doubled.")
    waits_first = ("double", "add", "wait", "del", "z", "multiply")
    keeps_it = ("double", "add", "z", "wait", "del", "multiply")
    for order in (waits_first, keeps_it):
        assert repr(figures.reuse(order)).endswith("z gets no memory that side may still read.")
