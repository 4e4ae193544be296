"""Pages for instructors: `gpulab instructor`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpulab import cli
from gpulab_course import folders
from gpulab_course.classroom import instructor
from gpulab_course.teach.question import Question


def parts(page: str, marks: str = "## ") -> dict[str, str]:
    """Return the text of each section by its heading."""
    pieces = f"\n{page}".split(f"\n{marks}")[1:]
    return {piece.split("\n")[0]: piece.partition("\n")[2].strip() for piece in pieces}


@pytest.mark.parametrize("number", list(instructor.find_notebooks()))
def test_every_notebook_has_an_instructors_page_without_gaps(number: str) -> None:
    page = instructor.make_page(number)
    sections = parts(page)
    assert list(sections) == [
        "If you teach one thing",
        "What to skip if time is short",
        "Sections and minutes",
        "What to project",
        "Predictions",
        "Exercises",
        "Questions",
    ]
    assert all(sections.values()), [heading for heading, text in sections.items() if not text]
    assert " minutes in total." in page
    predictions = sections["Predictions"].split("**")[1::2]
    assert predictions
    assert all(name.startswith(number[:2]) for name in predictions)
    for line in ("  - The misconception behind it: ", "  - Result: "):
        lines = [text for text in sections["Predictions"].splitlines() if text.startswith(line)]
        assert len(lines) == len(predictions), line
        assert all(text != line.rstrip() for text in lines)
    assert "No prediction." not in page
    exercises = parts(sections["Exercises"], "### ")
    assert exercises
    for name, text in exercises.items():
        assert "```" in text.partition("Wrong answers")[0], name
        assert text.count("\n- ") >= 2, name


def test_every_question_of_the_course_is_on_a_page() -> None:
    text_ = "\n".join(instructor.make_page(number) for number in instructor.find_notebooks())
    names = [*folders.list_exercises(), *folders.list_predictions()]
    assert not [name for name in names if name not in text_]
    questions = [question for _, questions in folders.list_quizzes().values() for question in questions]
    assert not [question.text for question in questions if question.text not in text_]
    for question in questions:
        if isinstance(question, Question):
            (right,) = (option for option in question.options if option.right)
            assert f"- **right**: {right.text} — {right.why}" in text_


def test_a_page_is_printed_or_written_to_a_file(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["instructor", "05b"]) == 0
    assert capsys.readouterr().out.startswith("# 05b · ")
    assert cli.main(["instructor", "5b"]) == 1
    assert "There is no notebook '5b'. Did you mean '05b'?" in capsys.readouterr().err
    assert cli.main(["instructor", "--html", "--all", "pages"]) == 0
    pages = sorted(path.name for path in (workdir / "pages").iterdir())
    assert pages == [f"{number}.html" for number in sorted(instructor.find_notebooks())]
    text = (workdir / "pages" / "00.html").read_text(encoding="utf-8")
    assert "<h2" in text
    assert "<strong>00-" in text


@pytest.mark.parametrize("arguments", [[], ["09", "--all", "x"]])
def test_the_command_requires_a_notebook_or_all(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        instructor.main(arguments)
    assert "name a notebook, or --all FOLDER" in capsys.readouterr().err


def test_listed_mistakes_belong_to_the_exercises_of_the_notebook() -> None:
    sections = instructor._list_mistake_lines("00")
    assert set(sections) <= set(folders.list_exercises())
    assert {name[:2] for name in sections} == {"00"}
    assert any(" (fails in *" in line for line in sections["00-saxpy"])
    assert not any("fails in" in line for line in sections["00-blocks"])
    assert all(line.startswith("- ") for line in sections["00-saxpy"])
    assert any(line.endswith("”") for line in sections["00-saxpy"])


@pytest.mark.parametrize("number", instructor.find_notebooks())
def test_a_page_lists_a_first_topic_and_sections_to_skip(number: str) -> None:
    sections = parts(instructor.make_page(number))
    first = sections["If you teach one thing"]
    assert re.search(rf"Ask first \({number[:2]}-[\w-]+\): .{{20}}", first)
    skipped = sections["What to skip if time is short"].splitlines()
    assert skipped
    assert [line for line in skipped if f"{line}: " not in sections["Sections and minutes"]] == []
