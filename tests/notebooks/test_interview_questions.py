"""Questions that lists of interview questions ask: each has a card or a section that answers it."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from gpulab_course.api import list_all_cards
from tests.notebooks.course import NOTEBOOKS, number, read

FILE = Path(__file__).resolve().parents[2] / "gpulab_course/content/n17_interview/interview_questions.tsv"
LEAST = 70
# Lists A to O of the collection; K's and others' wrong answers are listed under their own names.
LISTS = {*"ABCDEFGHIJKLMNO", "Modal", "seeds"}


def rows() -> list[dict[str, str]]:
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def places() -> set[str]:
    """What may be named: ``card:key``, ``02 §3``, ``02 cell-id``."""
    result = {f"card:{card.key}" for card in list_all_cards()}
    for path in NOTEBOOKS:
        for cell in read(path).cells:
            result.add(f"{number(path)} {cell.id}")
            if cell.cell_type == "markdown":
                headed = re.findall(r"^## (\d+) · ", cell.source, re.MULTILINE)
                result |= {f"{number(path)} §{section}" for section in headed}
    return result


def test_each_question_refers_to_existing_sections() -> None:
    existing = places()
    for row in rows():
        answers = [answer.strip() for answer in row["answered"].split(";")]
        assert answers
        assert set(answers) <= existing, f"{row['question']}: {sorted(set(answers) - existing)}"


def test_quoted_code_appears_in_an_answering_section() -> None:
    texts: dict[str, str] = {}
    for path in NOTEBOOKS:
        section = ""
        for cell in read(path).cells:
            if cell.cell_type == "markdown" and (
                headed := re.search(r"^## (\d+) · ", cell.source, re.MULTILINE)
            ):
                section = f"{number(path)} §{headed[1]}"
            for place in (section, f"{number(path)} {cell.id}"):
                texts[place] = texts.get(place, "") + cell.source
    questions = [(row, code) for row in rows() for code in re.findall(r"`([^`]{3,})`", row["question"])]
    assert len(questions) >= 3
    for row, code in questions:
        answers = [answer.strip() for answer in row["answered"].split(";")]
        assert any(code in texts.get(place, "") for place in answers), row["question"]


def test_all_lists_are_present_and_questions_are_unique() -> None:
    questions = [row["question"] for row in rows()]
    assert len(questions) == len(set(questions)) >= LEAST
    assert {row["list"] for row in rows()} == LISTS
    assert all(question[-1] in "?." for question in questions)
