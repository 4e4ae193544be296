"""Answers in files, judged without Jupyter: `gpulab check`."""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gpulab import cli
from gpulab.processes import talk
from gpulab_course import folders
from gpulab_course.classroom import answers, golf, report
from gpulab_course.teach.store import store
from tests.answers import n00_start

SAXPY = next(right.answer for right in n00_start.RIGHT if right.exercise_id == "00-saxpy")
SHAPE = """
def shape_for(n, info):
    threads = info.max_threads_per_block
    return -(-n // threads), threads
"""


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(["check", *arguments])
    return (status, *capsys.readouterr())


def test_checking_a_kernel_file_stores_no_progress(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workdir / "mine.cu").write_text(SAXPY)
    status, out, err = check(capsys, "00-saxpy", "mine.cu")
    assert (status, err) == (0, "")
    assert out.startswith("00-saxpy: passed: ")
    assert "✓ parallelism" in out
    assert not store().get("exercises", "00-saxpy")


@pytest.mark.parametrize(
    ("name", "package"), [("saxpy", "from gpulab import cp"), ("answer", "import cupy as cp"), ("saxpy", "")]
)
def test_a_python_file_can_define_a_kernel(
    workdir: Path, capsys: pytest.CaptureFixture[str], name: str, package: str
) -> None:
    kernel = f'cp.RawKernel(r"""{SAXPY}""", "saxpy")' if package else f'r"""{SAXPY}"""'
    (workdir / "mine.py").write_text(
        f"\ufeff{package}\nprint('hello')\n{name} = {kernel}\n", encoding="utf-8"
    )
    status, out, _ = check(capsys, "00-saxpy", "mine.py", "--json")
    verdict = json.loads(out)
    assert (status, verdict["passed"], verdict["error"]) == (0, True, "")
    assert [stage["state"] for stage in verdict["stages"]] == ["passed"] * 5


