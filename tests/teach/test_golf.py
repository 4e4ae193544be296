"""A file of best scores: `gpulab golf`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpulab
from gpulab import cli
from gpulab_course import folders
from gpulab_course.classroom import golf
from gpulab_course.teach.judge.budget import Score
from gpulab_course.teach.judge.verdict import StageResult, Verdict


def verdict(passed: bool, *figures: int, golf_: bool = True) -> Verdict:
    scores = tuple(
        Score(name, f"<n {name}|{name}s>", n, 1000, golf=golf_)
        for name, n in zip(("sector", "vote"), figures, strict=False)
    )
    stages = (StageResult("results", "passed", "right."), StageResult("budget", "failed", "dear."))
    return Verdict("05-x", passed, "well." if passed else "dear.", stages, scores)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return (cli.main(list(arguments)), *capsys.readouterr())


class Course:
    """A fake judge and exercise. The test sets the counters of an answer and the version of the rules."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.verdict = verdict(True, 70, 90)
        self.rules = 1
        monkeypatch.setattr(golf, "judge_file", lambda exercise, path: self.verdict)
        monkeypatch.setattr(golf, "find_exercise", lambda exercise: SimpleNamespace(rules=self.rules))


@pytest.fixture
def course(workdir: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    (workdir / "a.cu").write_text("an answer")
    (workdir / "b.cu").write_text("another")
    return Course(monkeypatch)


def scores(path: str = "s.json") -> list[tuple[str, str, int, str, int]]:
    return [(e.exercise, e.counter, e.score, e.name, e.rules) for e in golf.read_entries(Path(path))]


def test_each_better_counter_is_entered_separately(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "golf", "s.json", "05-x", "a.cu", "--name", "Ada")[:2] == (
        0,
        "05-x: 70 sectors; reference 1,000.\n05-x: 90 votes; reference 1,000.\n",
    )
    course.verdict = verdict(True, 70, 90)
    assert run(capsys, "golf", "s.json", "05-x", "b.cu", "--name", "Bob")[:2] == (
        1,
        "05-x: passed, but the score is not better than the stored one.\n",
    )
    course.verdict = verdict(True, 71, 89)
    assert run(capsys, "golf", "s.json", "05-x", "b.cu", "--name", "Bob")[:2] == (
        0,
        "05-x: 89 votes; reference 1,000, previously 90 by Ada.\n",
    )
    assert scores() == [("05-x", "sector", 70, "Ada", 1), ("05-x", "vote", 89, "Bob", 1)]
    assert run(capsys, "golf", "s.json", "01-x", "b.cu", "--name", "Eve")[0] == 0
    assert [entry[0] for entry in scores()] == ["01-x", "01-x", "05-x", "05-x"]
    course.rules = 2  # under new rules even a worse score is entered
    assert run(capsys, "golf", "s.json", "05-x", "b.cu", "--name", "Eve")[0] == 0
    assert scores()[2] == ("05-x", "sector", 71, "Eve", 2)
    (entry, *_) = golf.read_entries(Path("s.json"))
    assert (entry.sha256, entry.gpulab, entry.reference) == (
        hashlib.sha256(b"another").hexdigest(),
        gpulab.__version__,
        1000,
    )


def test_invalid_entries_are_refused(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    def message_of(*arguments: str) -> str:
        status, out, err = run(capsys, "golf", "s.json", *arguments)
        assert (status, out, Path("s.json").exists()) == (1, "", False)
        return err

    entry = ("05-x", "a.cu", "--name", "Ada")
    course.verdict = verdict(False, 70)
    assert "The answer does not pass, so its score was not stored: 05-x: not yet: dear." in message_of(*entry)
    course.verdict = verdict(True, 70, golf_=False)
    assert "05-x has no score to compare. Exercises such as 05-transpose have one." in message_of(*entry)
    course.verdict = verdict(True, 70)
    assert "c.cu cannot be read: No such file" in message_of("05-x", "c.cu", "--name", "Ada")
    for arguments in (
        ("05-x", "a.cu"),
        ("05-x", "--name", "Ada"),
        ("05-x", "a.cu", "--name", " \n"),
        (*entry, "--verify", "."),
    ):
        with pytest.raises(SystemExit):
            golf.main(["s.json", *arguments])
        assert "an exercise, a file and --name" in capsys.readouterr().err
    assert run(capsys, "golf", "s.json", "05-x", "a.cu", "--name", "x" * 61)[0] == 0
    assert scores()[0][3] == "x" * 60


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"},
        {"version": 2},
        {"entries": 3},
        {"score": "7"},
        {"score": True},
        {"name": 7},
        {"rules": 1.0},
        {"sha256": None},
    ],
)
def test_a_scores_file_with_invalid_entries_is_refused(course: Course, change: dict[str, Any]) -> None:
    golf.enter_scores(Path("s.json"), "05-x", Path("a.cu"), "Ada")
    data = json.loads(Path("s.json").read_text())
    (data if set(change) & set(data) else data["entries"][0]).update(change)
    Path("s.json").write_text(json.dumps(data))
    with pytest.raises(
        golf.GolfError, match=r"s\.json is not a file of scores, so it was not changed. Choose another file\."
    ):
        golf.read_entries(Path("s.json"))


