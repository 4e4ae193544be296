"""The teacher's tally counts the published answers of learners and ignores other files in the folder."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from gpulab_course.classroom import tally
from gpulab_course.teach import tally as summaries
from gpulab_course.teach.store import LearnerStore

LEARNERS = 30


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv(summaries.FOLDER_VARIABLE, str(shared))
    return shared


def learn(home: Path, number: int) -> None:
    store = LearnerStore(home / f"learner{number}" / "learner.json")
    store.put(
        "predictions", "00-small", {"value": "the GPU" if number % 3 else "NumPy", "sure": number % 2 == 0}
    )
    if number < 10:
        store.put("exercises", "00-saxpy", {"best": {"instructions": 12}})


def test_thirty_learners_are_counted_with_their_choices(folder: Path, tmp_path: Path) -> None:
    for number in range(LEARNERS):
        learn(tmp_path, number)
    counted = tally.read_tally(folder)
    assert counted.learner_count == LEARNERS
    answers = counted.answer_counts["00-small"]
    assert answers.learner_counts == {"the GPU": 20, "NumPy": 10}
    assert answers.sure_learner_counts == {"the GPU": 10, "NumPy": 5}
    assert counted.pass_counts == {"00-saxpy": 10}
    text = tally.make_page(counted)
    assert "30 learners" in text
    assert re.findall(r"(\d+) of 30", text) == ["20", "10", "10"]
    assert "02-" not in text


def test_a_changed_answer_replaces_the_old_one(folder: Path, tmp_path: Path) -> None:
    store = LearnerStore(tmp_path / "learner.json")
    store.put("predictions", "00-small", {"value": "NumPy", "sure": True})
    store.put("predictions", "00-small", {"value": "the GPU", "sure": False})
    assert tally.read_tally(folder).answer_counts["00-small"].learner_counts == {"the GPU": 1}
    store.forget("predictions", "00-small")
    assert tally.read_tally(folder).answer_counts == {}


def test_exercise_answers_and_correct_values_are_not_published(folder: Path, tmp_path: Path) -> None:
    store = LearnerStore(tmp_path / "learner.json")
    store.put("predictions", "00-small", {"value": "NumPy", "sure": True, "right": True})
    store.put("exercises", "00-saxpy", {"code": "y[i] = a * x[i] + y[i];"})
    (published,) = (json.loads(path.read_text()) for path in folder.glob("*.json"))
    assert published["predictions"] == {"00-small": {"value": "NumPy", "sure": True}}
    assert published["exercises"] == ["00-saxpy"]


def test_invalid_files_of_learners_do_not_stop_the_tally(folder: Path, tmp_path: Path) -> None:
    learn(tmp_path, 1)
    good = json.loads(next(folder.glob("*.json")).read_text())
    bad = {
        "text.json": b"not json",
        "list.json": b"[1, 2]",
        "other.json": json.dumps({"format": "gpulab-progress", "version": 1}).encode(),
        "value.json": json.dumps(good | {"predictions": {"00-small": {"value": {"a": 1}}}}).encode(),
        "exercises.json": json.dumps(good | {"exercises": [{}]}).encode(),
        "deep.json": b"[" * 100_000,
        "large.json": b" " * (2 << 20),
    }
    for name, data in bad.items():
        (folder / name).write_bytes(data)
    (folder / "folder.json").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.json")
        (folder / "link.json").symlink_to(tmp_path / "learner1" / "learner.json")
    (folder / "strange.json").write_text(
        json.dumps(good | {"predictions": {"00-nothing": {"value": 1}}, "exercises": ["00-nothing"]})
    )
    counted = tally.read_tally(folder)
    assert counted.learner_count == 2
    assert {*bad} < {*counted.unreadable_files}
    assert counted.answer_counts.keys() == {"00-small"}


def test_markup_in_an_answer_is_shown_as_text(folder: Path, tmp_path: Path) -> None:
    LearnerStore(tmp_path / "learner.json").put("predictions", "00-small", {"value": "<script>x</script>"})
    text = tally.make_page(tally.read_tally(folder))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_an_unwritable_shared_folder_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(summaries.FOLDER_VARIABLE, str(tmp_path / "missing"))
    store = LearnerStore(tmp_path / "learner.json")
    store.put("predictions", "00-small", {"value": "NumPy"})
    assert store.get("predictions", "00-small") == {"value": "NumPy"}
    assert capsys.readouterr().err == ""


def test_the_command_writes_a_page_and_names_a_missing_folder(folder: Path, tmp_path: Path) -> None:
    learn(tmp_path, 3)
    page = tmp_path / "tally.html"
    assert tally.main([str(folder), "--once", "--page", str(page)]) == 0
    assert "1 learner<" in page.read_text()
    assert 'http-equiv="refresh"' not in page.read_text()
    with pytest.raises(tally.TallyError, match="GPULAB_TALLY"):
        tally.main([str(tmp_path / "nowhere"), "--once", "--page", str(page)])