def test_a_python_file_runs_in_the_answer_process(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = "import os, pathlib\npathlib.Path('pid').write_text(str(os.getpid()))\nprint('looking')\n"
    guarded = "if __name__ == '__main__':\n    raise SystemExit(3)\n"
    (workdir / "mine.py").write_text(f"{mark}{SHAPE}def other(): ...\n{guarded}")
    status, out, err = check(capsys, "00-blocks", "mine.py", "--json")
    assert (status, json.loads(out)["passed"]) == (0, True), out
    assert "looking" in err  # printed output of an answer is not part of the JSON
    assert (workdir / "pid").read_text() != str(os.getpid())
    assert "mine" not in sys.modules


@pytest.mark.parametrize(
    ("exercise", "text", "message"),
    [
        ("00-saxpy", "while True: pass", "longer than 1 s of processor time. Look for a loop"),
        ("00-blocks", "import os\nos._exit(0)", "ended Python with status 0"),
        ("00-saxpy", "import os\nos.kill(os.getpid(), 9)", "crashed Python"),
        ("00-blocks", "raise SystemExit", "exit"),
        ("00-blocks", "x = 1 / 0", "ZeroDivisionError"),
        ("00-saxpy", "x = 1 / 0", "ZeroDivisionError"),
        ("00-blocks", "def shape(n, info): return 1, 1", "does not define `shape_for`"),
        ("00-saxpy", "saxpy = 3", "is not a kernel"),
        ("00-saxpy", "saxpy = 'int main() {}'", "no kernel `saxpy`"),
    ],
)
def test_a_failing_python_file_gets_a_one_line_verdict(
    workdir: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    exercise: str,
    text: str,
    message: str,
) -> None:
    monkeypatch.setattr(talk, "MAX_ELAPSED_S", 600.0)  # processor time decides, however busy this machine is
    monkeypatch.setattr(answers, "_KERNEL_LIMIT_S", 1.0)
    (workdir / "mine.py").write_text(text)
    status, out, err = check(capsys, exercise, "mine.py")
    assert status == 1, (out, err)
    assert out.startswith(f"{exercise}: not yet: ")
    assert message in out
    assert len(out.splitlines()) == 1


def test_a_timeout_suggests_that_the_computer_is_busy(
    workdir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk, "MAX_ELAPSED_S", 0.3)
    (workdir / "mine.py").write_text("while True: pass")
    status, out, _ = check(capsys, "00-blocks", "mine.py")
    assert status == 1
    assert "it did not finish within 0.3 s" in out
    assert "Try again when the computer is less busy" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("00-saxpy", "nothing.cu"), "nothing.cu cannot be read: No such file"),
        (("00-saxpy", "."), "cannot be read|is not a file"),
        (("00-saxpi", "mine.cu"), "no exercise '00-saxpi'. Did you mean '00-saxpy'?"),
        (("", "mine.cu"), "usage: gpulab check"),
        (("99-x", "mine.cu"), "no exercise '99-x'"),
        (("00-blocks", "mine.cu"), "00-blocks needs an answer in Python"),
        (("00-saxpy", "mine.txt"), "neither a .cu nor a .py file"),
        (("00-blocks", "broken.py"), "broken.py, line 2: the code is not valid Python"),
        (("00-blocks", "null.py"), "null.py.*: the code is not valid Python"),
        (("00-blocks", "latin.py"), "not UTF-8 text: byte 3 "),
        (("00-saxpy", "huge.cu"), "larger than 1 MiB"),
        (("--all", "nowhere"), "nowhere is not a folder"),
        (("--all", "empty"), "empty contains no answers"),
        (("--all", "empty", "00-saxpy"), "--all reads the names"),
        (("00-saxpy",), "name an exercise and a file"),
    ],
)
def test_unusable_files_are_reported_in_one_line(
    workdir: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    (workdir / "empty").mkdir()
    (workdir / "mine.cu").write_text("x")
    (workdir / "mine.txt").write_text("x")
    (workdir / "broken.py").write_text("\ndef f(:\n")
    (workdir / "null.py").write_bytes(b"x = 1\0\n")
    (workdir / "latin.py").write_bytes(b"# \x77\xe9\n")
    (workdir / "huge.cu").write_bytes(b" " * ((1 << 20) + 1))
    try:
        status, out, err = check(capsys, *arguments)
    except SystemExit as stop:
        status, (out, err) = int(stop.code or 0), capsys.readouterr()
    assert (status, out) == (2, ""), err
    assert any(part in err or _matches(part, err) for part in message.split("|")), err
    assert "Traceback" not in err
    assert len([line for line in err.splitlines() if line.startswith("gpulab: ")]) <= 1


def _matches(pattern: str, text: str) -> bool:
    start, _, end = pattern.partition(".*")
    return bool(end) and start in text and end in text


def test_all_answers_of_a_class(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {
        "ada/00-saxpy.cu": SAXPY,
        "bob/00-saxpy.cu": SAXPY.replace("a *", ""),
        "bob/notes.py": "x",
        "bob/00-saxpi.cu": "x",
        "eve/00-saxpy.py": "def f(:",
    }.items():
        (workdir / "class" / name).parent.mkdir(parents=True, exist_ok=True)
        (workdir / "class" / name).write_text(text)
    status, out, err = check(capsys, "--all", "class")
    lines = out.splitlines()
    assert status == 2
    assert [line.split(": ")[0].split() for line in lines[:2]] == [
        ["passed", str(Path("ada/00-saxpy.cu"))],
        ["not", "yet", str(Path("bob/00-saxpy.cu"))],
    ]
    assert lines[2:] == ["1 of 3 answers passed."]
    assert "00-saxpi.cu is left out, because no exercise has this name. Did you mean '00-saxpy'?" in err
    assert f"{Path('eve/00-saxpy.py')}: 00-saxpy.py, line 1: the code is not valid Python" in err
    (workdir / "class/eve/00-saxpy.py").unlink()
    status, out, _ = check(capsys, "--all", "class", "--json")
    assert status == 1
    assert [(row["file"], row["passed"]) for row in json.loads(out)] == [
        (str(Path("ada/00-saxpy.cu")), True),
        (str(Path("bob/00-saxpy.cu")), False),
    ]


def test_each_answer_has_the_function_name_of_its_notebook() -> None:
    names = {name: answers.find_notebook_name(name) for name in folders.list_exercises()}
    assert not [name for name, verdict in names.items() if verdict == "answer"]
    assert names["00-blocks"] == "shape_for"


def test_an_unknown_exercise_lists_the_exercises_of_its_notebook() -> None:
    with pytest.raises(ValueError, match="There is no exercise '05-nothing'") as error:
        answers.find_exercise("05-nothing")
    names = str(error.value).partition("Examples: ")[2].rstrip(".").split(", ")
    assert names == [name for name in folders.list_exercises() if name.startswith("05-")]


def test_a_python_answer_is_named_as_in_the_notebook_or_answer() -> None:
    assert answers.define_answer("answer = 1\nf = 2", "f", "a.py") == 2
    assert answers.define_answer("answer = __name__, __file__", "f", "dir/a.py") == ("a", "dir/a.py")
    with pytest.raises(Exception, match=r"a\.py does not define `f`"):
        answers.define_answer("g = 1", "f", "a.py")
    function, arguments = answers.AnswerModule("f = 3", "f", "a.py").__reduce__()
    assert function(*arguments) == 3


def test_source_lines_of_an_answer_file_are_in_the_line_cache() -> None:
    answers.define_answer("one = 1\nanswer = lambda: 1 / 0\n", "f", "made/up.py")
    assert linecache.getlines("made/up.py") == ["one = 1\n", "answer = lambda: 1 / 0\n"]


@pytest.mark.parametrize(("module", "most"), [(report, 16 << 20), (golf, 16 << 20), (answers, 1 << 20)])
def test_a_file_is_read_up_to_its_limit(
    workdir: Path, monkeypatch: pytest.MonkeyPatch, module: Any, most: int
) -> None:
    events = list[str]()
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: events.append("read") or "{")
    monkeypatch.setattr(answers, "judge", lambda *_: None)
    for size in (most, most + 1):
        with (workdir / "a.json").open("wb") as file:
            file.truncate(size)  # a sparse file
        with contextlib.suppress(golf.GolfError, answers.AnswerError):
            events += report.read_learners(workdir)[1] if module is report else ()
            golf.read_entries(workdir / "a.json") if module is golf else None
            answers.judge_file("00-saxpy", workdir / "a.json") if module is answers else None
        events.append("and then")
    assert events.count("read") == 1
    assert events.index("read") < events.index("and then")
    if module is report:
        assert events[-2].startswith("a.json is left out: ")
        assert "damaged (the file has more than 16 MiB)" in events[-2]
