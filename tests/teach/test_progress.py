"""Progress: what was passed, predicted and answered, in words, with links and as a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gpulab as gl
from gpulab.teach import folders
from gpulab.teach.question import PredictionQuestion
from gpulab.teach.store import store

ASKED = {f"00-{n}": PredictionQuestion(f"00-{n}", "?", "So.", unit="blocks") for n in range(6)}


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "prediction", ASKED.get)
    monkeypatch.setattr(folders.Folder, "predictions", property(lambda f: ASKED if f.number == "00" else {}))


def lock(key: str, answer: int, found: int, sure: bool | None = None) -> None:
    gl.predict(key, answer=answer, sure=sure)
    gl.reveal(key, found, "counted")


def test_nothing_done_yet() -> None:
    assert gl.progress().passed == 0
    assert repr(gl.progress()).startswith("Progress: 0 of ")
    assert "0 of 0 predictions right, of 6 that the course asks for; 0 of" in repr(gl.progress())


def test_predictions_are_counted_once_compared_and_tell_how_well_calibrated() -> None:
    for number, (answer, sure) in enumerate([(4, True), (4, True), (3, True), (3, False), (4, False)]):
        lock(f"00-{number}", answer, 4, sure)
    gl.predict("00-5", answer=4, sure=True)  # not compared yet
    found = gl.progress()
    assert (found.calibration(True), found.calibration(False)) == ((2, 3), (1, 2))
    assert "3 of 5 predictions right, of 6" in repr(found)
    assert repr(found).endswith("When sure, right 2 of 3 (67%); when guessing, 1 of 2 (50%).")


def test_exercises_show_their_best_score() -> None:
    name = next(iter(folders.exercises()))
    store().put("exercises", name, True)
    store().put("scores", name, {"sectors": 1563})
    found = gl.progress()
    assert found.passed == 1
    assert f"{name}: 1,563 sectors" in str(found)


def test_rows_link_to_the_notebooks_that_lie_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "<a " not in gl.progress()._repr_html_()
    (tmp_path / "00_start_here.ipynb").write_text("{}")
    assert '<a href="00_start_here.ipynb">00 start</a>' in gl.progress()._repr_html_()


def test_a_file_for_the_instructor_holds_answers_and_outcomes(tmp_path: Path) -> None:
    lock("00-0", 3, 4, sure=True)
    file = tmp_path / "me.json"
    gl.progress().save(file)
    told = json.loads(file.read_text(encoding="utf-8"))
    assert told["format"] == "gpulab-progress"
    (notebook,) = [n for n in told["notebooks"] if n["number"] == "00"]
    assert notebook["predictions"][0] == {"key": "00-0", "value": 3, "sure": True, "right": False}
    assert {"question", "first", "right"} == set(notebook["quiz"][0])
