"""Timelines that ship are listed, and shown as recorded on the GPU that they are from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpulab as gl
from gpulab.lab import recorded
from tools.recordings import timelines


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of records with two timelines of a virtual H200 among them."""
    few = {name: timelines.PROGRAMS[name] for name in ("film_eager", "film_graph")}
    monkeypatch.setattr(timelines, "PROGRAMS", few)
    monkeypatch.setattr(recorded, "_folder", lambda: tmp_path)
    nothing = {"format": recorded.FORMAT, "version": 1, "launches": []}
    (tmp_path / recorded.INDEX).write_text(json.dumps(nothing))
    for made_before in (recorded.records, recorded.timelines):
        made_before.cache_clear()
    timelines.main(["--out", str(tmp_path), "--device", "virtual:H200"])
    yield tmp_path
    gl.use_device("auto")
    for made_before in (recorded.records, recorded.timelines):
        made_before.cache_clear()


def test_they_are_listed_and_shown_as_recorded(shipped: Path) -> None:
    listed = repr(gl.recorded())
    assert "h200_film_eager_timeline" in listed
    assert "40 additions to 4,096 floats, as one graph" in listed
    eager: Any = gl.recorded("h200_film_eager_timeline")
    graph: Any = gl.recorded("h200_film_graph_timeline")
    assert "recorded on" in repr(eager)
    assert eager.record.provenance.source == "recorded"
    assert len(eager.record.activities) == len(graph.record.activities) == 40
    assert {a.graph_id for a in eager.record.activities} == {0}
    assert len({a.graph_id for a in graph.record.activities} - {0}) == 1


def test_recording_again_replaces_what_the_same_gpu_had(shipped: Path) -> None:
    timelines.main(["--out", str(shipped), "--device", "virtual:H200"])
    timelines.main(["--out", str(shipped), "--device", "virtual:T4"])
    names = [one["name"] for one in json.loads((shipped / recorded.TIMELINES).read_text())["timelines"]]
    assert sorted(names) == sorted({*names})
    assert len(names) == 4
