"""Shipped timelines are listed, and shown as recorded on their GPU."""

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
    """A folder of records with two timelines of a virtual H200."""
    programs = {name: timelines.PROGRAMS[name] for name in ("film_eager", "film_graph")}
    monkeypatch.setattr(timelines, "PROGRAMS", programs)
    monkeypatch.setattr(recorded, "_find_folder", lambda: tmp_path)
    (tmp_path / recorded.INDEX_FILE_NAME).write_text(
        json.dumps({"format": recorded.INDEX_FORMAT, "version": 1, "launches": []})
    )
    for listing in (recorded.load_launch_records, recorded.load_timeline_records):
        listing.cache_clear()
    timelines.main(["--out", str(tmp_path), "--device", "virtual:H200"])
    yield tmp_path
    gl.use_device("auto")
    for listing in (recorded.load_launch_records, recorded.load_timeline_records):
        listing.cache_clear()


def test_shipped_timelines_are_listed_and_shown_as_recorded(shipped: Path) -> None:
    listing = repr(gl.recorded())
    assert "h200_film_eager_timeline" in listing
    assert "as one graph" in listing
    eager: Any = gl.recorded("h200_film_eager_timeline")
    graph: Any = gl.recorded("h200_film_graph_timeline")
    assert "recorded on" in repr(eager)
    assert eager.record.provenance.source == "recorded"
    assert len(eager.record.activities) == len(graph.record.activities) == 40
    assert {a.graph_id for a in eager.record.activities} == {0}
    assert len({a.graph_id for a in graph.record.activities} - {0}) == 1


def test_a_new_recording_replaces_those_of_the_same_gpu(shipped: Path) -> None:
    timelines.main(["--out", str(shipped), "--device", "virtual:H200"])
    timelines.main(["--out", str(shipped), "--device", "virtual:T4"])
    entries = json.loads((shipped / recorded.TIMELINE_INDEX_NAME).read_text())["timelines"]
    assert len(entries) == len({entry["name"] for entry in entries}) == 4
