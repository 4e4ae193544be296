"""What a class's tools say of verdicts, files and a notebook that are made up for that."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import linecache
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpulab
from gpulab import cli, session
from gpulab.processes.values import DamagedError
from gpulab_course import folders
from gpulab_course.classroom import answers, check, golf, instructor, report
from gpulab_course.content import copies
from gpulab_course.teach.judge import KernelExercise, PythonExercise
from gpulab_course.teach.judge.budget import Score
from gpulab_course.teach.judge.verdict import StageResult, Verdict
from gpulab_course.teach.question import Choice, PredictionQuestion, Question, WhyQuestion
from gpulab_course.teach.shown import ShownAnswer

Judge = Callable[[str, Path], Verdict]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verdict(passed: bool, *figures: int, golf_: bool = True) -> Verdict:
    scores = tuple(
        Score(name, f"<n {name}|{name}s>", n, 1000, golf=golf_)
        for name, n in zip(("sector", "vote"), figures, strict=False)
    )
    stages = (StageResult("results", "passed", "right."), StageResult("budget", "failed", "dear."))
    return Verdict("05-x", passed, "well." if passed else "dear.", stages, scores)


# --- gpulab check ---


@pytest.fixture
def class_(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Answers of a class, judged by what stands in them."""

    def judged(exercise: str, path: Path) -> Verdict:
        print("an answer prints")
        text = path.read_text()
        if text == "broken":
            raise answers.AnswerError(f"{path.name} is broken.")
        return replace(verdict(text == "right", 7), exercise_id=exercise)

    monkeypatch.setattr(check, "judged", judged)
    monkeypatch.setattr(folders, "exercises", lambda: {"05-x": 0, "05-y": 0})
    for name, text in {
        "ada/05-x.cu": "right",
        "ada/05-y.py": "wrong",
        "ada/05-x.txt": "",
        "readme.py": "",
    }.items():
        path = here / "class" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return here / "class"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return (cli.main(list(arguments)), *capsys.readouterr())