def test_an_invalid_scores_file_is_reported_before_judging(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("s.json").write_text("{}")
    monkeypatch.setattr(golf, "judge_file", lambda *_: pytest.fail("it judges"))
    with pytest.raises(golf.GolfError, match="is not a file of scores"):
        golf.enter_scores(Path("s.json"), "05-x", Path("a.cu"), "Ada")
    assert Path("s.json").read_text() == "{}"


def test_the_table_of_scores(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    golf.enter_scores(Path("s.json"), "05-x", Path("a.cu"), "Ada")
    status, out, _ = run(capsys, "golf", "s.json")
    assert status == 0
    title, head, *_ = out.splitlines()
    assert title == "Best scores, counted on the virtual GPU"
    assert head.split() == ["exercise", "counter", "best", "reference", "name", "date", "digest"]
    row = next(line.split() for line in out.splitlines() if "sector" in line)
    (entry, _) = golf.read_entries(Path("s.json"))
    assert row == ["05-x", "sector", "70", "1,000", "Ada", entry.date, entry.sha256[:12]]
    assert golf.read_entries(Path("none.json")) == ()
    assert run(capsys, "golf", "none.json")[0] == 0


_ONE_BY_ONE = """
extern "C" __global__ void copy4(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 4 * i; k < 4 * i + 4; ++k) if (k < n) y[k] = x[k];
}
"""


def play(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(["golf", "scores.json", *arguments])
    return (status, *capsys.readouterr())


def test_a_score_requires_a_passing_answer_better_than_the_last(
    workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = folders.find_exercise("05-copy4")
    good = best.source(best.reference)  # type: ignore[union-attr]
    (workdir / "good.cu").write_text(good)
    (workdir / "wrong.cu").write_text(_ONE_BY_ONE)
    status, _, err = play(capsys, "05-copy4", "wrong.cu", "--name", "Eve")
    assert (status, (workdir / "scores.json").exists()) == (1, False)
    assert "does not pass" in err
    status, out, _ = play(capsys, "05-copy4", "good.cu", "--name", " Ada\x1b\n")
    assert status == 0
    assert out.startswith("05-copy4: ")
    (entry, *_) = golf.read_entries(workdir / "scores.json")
    assert (entry.exercise, entry.name, entry.score) == ("05-copy4", "Ada", entry.reference)
    assert good not in (workdir / "scores.json").read_text()
    (workdir / "again.cu").write_text(f"// {good}" if good.startswith("//") else f"// again\n{good}")
    assert play(capsys, "05-copy4", "again.cu", "--name", "Bob")[0] == 1
    assert golf.read_entries(workdir / "scores.json")[0].name == "Ada"
    status, out, _ = play(capsys)
    assert status == 0
    assert "Ada" in out


def test_verify_judges_stored_answers_again(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exercise = folders.find_exercise("05-copy4")
    (workdir / "answers").mkdir()
    (workdir / "answers" / "a.cu").write_text(exercise.source(exercise.reference))  # type: ignore[union-attr]
    assert play(capsys, "05-copy4", "answers/a.cu", "--name", "Ada")[0] == 0
    status, out, _ = play(capsys, "--verify", "answers")
    assert (status, "confirmed" in out) == (0, True)
    data = json.loads((workdir / "scores.json").read_text())
    for entry in data["entries"]:
        entry["score"] -= 1
    (workdir / "scores.json").write_text(json.dumps(data))
    status, out, _ = play(capsys, "--verify", "answers")
    assert status == 1
    assert "0 of " in out
    (workdir / "answers" / "a.cu").unlink()
    assert "no answer with the stored digest" in play(capsys, "--verify", "answers")[1]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": "gpulab-golf", "version": 1, "entries": [{}]}', "[" * 100_000]
)
def test_an_invalid_scores_file_is_not_modified(
    text: str, workdir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workdir / "scores.json").write_text(text)
    (workdir / "a.cu").write_text(_ONE_BY_ONE)
    for arguments in ((), ("05-copy4", "a.cu", "--name", "Ada"), ("--verify", ".")):
        status, _, err = play(capsys, *arguments)
        assert (status, "not a file of scores" in err) == (1, True)
    assert (workdir / "scores.json").read_text() == text
