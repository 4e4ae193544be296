"""`gpulab report`: the progress files of a class in one table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpulab as gl
from gpulab import cli
from gpulab_course import folders
from gpulab_course.classroom import report


def notebook(number: str, **fields: Any) -> dict[str, Any]:
    return {"number": number, "exercises": [], "predictions": [], "quiz": []} | fields


def passes(*states: Any) -> list[dict[str, Any]]:
    return [{"passed": state} for state in states]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return (cli.main(list(arguments)), *capsys.readouterr())


def learner(folder: Path, name: str, *notebooks: dict[str, Any], **fields: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"format": "gpulab-progress", "version": 1, "notebooks": notebooks} | fields
    path.write_text(json.dumps(record), encoding="utf-8-sig")


@pytest.fixture
def reports(workdir: Path) -> Path:
    predicted = [
        {"value": 1, "sure": True, "right": True},
        {"value": 1, "sure": True, "right": False},
        {"value": 1, "sure": True, "right": None},
        {"value": 2, "sure": False, "right": True},
        {"value": 3, "right": False},
        {"value": None},
    ]
    learner(
        workdir / "class",
        "ada/progress.json",
        notebook("00", exercises=passes(True, False, True)),
        notebook("01", predictions=predicted, exercises=passes(True)),
        notebook("02", quiz=[{"right": True}, {"right": False}, {"right": None}]),
        notebook("03"),
    )
    learner(
        workdir / "class", "-bob.json", notebook("01", exercises=passes(False, 1), quiz=[{"right": None}])
    )
    learner(workdir / "class", "progress.json", notebook("01", predictions=[{"value": 0}]))
    return workdir / "class"


def test_a_report_has_one_line_per_learner(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "report", "class")
    assert (status, err) == (0, "")
    title, head, *rows = [line for line in out.splitlines() if line.strip("- ─")]
    assert title == "Progress of 3 learners"
    assert head.split() == ["learner", "last", "exercises", "predictions", "sure", "guesses", "quiz"]
    assert [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows] == [
        ["-bob", "none yet", "0 of 2", "0 of 0", "0 of 0", "0 of 0", "0 of 1"],
        ["ada", "02", "3 of 4", "2 of 4", "1 of 2", "1 of 1", "1 of 3"],
        ["progress", "01", "0 of 0", "0 of 0", "0 of 0", "0 of 0", "0 of 0"],
    ]


SHARES = ",".join(f"{n},{n} of" for n in ("exercises", "predictions", "sure", "guesses", "quiz"))


COLUMNS = f"learner,file,last,{SHARES}"


def test_a_report_is_printed_as_csv_and_json(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "report", "class", "--csv")[1].splitlines() == [
        f"{COLUMNS},00,00 of,01,01 of,02,02 of,03,03 of",
        "'-bob,'-bob.json,none yet,0,2,0,0,0,0,0,0,0,1,,,0,2,,,,",
        "ada,ada/progress.json,02,3,4,2,4,1,2,1,1,1,3,2,3,1,1,0,0,0,0",
        "progress,progress.json,01,0,0,0,0,0,0,0,0,0,0,,,0,0,,,,",
    ]
    rows = json.loads(run(capsys, "report", "class", "--json")[1])
    assert rows[1]["notebooks"] == {"00": [2, 3], "01": [1, 1], "02": [0, 0], "03": [0, 0]}


def test_an_unreadable_file_is_skipped_and_sets_the_exit_status(
    workdir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner(workdir, "class/good.json", notebook("01"))
    assert run(capsys, "report", "class")[0] == 0
    (workdir / "class/locked.json").write_text("{}")
    read_text = Path.read_text

    def locked(self: Path, **fields: Any) -> str:
        if self.name == "locked.json":
            raise PermissionError(13, "Permission denied")
        return read_text(self, **fields)

    monkeypatch.setattr(Path, "read_text", locked)
    status, out, err = run(capsys, "report", "class")
    assert (status, err) == (1, "gpulab: locked.json is left out: Permission denied.\n")
    assert "Progress of 1 learner\n" in out
    (workdir / "class/deep.json").write_text("[" * 100_000)
    assert "damaged (nested too deeply)." in run(capsys, "report", "class")[2]


def progress(done: int = 0, **changes: Any) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(gl.progress().json())
    for exercise in record["notebooks"][0]["exercises"][:done]:
        exercise["passed"] = True
    return record | changes


def test_a_report_reads_a_saved_progress(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workdir / "class").mkdir()
    (workdir / "class/ada.json").write_text(json.dumps(progress(2)))
    assert cli.main(["report", "--json", "class"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["last"], row["exercises"]) == ("00", [2, len(folders.list_exercises())])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[]", "its format"),
        (json.dumps({"format": "x", "version": 1, "notebooks": []}), "its format is not 'gpulab-progress'"),
        ('{"format": "gpulab-progress"}', "version is None"),
        (json.dumps({"format": "gpulab-progress", "version": 2}), "version is 2, not 1"),
        (json.dumps({"format": "gpulab-progress", "version": 1, "notebooks": 3}), "'notebooks' is missing"),
        (json.dumps({"format": "gpulab-progress", "version": 1, "notebooks": [3]}), "has the wrong type"),
        (
            json.dumps({"format": "gpulab-progress", "version": 1, "notebooks": [{"number": "=1+1"}]}),
            "number",
        ),
        (json.dumps({"format": "gpulab-progress", "version": 1, "notebooks": [notebook("001")]}), "number"),
        (
            json.dumps({"format": "gpulab-progress", "version": 1, "notebooks": [notebook("01", quiz=[1])]}),
            "'quiz'",
        ),
        ("[" * 100_000, "nested too deeply|recursion"),
        ("\udcff", "utf-8|decode"),
        ('{"format": "gpulab-progress", "version": 1, "notebooks": [{"number": "00"', "Expecting|delimiter"),
    ],
)
def test_damaged_files_are_reported_and_not_modified(
    workdir: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    (workdir / "class").mkdir()
    (workdir / "class/ada.json").write_text(json.dumps(progress(1)))
    bad = workdir / "class" / "eve.json"
    bad.write_text(text, encoding="utf-8", errors="surrogateescape")
    before = bad.read_bytes()
    assert cli.main(["report", "class"]) == 1
    out, err = capsys.readouterr()
    assert "Progress of 1 learner" in out
    assert err.startswith("gpulab: eve.json is left out: ")
    assert any(word in err for word in why.split("|")), err
    assert bad.read_bytes() == before
    assert sorted(path.name for path in (workdir / "class").iterdir()) == ["ada.json", "eve.json"]


def test_values_of_wrong_types_are_not_counted(workdir: Path) -> None:
    record = progress()
    record["notebooks"][0]["exercises"][0]["passed"] = "true"
    record["notebooks"][0]["predictions"][0] |= {"right": 1e308, "sure": 1}
    (workdir / "eve.json").write_text(json.dumps(record))
    ((learner_,), left_out) = report.read_learners(workdir)
    assert left_out == []
    assert (learner_.exercises[0], learner_.predictions, learner_.sure, learner_.last) == (
        0,
        (0, 0),
        (0, 0),
        "none yet",
    )


@pytest.mark.parametrize("folder", ["nowhere", "empty"])
def test_a_folder_without_reports_is_an_error(
    workdir: Path, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    (workdir / "empty").mkdir()
    assert cli.main(["report", folder]) == 1
    assert folder in capsys.readouterr().err


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_report_prints_any_name_in_any_encoding(workdir: Path, encoding: str) -> None:
    (workdir / "class").mkdir()
    gl.progress().save(workdir / "class" / "Łukasz.json")
    done = subprocess.run(
        [sys.executable, "-m", "gpulab", "report", "class"],
        capture_output=True,
        text=True,
        encoding=encoding,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0, done.stderr
    assert "\\u0141ukasz" in done.stdout


def test_control_characters_of_a_name_are_replaced(workdir: Path) -> None:
    learner(workdir, "b\x1b/progress.json", notebook("01"))
    assert [row.learner for row in report.read_learners(workdir)[0]] == ["b?"]
