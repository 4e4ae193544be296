"""``gl.timeline`` and ``%%gpu_timeline``: what a learner types, also by mistake."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import numpy as np
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import gpulab as gl
from gpulab.lab.timeline import TimelineReport
from gpulab.session import current
from tests.session.notebooks import run
from virtualgpu.errors import GpulabError
from virtualgpu.records import Advice, Gap, Overlap, PathStep


@pytest.fixture(autouse=True)
def virtual() -> None:
    gl.use_device("virtual:A100")


def test_a_timeline_says_in_one_sentence_what_ran_and_where() -> None:
    x = gl.cp.zeros(1 << 20, gl.cp.float32)
    with gl.timeline() as t:
        x.fill(1)
        x.get()
    assert repr(t) == (
        f"Timeline of {t.record.duration_ns / 1000:.0f} µs, modelled on virtual A100-SXM4-80GB: "
        "1 kernel and 1 copy (1 D2H) in 1 stream; 1 wait of the host."
    )


def test_an_error_in_the_block_passes_and_what_ran_is_kept() -> None:
    x = gl.cp.zeros(8)
    t = gl.timeline()

    def fails() -> None:
        with t:
            x.fill(1)
            x.fill(1 / 0)

    with pytest.raises(ZeroDivisionError):
        fails()
    assert len(t.record.activities) == 1
    with gl.timeline() as again:
        pass
    assert "nothing" in repr(again)


def test_the_record_is_there_when_the_block_has_ended() -> None:
    t = gl.timeline()
    assert repr(t) == "Timeline that has not begun: write `with gl.timeline() as t:`."
    with t, pytest.raises(GpulabError, match=r"being recorded.*when the block has ended"):
        t.record  # noqa: B018
    with pytest.raises(GpulabError, match="holds a recording; make a new one"), t:
        pass


def test_nested_timelines_are_refused_and_the_outer_goes_on() -> None:
    x = gl.cp.zeros(8)
    with gl.timeline() as outer:
        with pytest.raises(GpulabError, match="do not nest"), gl.timeline():
            pass
        x.fill(1)
    assert len(outer.record.activities) == 1


def test_one_never_closed_ends_when_it_is_forgotten_or_stopped() -> None:
    kept = gl.timeline().__enter__()
    with pytest.raises(GpulabError, match=r"call \.stop\(\)"), gl.timeline():
        pass
    kept.stop()
    forgotten = gl.timeline().__enter__()
    with pytest.warns(ResourceWarning, match="timeline was started and never stopped"):
        del forgotten
    gc.collect()
    with gl.timeline():
        pass


def test_another_device_within_the_block_ends_nothing_and_is_said() -> None:
    x = gl.cp.zeros(8)
    with gl.timeline() as t:
        x.fill(1)
        gl.use_device("virtual:T4")
        gl.cp.zeros(8).fill(2)
    assert len(t.record.activities) == 1
    assert "moved to another device" in t.describe()
    assert "A100" in t.describe()
    with gl.timeline() as other:
        gl.cp.zeros(8).fill(2)
    assert "T4" in repr(other)
    assert current.virtual_side().machine.clock.recorder is None


def looped() -> TimelineReport:
    """A loop that waits without being asked to, over a copy of pageable memory."""
    cp = gl.cp
    x = cp.zeros(1 << 20, cp.float32)
    host = np.ones(1 << 20, np.float32)
    with gl.timeline() as t:
        for _ in range(3):
            x.set(host)
            x *= 2
            float(x[0])
    return t


def test_answers_are_data_and_tables_with_their_origin() -> None:
    t = looped()
    label = "modelled on virtual A100-SXM4-80GB"
    for answers, kind in (
        (t.overlap(), Overlap),
        (t.gaps(), Gap),
        (t.critical_path(), PathStep),
        (t.advice(), Advice),
    ):
        assert all(isinstance(each, kind) for each in answers)
        assert len(answers) > 0
        assert label in repr(answers)
        assert label in answers._repr_html_()
    assert "compute and H2D" in repr(t.overlap())
    assert re.search(r"compute +pageable copy +test_timeline.py, line \d+: x.set\(host\)", repr(t.gaps()))
    assert "Memcpy HtoD" in repr(t.critical_path())
    assert repr(t.advice()).count("up to about") == len(t.advice())
    assert all(part in t.describe() for part in (repr(t), repr(t.overlap()), repr(t.advice())))


def test_an_empty_timeline_answers_too() -> None:
    with gl.timeline() as t:
        pass
    assert "there is none" in repr(t.overlap())
    assert t.gaps() == t.critical_path() == t.advice() == ()
    assert "Nothing stands out" in t.describe()


def test_it_displays_as_its_view_and_several_stand_on_one_axis() -> None:
    one = looped()
    two = looped()
    shown, _ = one._repr_mimebundle_() or ({}, {})
    assert shown["text/plain"] == repr(one)
    assert "image/png" in shown or "application/vnd.jupyter.widget-view+json" in shown
    assert gl.timeline()._repr_mimebundle_() is None
    both = one.compare(two)
    assert both.record == gl.timelines(one, two.record).record == (one.record, two.record)
    with pytest.raises(TypeError, match="Give the timelines"):
        gl.timelines()
    with pytest.raises(TypeError, match="not int"):
        one.compare(3)  # type: ignore[arg-type]


def test_it_is_saved_and_opened_again(tmp_path: Path) -> None:
    t = looped()
    for name in ("t.json", "t.json.gz"):
        again = gl.open_timeline(t.save(tmp_path / name))
        assert again.record == t.record
        assert repr(again) == repr(t)
    assert t.save(tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in t.save(str(tmp_path / "t.html")).read_text("utf-8")
    with pytest.raises(ValueError, match=r"saved as .json, .json.gz, .html, .htm or .png, not as 't.txt'"):
        t.save("t.txt")
    with pytest.raises(FileNotFoundError, match="There is no file"):
        gl.open_timeline(tmp_path / "none.json")


def test_the_magic_records_its_cell_and_lines_are_named_by_the_cell(jupyter: NotebookClient) -> None:
    run(jupyter, "import gpulab as gl\nfrom gpulab import cp\nx = cp.zeros(8)")
    shown = run(jupyter, "%%gpu_timeline -o t\nx.fill(1)\ny = float(x[0])")
    assert "Timeline of" in str(shown)
    lines = run(jupyter, "print([(str(c.source), c.source.text) for c in t.record.calls])\nassert y == 1")
    assert "('cell [2], line 2', 'x.fill(1)'), ('cell [2], line 3', 'y = float(x[0])')" in str(lines)
    with pytest.raises(CellExecutionError) as failed:
        run(jupyter, "%%gpu_timeline -o t\nx.fill(2)\n1 / 0")
    assert str(failed.value).count("division by zero") == 1
    assert "Timeline of" in str(run(jupyter, "print(t)"))
    with pytest.raises(CellExecutionError, match="takes the name"):
        run(jupyter, "%%gpu_timeline a b\nx.fill(2)")
