"""Answers in files, judged without Jupyter, and a class's progress files in one table."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpulab as gl
from gpulab import cli
from gpulab.processes import talk
from gpulab_course import folders
from gpulab_course.classroom import answers, golf, instructor, report
from gpulab_course.teach.store import store
from tests.answers import n00_start

SAXPY = next(right.answer for right in n00_start.RIGHT if right.exercise_id == "00-saxpy")
SHAPE = """
def shape_for(n, info):
    threads = info.max_threads_per_block
    return -(-n // threads), threads
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(["check", *arguments])
    return (status, *capsys.readouterr())


def test_a_kernel_in_a_file_is_judged_and_nothing_is_kept(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "mine.cu").write_text(SAXPY)
    status, out, err = check(capsys, "00-saxpy", "mine.cu")
    assert (status, err) == (0, "")
    assert out.startswith("00-saxpy: passed: ")
    assert "✓ parallelism" in out
    assert not store().get("exercises", "00-saxpy")


@pytest.mark.parametrize("name", ["saxpy", "answer"])
@pytest.mark.parametrize("package", ["from gpulab import cp", "import cupy as cp", ""])
def test_python_may_hold_a_kernel(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, package: str
) -> None:
    kernel = f'cp.RawKernel(r"""{SAXPY}""", "saxpy")' if package else f'r"""{SAXPY}"""'
    (here / "mine.py").write_text(f"\ufeff{package}\nprint('hello')\n{name} = {kernel}\n", encoding="utf-8")
    status, out, _ = check(capsys, "00-saxpy", "mine.py", "--json")
    found = json.loads(out)
    assert (status, found["passed"], found["error"]) == (0, True, "")
    assert [stage["state"] for stage in found["stages"]] == ["passed"] * 5


def test_python_runs_where_answers_run_and_only_its_name_counts(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = "import os, pathlib\npathlib.Path('here').write_text(str(os.getpid()))\nprint('looking')\n"
    guarded = "if __name__ == '__main__':\n    raise SystemExit(3)\n"
    (here / "mine.py").write_text(f"{mark}{SHAPE}def other(): ...\n{guarded}")
    status, out, err = check(capsys, "00-blocks", "mine.py", "--json")
    assert (status, json.loads(out)["passed"]) == (0, True), out
    assert "looking" in err  # what an answer prints is no part of the JSON
    assert (here / "here").read_text() != str(os.getpid())
    assert "mine" not in sys.modules


@pytest.mark.parametrize(
    ("exercise", "text", "said"),
    [
        ("00-blocks", "while True: pass", "longer than 4 s of processor time; look for a loop"),
        ("00-saxpy", "while True: pass", "longer than 3 s of processor time; look for a loop"),
        ("00-blocks", "import os\nos._exit(0)", "ended Python with status 0"),
        ("00-saxpy", "import os\nos.kill(os.getpid(), 9)", "crashed Python"),
        ("00-blocks", "raise SystemExit", "exit"),
        ("00-blocks", "x = 1 / 0", "ZeroDivisionError"),
        ("00-saxpy", "x = 1 / 0", "ZeroDivisionError"),
        ("00-blocks", "def shape(n, info): return 1, 1", "defines no `shape_for`"),
        ("00-saxpy", "saxpy = 3", "is no kernel"),
        ("00-saxpy", "saxpy = 'int main() {}'", "no kernel `saxpy`"),
    ],
)
def test_python_that_goes_wrong_is_not_yet(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    exercise: str,
    text: str,
    said: str,
) -> None:
    monkeypatch.setattr(talk, "LONGEST_S", 600.0)  # processor time decides, however busy this machine is
    monkeypatch.setattr(answers, "_KERNEL_LIMIT_S", 3.0)
    (here / "mine.py").write_text(text)
    status, out, err = check(capsys, exercise, "mine.py")
    assert status == 1, (out, err)
    assert out.startswith(f"{exercise}: not yet: ")
    assert said in out
    assert len(out.splitlines()) == 1


def test_a_busy_computer_is_named(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk, "LONGEST_S", 0.3)
    (here / "mine.py").write_text("while True: pass")
    status, out, _ = check(capsys, "00-blocks", "mine.py")
    assert status == 1
    assert "it was not done after 0.3 s" in out
    assert "try again when less is running" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("00-saxpy", "nothing.cu"), "nothing.cu cannot be read: No such file"),
        (("00-saxpy", "."), "cannot be read|is no file"),
        (("00-saxpi", "mine.cu"), "no exercise '00-saxpi'. Did you mean '00-saxpy'?"),
        (("", "mine.cu"), "usage: gpulab check"),
        (("99-x", "mine.cu"), "no exercise '99-x'"),
        (("00-blocks", "mine.cu"), "00-blocks is answered in Python"),
        (("00-saxpy", "mine.txt"), "neither a .cu nor a .py file"),
        (("00-blocks", "broken.py"), "broken.py, line 2: this is no Python"),
        (("00-blocks", "null.py"), "null.py.*: this is no Python"),
        (("00-blocks", "latin.py"), "no text in UTF-8: byte 3 "),
        (("00-saxpy", "huge.cu"), "more than 1 MiB"),
        (("--all", "nowhere"), "nowhere is no folder"),
        (("--all", "empty"), "empty holds no answer"),
        (("--all", "empty", "00-saxpy"), "--all takes the exercises"),
        (("00-saxpy",), "name an exercise and a file"),
    ],
)
def test_what_cannot_be_judged_is_said_in_a_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    (here / "empty").mkdir()
    (here / "mine.cu").write_text("x")
    (here / "mine.txt").write_text("x")
    (here / "broken.py").write_text("\ndef f(:\n")
    (here / "null.py").write_bytes(b"x = 1\0\n")
    (here / "latin.py").write_bytes(b"# \x77\xe9\n")
    (here / "huge.cu").write_bytes(b" " * ((1 << 20) + 1))
    try:
        status, out, err = check(capsys, *arguments)
    except SystemExit as stop:
        status, (out, err) = int(stop.code or 0), capsys.readouterr()
    assert (status, out) == (2, ""), err
    assert any(part in err or _matches(part, err) for part in said.split("|")), err
    assert "Traceback" not in err
    assert len([line for line in err.splitlines() if line.startswith("gpulab: ")]) <= 1


