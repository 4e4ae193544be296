"""What notebook 04 shows: a table whose rows run, and the neighbour's bytes."""

from __future__ import annotations

import re
import sys

import pytest

import gpulab as gl
from gpulab.course.n04_debugging import catalogue, exercises, figures
from virtualgpu.records.faults.history import Write
from virtualgpu.records.hazards import Place


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_every_row_of_the_catalogue_is_the_error_it_is_called() -> None:
    found = catalogue.run()
    statuses = {name: seen.record.status for name, seen in found.runs.items()}
    assert statuses == {
        "too_much_memory": 0,
        "too_many_threads": 1,
        "illegal_address": 700,
        "misaligned_address": 716,
        "device_assert": 710,
        "launch_failure": 719,
        "endless_kernel": 702,
    }
    assert found.lost == [name for name, status in statuses.items() if status >= 700]
    assert "lives" in repr(found)
    assert repr(found).count("lost") == len(found.lost)


def test_the_arrow_points_at_the_byte_that_was_hit() -> None:
    store = gl.cp.zeros(1024 + 256, dtype=gl.cp.int32)
    rows, index = store[:1024], store[1024:]
    place = Place(4, "rows[i] = i;", (4, 0, 0), (0, 0, 0))
    for beyond in (0, 128):
        write = Write(kind="store", name="number_rows", launch=1, place=place)
        stray = figures.Stray({"rows": rows, "index": index}, write, "rows", 1024 + beyond)
        assert f"writes index[{beyond}]" in stray.describe()
        page = stray._repr_html_()
        boxes = [float(x) for x in re.findall(r'<rect x="([\d.]+)"', page)]
        share = (boxes[2] - boxes[0]) / (630 - boxes[0])
        assert share == pytest.approx((1024 + beyond) / 1280, abs=0.01)
        assert f'aria-label="{stray.describe()}"' in page


def test_what_the_hunt_is_to_find_depends_on_its_kind() -> None:
    import numpy as np

    x = np.ones((4, 4), np.float32)
    cells = [(2, 1), (1, 3), (0, 0)]
    wanted = {kind: exercises._program(kind, x, 2, cells, run=True)[1]
              for kind in ("made", "none", "in place", "input", "infinite", "stale", "two")}  # fmt: skip
    assert wanted == {
        "made": ("scores", (2, 1)), "none": None, "in place": ("scores", (2, 1)), "input": ("x", (2, 1)),
        "infinite": ("weights", (2, 1)), "stale": None, "two": ("scores", (1, 3)),
    }  # fmt: skip