def test_one_answer_is_told_with_its_stages(class_: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = run(capsys, "check", "05-x", "class/ada/05-x.cu")
    assert told == (0, f"{replace(verdict(True, 7), exercise_id='05-x')!s}\n", "an answer prints\n")
    status, out, _ = run(capsys, "check", "05-y", "class/ada/05-y.py", "--json")
    assert out.startswith('{\n  "exercise": "05-y",\n')
    assert (status, json.loads(out)) == (
        1,
        {
            "exercise": "05-y",
            "file": "class/ada/05-y.py",
            "passed": False,
            "message": "dear.",
            "error": "",
            "stages": [
                {"name": "results", "state": "passed", "said": "right."},
                {"name": "budget", "state": "failed", "said": "dear."},
            ],
            "scores": [asdict(score) for score in verdict(False, 7).scores],
        },
    )


def test_all_answers_are_told_in_a_line_each(class_: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "check", "--all", "class")
    assert status == 1
    assert out.splitlines() == [
        "passed   ada/05-x.cu: well.",
        "not yet  ada/05-y.py: dear.",
        "1 of 2 answers passed.",
    ]
    assert err == 2 * "an answer prints\n"
    (class_ / "ada" / "05-y.py").unlink()
    assert run(capsys, "check", "--all", "class")[:2] == (
        0,
        "passed   ada/05-x.cu: well.\n1 of 1 answer passed.\n",
    )
    (class_ / "05-y.cu").write_text("broken")
    (class_ / "ada" / "05-y.cu").write_text("broken")
    status, out, err = run(capsys, "check", "--all", "class")
    assert (status, out.splitlines()[-1]) == (2, "1 of 3 answers passed.")
    assert "gpulab: 05-y.cu is broken.\n" in err
    assert "gpulab: ada/05-y.cu: 05-y.cu is broken.\n" in err
    status, out, _ = run(capsys, "check", "--all", "class", "--json")
    assert status == 2
    found = {
        one["file"]: (one["error"], one["passed"], one["message"], one["scores"] != [])
        for one in json.loads(out)
    }
    assert found == {
        "05-y.cu": ("05-y.cu is broken.", False, "", False),
        "ada/05-x.cu": ("", True, "well.", True),
        "ada/05-y.cu": ("ada/05-y.cu: 05-y.cu is broken.", False, "", False),
    }


def test_each_line_is_there_as_soon_as_its_answer_is_judged(
    class_: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Noted(io.StringIO):
        seen = ""

        def flush(self) -> None:
            self.seen = self.getvalue()

    for arguments, lines in ((["--all", "class"], 2), (["05-x", "class/ada/05-x.cu"], 4)):
        out = Noted()
        monkeypatch.setattr(sys, "stdout", out)
        check.main(arguments)
        assert len(out.seen.splitlines()) == lines
    errors = Noted()
    monkeypatch.setattr(sys, "stderr", errors)
    (class_ / "05-y.cu").write_text("broken")
    check.main(["05-y", "class/05-y.cu"])
    assert errors.seen.endswith("gpulab: 05-y.cu is broken.\n")


HELP = {
    check: [
        "05-transpose",
        "a kernel (.cu), or Python that defines the answer",
        "print JSON",
        "prog: gpulab check",
        "judge every file in FOLDER and below that is called after",
        "an exercise: 05-transpose.cu",
        "Judge an answer as gl.check does, and keep nothing. Exit status: 0 passed, 1 not yet, 2",
    ],
    golf: [
        "the file of scores; made with the first entry",
        "such as 05-transpose",
        "whose answer it is",
        "a .cu or .py file, as `gpulab check` takes it",
        "A file of best scores:",
        "prog: gpulab golf",
        "judge the entries whose answers are in FOLDER again",
    ],
    report: [
        "files of gl.progress().save(...), in folders or not",
        "print JSON",
        "prog: gpulab report",
        "print CSV, with a column for each notebook",
        "A class's progress files in one table.",
    ],
    instructor: [
        "how its name starts, such as 05a",
        "write a page for every notebook there",
        "HTML instead of Markdown",
        "A page for whoever teaches:",
        "prog: gpulab instructor",
    ],
}


@pytest.mark.parametrize("module", HELP, ids=lambda module: module.__name__)
def test_help_says_what_each_argument_is(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        module.main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    for words in HELP[module]:
        assert words.replace("prog:", "usage:") in told
    names = {
        check: ["NN-NAME", "--all FOLDER"],
        golf: ["NN-NAME", "--verify FOLDER"],
        instructor: ["NN", "--all FOLDER"],
    }
    assert all(name in told for name in names.get(module, []))


def test_a_report_is_either_csv_or_json(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        report.main(["class", "--csv", "--json"])
    assert "not allowed with argument" in capsys.readouterr().err


def test_an_answer_may_be_so_long_and_no_longer(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "a.cu").write_bytes(b"0123456789")
    monkeypatch.setattr(answers, "judge", lambda exercise, text: text)
    for most in (10, 9):
        monkeypatch.setattr(answers, "_MOST_BYTES", most)
        if most == 10:
            assert answers.judged("00-saxpy", here / "a.cu") == "0123456789"
        else:
            with pytest.raises(answers.AnswerError, match="which no answer has"):
                answers.judged("00-saxpy", here / "a.cu")


def test_a_file_called_almost_so_is_named(class_: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (class_ / "05-xx.cu").write_text("")
    (class_ / "05-y.py").mkdir()
    _, _, err = run(capsys, "check", "--all", "class")
    left_out = [line for line in err.splitlines() if line.startswith("gpulab")]
    assert left_out == ["gpulab: class/05-xx.cu is left out: no exercise has this name. Did you mean '05-x'?"]


def test_unknown_exercises_name_those_of_the_notebook() -> None:
    with pytest.raises(ValueError, match="There is no exercise '05-nothing'") as error:
        answers.exercise_called("05-nothing")
    some = str(error.value).partition("Some: ")[2].rstrip(".").split(", ")
    assert some == [name for name in folders.exercises() if name.startswith("05-")]
    with pytest.raises(ValueError, match="Some: ") as error:
        answers.exercise_called("99-nothing")
    assert str(error.value).endswith(f"Some: {', '.join(folders.exercises())}.")


def test_a_module_is_what_its_text_defines_under_either_name() -> None:
    assert answers.defined("answer = 1\nf = 2", "f", "a.py") == 2
    assert answers.defined("answer = __name__, __file__", "f", "dir/a.py") == ("a", "dir/a.py")
    with pytest.raises(
        Exception, match=r"^a\.py defines no `f`, as the exercise's cell in the notebook calls it\.$"
    ):
        answers.defined("g = 1", "f", "a.py")
    function, arguments = answers.Module("f = 3", "f", "a.py").__reduce__()
    assert function(*arguments) == 3


class Line:
    """Stands for a `Talk`: what is asked runs here."""

    given: tuple[Any, ...] = ()
    raises: Exception | None = None

    def __init__(self, *given: Any) -> None:
        Line.given = given

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, shown: str, function: Any, *arguments: Any) -> Any:
        if Line.raises:
            raise Line.raises
        return function(None, *arguments)


@pytest.fixture
def files(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], Any]:
    """What the judge gets of a file with a text, for an exercise of a kernel or of Python."""
    kernel = KernelExercise("05-k", "", "k", "int n", lambda *_: None, "-")  # type: ignore[arg-type,return-value]
    monkeypatch.setattr(folders, "exercise", {"05-k": kernel, "05-p": PythonExercise("05-p", "", str)}.get)
    monkeypatch.setattr(answers, "name_in_the_notebook", lambda exercise: "mine")
    monkeypatch.setattr(answers, "judge", lambda exercise, answer: answer)
    monkeypatch.setattr(answers, "Talk", Line)
    monkeypatch.setattr(Line, "raises", None)

    def judged(exercise: str, name: str, text: str) -> Any:
        (here / name).write_text(text, encoding="utf-8")
        try:
            return answers.judged(exercise, here / name)
        except answers.AnswerError as error:
            return str(error)

    return judged


def test_an_answer_goes_to_the_judge_as_what_it_is(files: Callable[[str, str, str], Any]) -> None:
    code = 'extern "C" __global__ void k(int n) {}'
    assert files("05-k", "a.cu", code) == code
    assert files("05-k", "a.cu", f"\ufeff{code}") == code, "a mark of the bytes' order is no part of it"
    assert files("05-p", "a.py", "mine = 3") == answers.Module("mine = 3", "mine", "a.py")
    with session.on_device("virtual:T4"):
        assert files("05-k", "a.py", f"mine = {code!r}") == code
        assert files("05-k", "a.py", f"answer = {code!r}") == code
    assert Line.given == ("virtual:T4", 10.0)
    made = files("05-k", "a.py", f"import gpulab\nmine = gpulab.cp.RawKernel({code!r}, 'k', ('-DX',))")
    assert (made.name, made.code, made.options) == ("k", code, ("-DX",))
    for text in ("answer = 3", "answer = None"):
        said = files("05-k", "a.py", text)
        assert repr(said) == (
            "05-k: not yet: `mine` in a.py is no kernel: let it be a cp.RawKernel or its CUDA C++ text."
        )
    assert repr(files("05-k", "a.py", "x = 3")).startswith("05-k: not yet: a.py defines no `mine`, as")
    Line.raises = DamagedError()
    assert repr(files("05-k", "a.py", "mine = 3")) == (
        "05-k: not yet: it wrote to a file that is not its own; leave descriptors alone."
    )


def test_why_a_file_is_no_answer(files: Callable[[str, str, str], Any], here: Path) -> None:
    assert files("05-p", "a.cu", "") == "05-p is answered in Python: name a .py file, not a.cu."
    assert (
        files("05-k", "a.txt", "") == files("05-p", "a.txt", "") == "a.txt is neither a .cu nor a .py file."
    )
    assert files("05-p", "a.py", "x = 1\ny = (") == "a.py, line 2: this is no Python: '(' was never closed."
    assert files("05-p", "a.py", "x = 1\0").startswith("a.py: this is no Python: source code")
    (here / "b.py").write_bytes(b"abc\xff")
    (here / "c.py").mkdir()
    for name, said in (
        ("b.py", "is no text in UTF-8: byte 3 fits none."),
        ("c.py", "is no file."),
        ("none.py", "cannot be read: No such file or directory."),
    ):
        with pytest.raises(answers.AnswerError) as error:
            answers.judged("05-p", here / name)
        assert str(error.value) == f"{here / name} {said}"


def test_an_answer_is_called_as_its_notebook_calls_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "00.ipynb": "",
        "01.ipynb": r'"gl.check(\"05-x\", saxpy)", "gl.check(\"05-y\", 3)"',
    }.items():
        (here / name).write_text(text)
    monkeypatch.setattr(copies, "originals", lambda: {path.name: path for path in sorted(here.iterdir())})
    assert [answers.name_in_the_notebook(name) for name in ("05-x", "05-z", "05")] == [
        "saxpy",
        "answer",
        "answer",
    ]


def test_lines_of_a_file_are_known_where_they_fail() -> None:
    answers.defined("one = 1\nanswer = lambda: 1 / 0\n", "f", "made/up.py")
    assert linecache.getlines("made/up.py") == ["one = 1\n", "answer = lambda: 1 / 0\n"]


def test_what_check_is_not_told_is_said(class_: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        ([], "name an exercise and a file, or --all FOLDER"),
        (["05-x"], "name an exercise and a file, or"),
        (["05-x", "a.cu", "--all", "class"], "--all takes the exercises from the files' names"),
        (["05-x", "--all", "class"], "--all takes the exercises from the files' names"),
    ):
        with pytest.raises(SystemExit):
            check.main(arguments)
        assert said in capsys.readouterr().err
    assert run(capsys, "check", "--all", "nowhere") == (2, "", "gpulab: nowhere is no folder.\n")
    (class_ / "empty").mkdir()
    status, out, err = run(capsys, "check", "--all", "class/empty")
    assert (status, out) == (2, "")
    assert "holds no answer: call files after exercises, such as 05-transpose.cu." in err


def test_names_are_printed_as_they_are_spelt(class_: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (class_ / "Zoë").mkdir()
    (class_ / "Zoë" / "05-x.cu").write_text("right")
    assert '"file": "Zoë/05-x.cu"' in run(capsys, "check", "--all", "class", "--json")[1]
    learner(class_ / "all", "Zoë.json", notebook("01"))
    assert '"learner": "Zoë"' in run(capsys, "report", "class/all", "--json")[1]
    assert "Zoë,Zoë.json," in (text := run(capsys, "report", "class/all", "--csv")[1])
    assert "\r" not in text


# --- gpulab golf ---


class Course:
    """The judge and the exercise of the tests: what `figures` an answer has, and under which rules."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.verdict = verdict(True, 70, 90)
        self.rules = 1
        monkeypatch.setattr(golf, "judged", lambda exercise, path: self.verdict)
        monkeypatch.setattr(golf, "exercise_called", lambda exercise: SimpleNamespace(rules=self.rules))


@pytest.fixture
def course(here: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    (here / "a.cu").write_text("an answer")
    (here / "b.cu").write_text("another")
    return Course(monkeypatch)


def scores(path: str = "s.json") -> list[tuple[str, str, int, str, int]]:
    return [(e.exercise, e.counter, e.score, e.name, e.rules) for e in golf.read(Path(path))]


def test_each_better_figure_is_entered_by_itself(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "golf", "s.json", "05-x", "a.cu", "--name", "Ada")[:2] == (
        0,
        "05-x: 70 sectors; reference 1,000.\n05-x: 90 votes; reference 1,000.\n",
    )
    course.verdict = verdict(True, 70, 90)
    assert run(capsys, "golf", "s.json", "05-x", "b.cu", "--name", "Bob")[:2] == (
        1,
        "05-x: passed, and no better than what is there.\n",
    )
    course.verdict = verdict(True, 71, 89)
    assert run(capsys, "golf", "s.json", "05-x", "b.cu", "--name", "Bob")[:2] == (
        0,
        "05-x: 89 votes; reference 1,000, before 90 by Ada.\n",
    )
    assert scores() == [("05-x", "sector", 70, "Ada", 1), ("05-x", "vote", 89, "Bob", 1)]
    assert run(capsys, "golf", "s.json", "01-x", "b.cu", "--name", "Eve")[0] == 0
    assert [entry[0] for entry in scores()] == ["01-x", "01-x", "05-x", "05-x"]
    course.rules = 2  # under other rules even a worse one counts
    assert run(capsys, "golf", "s.json", "05-x", "b.cu", "--name", "Eve")[0] == 0
    assert scores()[2] == ("05-x", "sector", 71, "Eve", 2)
    (entry, *_) = golf.read(Path("s.json"))
    assert (entry.sha256, entry.gpulab, entry.reference) == (
        hashlib.sha256(b"another").hexdigest(),
        gpulab.__version__,
        1000,
    )
    assert sorted(p.name for p in Path().iterdir() if "lock" not in p.name) == ["a.cu", "b.cu", "s.json"]


def test_what_cannot_be_entered_is_told(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*arguments: str) -> str:
        status, out, err = run(capsys, "golf", "s.json", *arguments)
        assert (status, out, Path("s.json").exists()) == (1, "", False)
        return err

    entry = ("05-x", "a.cu", "--name", "Ada")
    course.verdict = verdict(False, 70)
    assert "It does not pass, and is not entered: 05-x: not yet: dear." in told(*entry)
    course.verdict = verdict(True, 70, golf_=False)
    assert "05-x has no figure to be better in; 05-transpose has, for one." in told(*entry)
    course.verdict = verdict(True, 70)
    assert "c.cu cannot be read: No such file" in told("05-x", "c.cu", "--name", "Ada")
    for arguments in (
        ("05-x", "a.cu"),
        ("05-x", "--name", "Ada"),
        ("05-x", "a.cu", "--name", " \n"),
        (*entry, "--verify", "."),
    ):
        with pytest.raises(SystemExit):
            golf.main(["s.json", *arguments])
        assert "an entry takes an exercise, a file and --name, and nothing else" in capsys.readouterr().err
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
def test_entries_of_another_kind_are_no_scores(course: Course, change: dict[str, Any]) -> None:
    golf.enter(Path("s.json"), "05-x", Path("a.cu"), "Ada")
    data = json.loads(Path("s.json").read_text())
    (data if set(change) & set(data) else data["entries"][0]).update(change)
    Path("s.json").write_text(json.dumps(data))
    with pytest.raises(
        golf.GolfError, match=r"s\.json is no file of scores, and stays as it is: name another\."
    ):
        golf.read(Path("s.json"))


def test_a_file_that_is_too_long_holds_no_scores(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    golf.enter(Path("s.json"), "05-x", Path("a.cu"), "Ada")
    monkeypatch.setattr(golf, "_MOST_BYTES", Path("s.json").stat().st_size)
    assert len(golf.read(Path("s.json"))) == 2
    monkeypatch.setattr(golf, "_MOST_BYTES", Path("s.json").stat().st_size - 1)
    with pytest.raises(golf.GolfError, match="is no file of scores"):
        golf.read(Path("s.json"))


def test_a_file_of_anything_else_is_named_before_an_answer_is_judged(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("s.json").write_text("{}")
    monkeypatch.setattr(golf, "judged", lambda *_: pytest.fail("it judges"))
    with pytest.raises(golf.GolfError, match="is no file of scores"):
        golf.enter(Path("s.json"), "05-x", Path("a.cu"), "Ada")
    assert Path("s.json").read_text() == "{}"


def test_a_file_of_scores_can_be_read_by_people(course: Course, here: Path) -> None:
    golf.enter(Path("s.json"), "05-x", Path("a.cu"), "Zoë")
    text = Path("s.json").read_text(encoding="utf-8")
    assert text.startswith(
        '{\n "format": "gpulab-golf",\n "version": 1,\n "entries": [\n  {\n   "exercise": "05-x",'
    )
    assert '"name": "Zoë"' in text
    assert text.endswith("}\n")
    (here / "folder").mkdir()
    with pytest.raises(golf.GolfError, match=r"^folder cannot be read: Is a directory\.$"):
        golf.read(Path("folder"))
    with pytest.raises(report.ReportError, match=r"^nowhere is no folder\.$"):
        report.read(Path("nowhere"))


def test_an_exercise_without_rules_has_the_first(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golf, "exercise_called", lambda exercise: SimpleNamespace())
    golf.enter(Path("s.json"), "05-x", Path("a.cu"), "Ada")
    assert [entry[-1] for entry in scores()] == [0, 0]


def test_the_table_of_scores(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    golf.enter(Path("s.json"), "05-x", Path("a.cu"), "Ada")
    status, out, _ = run(capsys, "golf", "s.json")
    assert status == 0
    title, head, *_ = out.splitlines()
    assert title == "Best scores, counted on the virtual GPU"
    assert head.split() == ["exercise", "counter", "best", "reference", "name", "date", "digest"]
    row = next(line.split() for line in out.splitlines() if "sector" in line)
    (entry, _) = golf.read(Path("s.json"))
    assert row == ["05-x", "sector", "70", "1,000", "Ada", entry.date, entry.sha256[:12]]
    assert golf.read(Path("none.json")) == ()
    assert run(capsys, "golf", "none.json")[0] == 0


def test_entries_are_borne_out_one_by_one(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    golf.enter(Path("s.json"), "05-x", Path("a.cu"), "Ada")

    def verified() -> tuple[int, list[str]]:
        status, out, _ = run(capsys, "golf", "s.json", "--verify", ".")
        return status, out.splitlines()

    both = [
        "05-x, sector: 70 by Ada: borne out",
        "05-x, vote: 90 by Ada: borne out",
        "2 of 2 entries borne out.",
    ]
    assert verified() == (0, both)
    course.verdict = verdict(True, 69, 1091)
    assert verified() == (
        1,
        [both[0], "05-x, vote: 90 by Ada: judged again: 1,091", "1 of 2 entries borne out."],
    )
    course.verdict = verdict(True, 69)
    assert verified()[1][1] == "05-x, vote: 90 by Ada: judged again: no such figure"
    course.verdict = verdict(False)
    assert verified()[1][0].startswith("05-x, sector: 70 by Ada: It does not pass")
    Path("a.cu").rename("a.txt")
    assert verified() == (
        1,
        [
            "05-x, sector: 70 by Ada: no answer with its digest is there",
            "05-x, vote: 90 by Ada: no answer with its digest is there",
            "0 of 2 entries borne out.",
        ],
    )
    status, _, err = run(capsys, "golf", "s.json", "--verify", "nowhere")
    assert (status, "nowhere is no folder." in err) == (1, True)


# --- gpulab report ---


def notebook(number: str, **more: Any) -> dict[str, Any]:
    return {"number": number, "exercises": [], "predictions": [], "quiz": []} | more


def passes(*states: Any) -> list[dict[str, Any]]:
    return [{"passed": state} for state in states]


def learner(folder: Path, name: str, *notebooks: dict[str, Any], **more: Any) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"format": "gpulab-progress", "version": 1, "notebooks": notebooks} | more
    path.write_text(json.dumps(record), encoding="utf-8-sig")


@pytest.fixture
def reports(here: Path) -> Path:
    predicted = [
        {"value": 1, "sure": True, "right": True},
        {"value": 1, "sure": True, "right": False},
        {"value": 1, "sure": True, "right": None},
        {"value": 2, "sure": False, "right": True},
        {"value": 3, "right": False},
        {"value": None},
    ]
    learner(
        here / "class",
        "ada/progress.json",
        notebook("00", exercises=passes(True, False, True)),
        notebook("01", predictions=predicted, exercises=passes(True)),
        notebook("02", quiz=[{"right": True}, {"right": False}, {"right": None}]),
        notebook("03"),
    )
    learner(here / "class", "-bob.json", notebook("01", exercises=passes(False, 1), quiz=[{"right": None}]))
    learner(here / "class", "progress.json", notebook("01", predictions=[{"value": 0}]))
    return here / "class"


def test_a_report_has_a_line_a_learner(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_report_as_csv_and_json(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "report", "class", "--csv")[1].splitlines() == [
        f"{COLUMNS},00,00 of,01,01 of,02,02 of,03,03 of",
        "'-bob,'-bob.json,none yet,0,2,0,0,0,0,0,0,0,1,,,0,2,,,,",
        "ada,ada/progress.json,02,3,4,2,4,1,2,1,1,1,3,2,3,1,1,0,0,0,0",
        "progress,progress.json,01,0,0,0,0,0,0,0,0,0,0,,,0,0,,,,",
    ]
    text = run(capsys, "report", "class", "--json")[1]
    assert text.startswith('[\n  {\n    "learner": "-bob",\n')
    found = json.loads(text)
    assert found[1] == {
        "learner": "ada",
        "file": "ada/progress.json",
        "last": "02",
        "exercises": [3, 4],
        "predictions": [2, 4],
        "sure": [1, 2],
        "guesses": [1, 1],
        "quiz": [1, 3],
        "notebooks": {"00": [2, 3], "01": [1, 1], "02": [0, 0], "03": [0, 0]},
    }


@pytest.mark.parametrize(
    ("notebooks", "more", "why"),
    [
        ([], {"version": 2}, "version 2, not 1: install the newest gpulab"),
        ([], {"format": "x"}, "its format is not 'gpulab-progress'"),
        ([notebook("1")], {}, "a notebook without its number"),
        ([notebook("1a")], {}, "a notebook without its number"),
        ([notebook("001")], {}, "a notebook without its number"),
        ([notebook("01", quiz=[1])], {}, "'quiz' holds something else"),
        ([notebook("01", exercises={})], {}, "'exercises' is missing"),
        ([{"number": 1}], {}, "'number' is missing"),
    ],
)
def test_files_of_another_kind_are_named(here: Path, notebooks: Any, more: Any, why: str) -> None:
    learner(here, "good.json", notebook("01"))
    learner(here, "x/bad.json", *notebooks, **more)
    found, left_out = report.read(here)
    assert [one.learner for one in found] == ["good"]
    assert left_out == [f"x/bad.json is left out: it is no progress file, or damaged ({why})."]


def test_a_file_that_cannot_be_read_is_left_out_and_the_status_says_so(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner(here, "class/good.json", notebook("01"))
    assert run(capsys, "report", "class")[0] == 0
    (here / "class/locked.json").write_text("{}")
    read_text = Path.read_text

    def locked(self: Path, **more: Any) -> str:
        if self.name == "locked.json":
            raise PermissionError(13, "Permission denied")
        return read_text(self, **more)

    monkeypatch.setattr(Path, "read_text", locked)
    status, out, err = run(capsys, "report", "class")
    assert (status, err) == (1, "gpulab: locked.json is left out: Permission denied.\n")
    assert "Progress of 1 learner\n" in out
    (here / "class/deep.json").write_text("[" * 100_000)
    assert "damaged (nested too deeply)." in run(capsys, "report", "class")[2]


def test_a_file_that_is_too_long_is_not_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner(here, "ada.json", notebook("01"))
    monkeypatch.setattr(report, "_MOST_BYTES", (here / "ada.json").stat().st_size)
    assert report.read(here)[1] == []
    monkeypatch.setattr(report, "_MOST_BYTES", (here / "ada.json").stat().st_size - 1)
    assert "more than" in report.read(here)[1][0]
    (here / "eve\x1b.json").write_text("{}")
    learner(here, "b\x1b/progress.json", notebook("01"))
    monkeypatch.undo()
    assert {one.learner for one in report.read(here)[0]} == {"ada", "b?"}


@pytest.mark.parametrize("module", [report, golf, answers])
def test_a_file_is_read_up_to_its_limit(here: Path, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
    most = {report: 16 << 20, golf: 16 << 20, answers: 1 << 20}[module]
    told = list[str]()
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: told.append("read") or "{")
    monkeypatch.setattr(answers, "judge", lambda *_: None)
    for size in (most, most + 1):
        with (here / "a.json").open("wb") as file:
            file.truncate(size)  # takes no room
        with contextlib.suppress(golf.GolfError, answers.AnswerError):
            told += report.read(here)[1] if module is report else ()
            golf.read(here / "a.json") if module is golf else None
            answers.judged("00-saxpy", here / "a.json") if module is answers else None
        told.append("and then")
    assert told.count("read") == 1
    assert told.index("read") < told.index("and then")
    if module is report:
        assert told[-2] == "a.json is left out: it is no progress file, or damaged (more than 16 MiB)."


# --- gpulab instructor ---

ASKED = PredictionQuestion(
    "09-n", "How many?", "So.", (3, 4), "blocks", comparison=4, misconception="four are enough."
)
PLAIN = PredictionQuestion("09-m", "How long?", "Because.", misconception="it is quick.")
QUIZ = (
    "Made up",
    (
        Question("Which?", (Choice("blue", "No."), Choice("red", "Yes.", right=True))),
        WhyQuestion("Why?", ("this", "that")),
    ),
)


REVEALED = "No prediction. 3 blocks. The usual wrong answer: 4 blocks. Counted."


def cell(source: str, *outputs: dict[str, str]) -> dict[str, Any]:
    told = [{"data": {kind: [text] for kind, text in data.items()}} for data in outputs]
    return {"cell_type": "code", "id": f"c{len(source)}", "source": [source], "outputs": told}


def prose(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": "m", "source": text.splitlines(keepends=True)}


@pytest.fixture
def made_up(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cells = [
        prose("# 09 · Made up\n\n**40 minutes**, more or less."),
        prose("## Start (10 min)"),
        cell("gl.which_device()", {"text/html": "x", "text/plain": "a device"}),
        cell('gl.predict("09-n")', {"text/plain": "Predict: How many, now?\nmore"}),
        cell(
            "draw(1)",
            {"image/png": "x", "text/html": "y", "text/plain": "A picture.\nmore"},
            {"text/plain": "no"},
        ),
        cell('gl.reveal("09-n", 3)', {"text/html": "x", "text/plain": REVEALED}),
        prose("## Go on\n\nText"),
        cell("table(22)", {"text/html": "y", "text/plain": "A table."}),
        cell('gl.predict("09-m")'),
        cell('gl.check("09-x", f)'),
        prose("<details><summary>Solution of 09-x</summary>\n\n```cpp\ncode\n```\n\n</details>"),
        cell('gl.quiz("made_up")'),
        prose("<details><summary>Answers to all</summary>\n\n1. red\n\n</details>"),
    ]
    (here / "09_made_up.ipynb").write_text(json.dumps({"cells": cells}))
    (here / "index.ipynb").write_text("{}")
    monkeypatch.setattr(
        copies, "originals", lambda: {name: here / name for name in ("09_made_up.ipynb", "index.ipynb")}
    )
    monkeypatch.setattr(folders, "prediction", {"09-n": ASKED, "09-m": PLAIN}.get)
    exercise = SimpleNamespace(title="An exercise", level="core", kind="write")
    monkeypatch.setattr(folders, "exercise", {"09-x": exercise}.get)
    monkeypatch.setattr(folders, "quizzes", lambda: {"made_up": QUIZ})
    wrong = {"09-x": ["- no guard (fails in *results*): “is wrong”"]}
    monkeypatch.setattr(instructor, "_mistakes", lambda number: wrong if number == "09" else {})
    return here


MADE = "Made from the notebook and the course's code; what was found is what the stored notebook shows."
PAGE = f"""# 09 · Made up: for the instructor

40 minutes in all. {MADE}

## Sections and minutes

- Start: 10 min
- Go on

## What to project

- *Start*, cell `c7`, picture: A picture.
- *Go on*, cell `c9`, table: A table.

## Predictions

**09-n.** How many, now?
  - Choices: 3 / 4
  - The usual wrong answer: 4 blocks
  - Who says so believes: four are enough.
  - Found: 3 blocks. Counted.

**09-m.** How long?
  - Who says so believes: it is quick.
  - Found: Because.

## Exercises

### 09-x · An exercise (core, write)

An answer that passes:

```cpp
code
```

Wrong answers to expect, and words that they earn:

- no guard (fails in *results*): “is wrong”

## Questions

### Made up

1. Which?
   - **right**: red — Yes.
   - wrong: blue — No.

2. Why?
   - a good answer says: this
   - a good answer says: that

**Answers to all.**

1. red"""


def test_an_instructors_page_is_made_of_the_notebook(
    made_up: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(instructor.notebooks()) == ["09"]
    assert instructor.page("09") == PAGE
    assert run(capsys, "instructor", "09") == (0, f"{PAGE}\n", "")
    status, out, err = run(capsys, "instructor", "--all", "pages/of/all")
    assert (status, out, err) == (0, "", f"{Path('pages/of/all/09.md')}\n")
    assert Path("pages/of/all/09.md").read_text(encoding="utf-8") == f"{PAGE}\n"
    assert run(capsys, "instructor", "--all", "pages/of/all")[0] == 0, "once more"
    with pytest.raises(instructor.InstructorError, match=r"no notebook '08'\. .*There are: 09\."):
        instructor.page("08")


def test_an_instructors_page_may_be_html(made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "instructor", "09", "--html")
    assert out.startswith('<!doctype html>\n<html lang="en">')
    assert "</html>" in out
    assert "<h2" in out


def test_without_a_quiz_the_page_says_where_it_stands(made_up: Path) -> None:
    path = made_up / "09_made_up.ipynb"
    held = json.loads(path.read_text())
    held["cells"] = [each for each in held["cells"] if "quiz" not in "".join(each["source"])]
    held["cells"][0] = prose("# Title\n\n## Start")
    path.write_text(json.dumps(held))
    page = instructor.page("09")
    assert page.endswith("1. red\n\nThe topic's quiz stands in the notebook that ends the topic.")
    assert "\n\nMade from the notebook" in page


@pytest.mark.parametrize("arguments", [[], ["09", "--all", "x"]])
def test_either_a_notebook_or_all(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        instructor.main(arguments)
    assert "name a notebook, or --all FOLDER" in capsys.readouterr().err


def test_mistakes_are_told_with_their_stage_and_the_words_that_they_earn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = (
        ShownAnswer("09-x", "rounds up", "results", "is wrong"),
        ShownAnswer("09-y", "waits", "", ""),
        ShownAnswer("09-x", "sleeps", "", "z"),
    )
    held = [
        SimpleNamespace(number="10", shown_answers=shown),
        SimpleNamespace(number="09", shown_answers=()),
        SimpleNamespace(number="09", shown_answers=shown),
    ]
    monkeypatch.setattr(folders, "folders", lambda: held)
    assert instructor._mistakes("09") == {
        "09-x": ["- rounds up (fails in *results*): “is wrong”", "- sleeps: “z”"],
        "09-y": ["- waits"],
    }
    assert instructor._mistakes("11") == {}


def test_mistakes_are_those_of_the_notebooks_exercises() -> None:
    found = instructor._mistakes("00")
    assert set(found) <= set(folders.exercises())
    assert {name[:2] for name in found} == {"00"}
    assert any(" (fails in *" in line for line in found["00-saxpy"])
    assert not any("fails in" in line for line in found["00-blocks"])
    assert all(line.startswith("- ") for line in found["00-saxpy"])
    assert any(line.endswith("”") for line in found["00-saxpy"])
