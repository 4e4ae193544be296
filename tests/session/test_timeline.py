"""``gl.timeline``: correct uses and typical mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import gpulab as gl
from gpulab.lab.timeline import TimelineReport
from virtualgpu.errors import GpulabError
from virtualgpu.records import Advice, Gap, Overlap, PathStep


@pytest.fixture(autouse=True)
def virtual() -> None:
    gl.use_device("virtual:A100")


def test_a_timeline_lists_its_operations_and_the_device() -> None:
    x = gl.cp.zeros(1 << 20, gl.cp.float32)
    with gl.timeline() as t:
        x.fill(1)
        x.get()
    text = repr(t)
    for part in ("modelled on virtual A100", "1 kernel", "1 copy (1 D2H)", "1 stream", "1 wait"):
        assert part in text


def test_a_nested_timeline_fails_and_the_outer_one_continues() -> None:
    x = gl.cp.zeros(8)
    with gl.timeline() as outer:
        with pytest.raises(GpulabError, match=r"cannot be nested.*call \.stop\(\)"), gl.timeline():
            pass
        x.fill(1)
    assert len(outer.record.activities) == 1


def looped() -> TimelineReport:
    """Record a loop that waits implicitly, with copies of pageable memory."""
    cp = gl.cp
    x = cp.zeros(1 << 20, cp.float32)
    host = np.ones(1 << 20, np.float32)
    with gl.timeline() as t:
        for _ in range(3):
            x.set(host)
            x *= 2
            float(x[0])
    return t


def test_analyses_contain_records_and_show_their_provenance() -> None:
    t = looped()
    label = "modelled on virtual A100-SXM4-80GB"
    for analysis, kind in (
        (t.overlap(), Overlap),
        (t.gaps(), Gap),
        (t.critical_path(), PathStep),
        (t.advice(), Advice),
    ):
        assert all(isinstance(row, kind) for row in analysis)
        assert len(analysis) > 0
        assert label in repr(analysis)
        assert label in analysis._repr_html_()
    assert "compute and H2D" in repr(t.overlap())
    assert re.search(r"compute +pageable copy +test_timeline.py, line \d+: x.set\(host\)", repr(t.gaps()))
    assert "Memcpy HtoD" in repr(t.critical_path())
    assert repr(t.advice()).count("up to about") == len(t.advice())
    assert all(part in t.describe() for part in (repr(t), repr(t.overlap()), repr(t.advice())))


def test_an_empty_timeline_has_empty_analyses() -> None:
    with gl.timeline() as t:
        pass
    assert "nothing" in repr(t)
    assert "there is none" in repr(t.overlap())
    assert t.gaps() == t.critical_path() == t.advice() == ()
    assert "no single change would help" in t.describe()


def test_a_timeline_is_displayed_and_compared_with_another() -> None:
    first = looped()
    second = looped()
    bundle, _ = first._repr_mimebundle_() or ({}, {})
    assert bundle["text/plain"] == repr(first)
    assert "image/png" in bundle or "application/vnd.jupyter.widget-view+json" in bundle
    comparison = first.compare(second)
    assert comparison.record == gl.timelines(first, second.record).record == (first.record, second.record)
    named = gl.timelines(first, before=first, after=second)
    headings = [panel.heading for panel in named.panels]
    assert [heading.split(":")[0] for heading in headings[1:]] == ["before", "after"]
    assert headings[0].startswith("Modelled on")
    with pytest.raises(TypeError, match="Pass the timelines"):
        gl.timelines()
    with pytest.raises(TypeError, match="not int"):
        first.compare(3)  # type: ignore[arg-type]


def test_a_timeline_is_saved_and_opened_again(tmp_path: Path) -> None:
    t = looped()
    for name in ("t.json", "t.json.gz"):
        again = gl.open_timeline(t.save(tmp_path / name))
        assert again.record == t.record
        assert repr(again) == repr(t)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        gl.open_timeline(tmp_path / "none.json")
