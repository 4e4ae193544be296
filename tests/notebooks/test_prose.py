"""What the course says holds on every device: each figure in its texts has a ground that a reader can see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebooks import prose
from tests.notebooks.prose import Figure, Passage

PLACES = sorted({passage.place for passage in prose.passages()})


def location(figure: Figure) -> str:
    return f"{figure.passage.where}: “{figure.words}” in “{figure.sentence.strip()}”"


@pytest.mark.parametrize("place", PLACES)
def test_every_figure_has_a_ground(place: str) -> None:
    passages_ = [passage for passage in prose.passages() if passage.place == place]
    missing = "\n".join(map(location, prose.unfounded(passages_, prose.grounds())))
    advice = f"compute it, name its kind and device beside it, or say in grounds/{place}.tsv why it holds"
    assert not missing, f"{advice}:\n{missing}"


def test_no_listed_ground_is_stale() -> None:
    figures = [f for passage in prose.passages() for f in prose.figures(passage) if not prose.ground_of(f)]
    listed = prose.grounds()
    assert not [g for g in listed if not any(prose.applies(g, figure) for figure in figures)]
    assert not [g for g in listed if g.reason not in prose.REASONS or not g.why.strip()]


# What stood in the notebooks, or might: true on one device, of one recording, or of none.
UNFOUNDED = {
    "Half a percent more work, and the launch takes far longer.": "Half",
    "The curve rises until enough bytes are on their way, and then stays flat.": "flat",
    "Pinned memory reaches 25 GB/s.": "25 GB/s",
    "A launch costs a microsecond or so.": "a microsecond",
    "On average 15.5 of 32 lanes are in the loop, about 48 %.": "15.5 of 32 lanes",
    "The context takes two hundred milliseconds.": "two hundred milliseconds",
    "It is a 70 W card beside a 300 W card.": "70 W",
}


def in_cell(cell: Any) -> list[Passage]:
    return list(prose.notebook_passages("00", nbformat.v4.new_notebook(cells=[cell])))


def in_text(sentence: str) -> list[Passage]:
    return in_cell(nbformat.v4.new_markdown_cell(f"Before.\n\n{sentence}\n\nAfter."))


def in_code(sentence: str) -> list[Passage]:
    return in_cell(nbformat.v4.new_code_cell(f'x = 3  # an hour\nprint(f"{sentence} It is {{x:.0f}} ms.")'))


def in_reveal(sentence: str) -> list[Passage]:
    return in_cell(nbformat.v4.new_code_cell(f'gl.reveal("00-x", x, "{sentence}")'))


def in_hint(sentence: str) -> list[Passage]:
    return in_text(f"<details><summary>Hint for 00-x</summary>\n\n{sentence}\n\n</details>")


def in_module(code: str, folder: Path) -> list[Passage]:
    (folder / "quiz.py").write_text(f'"""Twice as many."""\n{code}\n', encoding="utf-8")
    return list(prose.folder_passages("00", folder / "quiz.py"))


@pytest.mark.parametrize("sentence", UNFOUNDED)
def test_an_unfounded_figure_is_found_in_every_kind_of_text(sentence: str, tmp_path: Path) -> None:
    places = {
        "text": in_text(sentence),
        "print": in_code(sentence),
        "reveal": in_reveal(sentence),
        "hint": in_hint(sentence),
        "answer": in_module(f'Question("Why?", (Choice("so", "{sentence}"),))', tmp_path),
        "right choice": in_module(f'Question("Why?", (Choice("{sentence}", "", right=True),))', tmp_path),
        "explanation": in_module(f'PredictionQuestion("00-x", "How many?", "{sentence}")', tmp_path),
    }
    for where, passages in places.items():
        assert UNFOUNDED[sentence] in [figure.words for figure in prose.unfounded(passages, [])], where


@pytest.mark.parametrize(
    "sentence",
    [
        "The late block took {ratio:.2f} times as long.",
        "A lane reads 4 bytes, and a sector has 32 bytes.",
        "That is 16 bytes a lane instead of 4: a quarter of the warps suffices.",
        "3,350 GB/s were published for the H100.",
        "33 of 64 lanes work, 52 %.",
        "Is it twice as fast?",
        "They move 4 MiB + 4 MiB, 8 MiB in all.",
    ],
)
def test_computed_defined_and_labelled_figures_pass(sentence: str) -> None:
    missing = [f.words for f in prose.unfounded(in_text(sentence), [])]
    assert [words for words in missing if "MiB" not in words or words == "8 MiB"] == []


def test_wrong_choices_and_questions_may_say_what_is_false(tmp_path: Path) -> None:
    code = 'Question("Is 40 % lost?", (Choice("it is twice as fast", "No."), Choice("no", "", right=True)))'
    assert not prose.unfounded(in_module(code, tmp_path), [])