def _matches(pattern: str, text: str) -> bool:
    start, _, end = pattern.partition(".*")
    return bool(end) and start in text and end in text


def test_all_answers_of_a_class(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {
        "ada/00-saxpy.cu": SAXPY,
        "bob/00-saxpy.cu": SAXPY.replace("a *", ""),
        "bob/notes.py": "x",
        "bob/00-saxpi.cu": "x",
        "eve/00-saxpy.py": "def f(:",
    }.items():
        (here / "class" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "class" / name).write_text(text)
    status, out, err = check(capsys, "--all", "class")
    lines = out.splitlines()
    assert status == 2
    assert [line.split(": ")[0].split() for line in lines[:2]] == [
        ["passed", str(Path("ada/00-saxpy.cu"))],
        ["not", "yet", str(Path("bob/00-saxpy.cu"))],
    ]
    assert lines[2:] == ["1 of 3 answers passed."]
    assert "00-saxpi.cu is left out: no exercise has this name. Did you mean '00-saxpy'?" in err
    assert f"{Path('eve/00-saxpy.py')}: 00-saxpy.py, line 1: this is no Python" in err
    (here / "class/eve/00-saxpy.py").unlink()
    status, out, _ = check(capsys, "--all", "class", "--json")
    assert status == 1
    assert [(one["file"], one["passed"]) for one in json.loads(out)] == [
        (str(Path("ada/00-saxpy.cu")), True),
        (str(Path("bob/00-saxpy.cu")), False),
    ]


def test_every_exercise_is_called_as_its_notebook_calls_it() -> None:
    names = {name: answers.name_in_the_notebook(name) for name in folders.exercises()}
    assert not [name for name, found in names.items() if found == "answer"]
    assert names["00-blocks"] == "shape_for"


# --- reports ---


def progress(done: int = 0, **changes: Any) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(gl.progress().json())
    for exercise in record["notebooks"][0]["exercises"][:done]:
        exercise["passed"] = True
    return record | changes


def test_a_class_in_one_table(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ada = progress(2)
    for number, (sure, right) in enumerate([(True, True), (True, False), (False, True), (None, None)]):
        ada["notebooks"][1]["predictions"][number] |= {"value": 1, "sure": sure, "right": right}
    ada["notebooks"][2]["quiz"][0] |= {"first": "x", "right": True}
    (here / "class/ada").mkdir(parents=True)
    (here / "class/ada/progress.json").write_text(json.dumps(ada))
    (here / "class/=bob.json").write_text(json.dumps(progress()))
    assert cli.main(["report", "class"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    exercises = len(folders.exercises())
    quiz = sum(len(notebook["quiz"]) for notebook in ada["notebooks"])
    assert out.splitlines()[0] == "Progress of 2 learners"
    row = next(line for line in out.splitlines() if line.startswith("ada"))
    wanted = ["ada", "02", f"2 of {exercises}", "2 of 3", "1 of 2", "1 of 1", f"1 of {quiz}"]
    assert [cell.strip() for cell in row.split("  ") if cell] == wanted
    assert "none yet" in out
    assert cli.main(["report", "--csv", "class"]) == 0
    bob, first = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["learner"], first["last"], first["exercises"], first["00"]) == ("ada", "02", "2", "2")
    assert bob["learner"] == "'=bob"  # no formula
    assert cli.main(["report", "--json", "class"]) == 0
    assert [one["exercises"] for one in json.loads(capsys.readouterr().out)] == [
        [0, exercises],
        [2, exercises],
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[]", "its format"),
        ('{"format": "gpulab-progress"}', "version None"),
        (json.dumps({"format": "gpulab-progress", "version": 2}), "version 2, not 1"),
        (json.dumps({"format": "gpulab-progress", "version": 1, "notebooks": 3}), "'notebooks' is missing"),
        (json.dumps({"format": "gpulab-progress", "version": 1, "notebooks": [3]}), "holds something else"),
        (
            json.dumps({"format": "gpulab-progress", "version": 1, "notebooks": [{"number": "=1+1"}]}),
            "number",
        ),
        ("[" * 100_000, "nested too deeply|recursion"),
        ("\udcff", "utf-8|decode"),
        ('{"format": "gpulab-progress", "version": 1, "notebooks": [{"number": "00"', "Expecting|delimiter"),
    ],
)
def test_damaged_files_are_named_and_left_as_they_are(
    here: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    (here / "class").mkdir()
    (here / "class/ada.json").write_text(json.dumps(progress(1)))
    bad = here / "class" / "eve.json"
    bad.write_text(text, encoding="utf-8", errors="surrogateescape")
    before = bad.read_bytes()
    assert cli.main(["report", "class"]) == 1
    out, err = capsys.readouterr()
    assert "Progress of 1 learner" in out
    assert err.startswith("gpulab: eve.json is left out: ")
    assert any(word in err for word in why.split("|")), err
    assert bad.read_bytes() == before
    assert sorted(path.name for path in (here / "class").iterdir()) == ["ada.json", "eve.json"]


def test_values_of_other_kinds_count_as_nothing(here: Path) -> None:
    record = progress()
    record["notebooks"][0]["exercises"][0]["passed"] = "true"
    record["notebooks"][0]["predictions"][0] |= {"right": 1e308, "sure": 1}
    (here / "eve.json").write_text(json.dumps(record))
    ((found,), left_out) = report.read(here)
    assert left_out == []
    assert (found.exercises[0], found.predictions, found.sure, found.last) == (0, (0, 0), (0, 0), "none yet")


@pytest.mark.parametrize("folder", ["nowhere", "empty"])
def test_no_reports(here: Path, capsys: pytest.CaptureFixture[str], folder: str) -> None:
    (here / "empty").mkdir()
    assert cli.main(["report", folder]) == 1
    assert folder in capsys.readouterr().err


# --- pages for instructors ---


def parts(page: str, marks: str = "## ") -> dict[str, str]:
    """Texts by heading."""
    pieces = f"\n{page}".split(f"\n{marks}")[1:]
    return {piece.split("\n")[0]: piece.partition("\n")[2].strip() for piece in pieces}


@pytest.mark.parametrize("number", list(instructor.notebooks()))
def test_every_notebook_has_an_instructors_page_without_gaps(number: str) -> None:
    page = instructor.page(number)
    found = parts(page)
    assert list(found) == ["Sections and minutes", "What to project", "Predictions", "Exercises", "Questions"]
    assert all(found.values()), [heading for heading, text in found.items() if not text]
    assert " minutes in all." in page
    predictions = found["Predictions"].split("**")[1::2]
    assert predictions
    assert all(name.startswith(number[:2]) for name in predictions)
    for line in ("  - Who says so believes: ", "  - Found: "):
        told = [text for text in found["Predictions"].splitlines() if text.startswith(line)]
        assert len(told) == len(predictions), line
        assert all(text != line.rstrip() for text in told)
    assert "No prediction." not in page
    exercises = parts(found["Exercises"], "### ")
    assert exercises
    for name, text in exercises.items():
        assert "```" in text.partition("Wrong answers")[0], name
        assert text.count("\n- ") >= 2, name


def test_all_that_a_course_asks_stands_on_some_page() -> None:
    whole = "\n".join(instructor.page(number) for number in instructor.notebooks())
    asked = [*folders.exercises(), *folders.predictions()]
    assert not [name for name in asked if name not in whole]
    texts = [question.text for _, questions in folders.quizzes().values() for question in questions]
    assert not [text for text in texts if text not in whole]


def test_a_page_is_printed_or_written(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["instructor", "05b"]) == 0
    assert capsys.readouterr().out.startswith("# 05b · ")
    assert cli.main(["instructor", "5b"]) == 1
    assert "There is no notebook '5b'. Did you mean '05b'?" in capsys.readouterr().err
    assert cli.main(["instructor", "--html", "--all", "pages"]) == 0
    pages = sorted(path.name for path in (here / "pages").iterdir())
    assert pages == [f"{number}.html" for number in sorted(instructor.notebooks())]
    text = (here / "pages" / "00.html").read_text(encoding="utf-8")
    assert "<h2" in text
    assert "<strong>00-" in text


# --- golf ---

_ONE_BY_ONE = """
extern "C" __global__ void copy4(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 4 * i; k < 4 * i + 4; ++k) if (k < n) y[k] = x[k];
}
"""


def play(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(["golf", "scores.json", *arguments])
    return (status, *capsys.readouterr())


def test_a_score_is_entered_with_an_answer_that_passes_and_beats_the_last(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = folders.exercise("05-copy4")
    good = best.source(best.reference)  # type: ignore[union-attr]
    (here / "good.cu").write_text(good)
    (here / "wrong.cu").write_text(_ONE_BY_ONE)
    status, _, err = play(capsys, "05-copy4", "wrong.cu", "--name", "Eve")
    assert (status, (here / "scores.json").exists()) == (1, False)
    assert "does not pass" in err
    status, out, _ = play(capsys, "05-copy4", "good.cu", "--name", " Ada\x1b\n")
    assert status == 0
    assert out.startswith("05-copy4: ")
    (entry, *_) = golf.read(here / "scores.json")
    assert (entry.exercise, entry.name, entry.score) == ("05-copy4", "Ada", entry.reference)
    assert good not in (here / "scores.json").read_text()
    (here / "again.cu").write_text(f"// {good}" if good.startswith("//") else f"// again\n{good}")
    assert play(capsys, "05-copy4", "again.cu", "--name", "Bob")[0] == 1
    assert golf.read(here / "scores.json")[0].name == "Ada"
    status, out, _ = play(capsys)
    assert status == 0
    assert "Ada" in out


def test_entries_are_judged_again_and_none_is_borne_out_by_its_own_word(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exercise = folders.exercise("05-copy4")
    (here / "answers").mkdir()
    (here / "answers" / "a.cu").write_text(exercise.source(exercise.reference))  # type: ignore[union-attr]
    assert play(capsys, "05-copy4", "answers/a.cu", "--name", "Ada")[0] == 0
    status, out, _ = play(capsys, "--verify", "answers")
    assert (status, "borne out" in out) == (0, True)
    data = json.loads((here / "scores.json").read_text())
    for entry in data["entries"]:
        entry["score"] -= 1
    (here / "scores.json").write_text(json.dumps(data))
    status, out, _ = play(capsys, "--verify", "answers")
    assert status == 1
    assert "0 of " in out
    (here / "answers" / "a.cu").unlink()
    assert "no answer with its digest" in play(capsys, "--verify", "answers")[1]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": "gpulab-golf", "version": 1, "entries": [{}]}', "[" * 100_000]
)
def test_a_file_of_anything_else_is_left_as_it_is(
    text: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "scores.json").write_text(text)
    (here / "a.cu").write_text(_ONE_BY_ONE)
    for arguments in ((), ("05-copy4", "a.cu", "--name", "Ada"), ("--verify", ".")):
        status, _, err = play(capsys, *arguments)
        assert (status, "no file of scores" in err) == (1, True)
    assert (here / "scores.json").read_text() == text


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_a_report_holds_any_name_in_any_encoding(here: Path, encoding: str) -> None:
    (here / "class").mkdir()
    gl.progress().save(here / "class" / "Łukasz.json")
    done = subprocess.run(
        [sys.executable, "-m", "gpulab", "report", "class"],
        capture_output=True,
        text=True,
        encoding=encoding,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )
    assert done.returncode == 0, done.stderr
    assert "\\u0141ukasz" in done.stdout
