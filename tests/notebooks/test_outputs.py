"""What the notebooks show without a kernel: every cell's result, pictures included, and no leftovers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpulab_course import folders
from gpulab_course.teach.predictions import asking
from tests.notebooks.course import NOTEBOOKS, code_cells, exercises, output_text, read

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)

VIEW = r"(?:gl\.(?:device|compare|launch|occupancy|warps)|figures\.\w+)\("


def shows_a_view(source: str) -> bool:
    """Whether a cell ends with a view, made there and then or given a name before."""
    last = source.splitlines()[-1]
    return bool(re.match(VIEW, last) or re.search(rf"^{re.escape(last)} = (?:{VIEW}|run\()", source, re.M))


@each_notebook
def test_every_cell_has_run_in_order(path: Path) -> None:
    counts = [cell.execution_count for cell in code_cells(read(path))]
    assert counts == list(range(1, len(counts) + 1))


@each_notebook
def test_stored_outputs_have_no_errors_escape_codes_or_paths(path: Path) -> None:
    for cell in code_cells(read(path)):
        assert not [output for output in cell.outputs if output.output_type == "error"], cell.id
        text = output_text(cell)
        assert "\x1b" not in text, cell.id
        assert not re.search(r"(?<![\w.<>])/(?:work|home|root|tmp|usr)/", text), cell.id


@each_notebook
def test_views_are_stored_as_images_with_alt_text(path: Path) -> None:
    views = [cell for cell in code_cells(read(path)) if shows_a_view(cell.source)]
    for cell in views:
        (output,) = [output for output in cell.outputs if output.output_type == "execute_result"]
        assert len(output.data["text/plain"]) > 20, cell.id
        if output.data.get("text/html", "").startswith(("<section", "<table")):
            continue  # a table needs no image
        assert "image/png" in output.data, cell.id
        alt = output.metadata["image/png"]["alt"]
        assert alt.startswith(output.data["text/plain"]), "exports and screen readers"


@each_notebook
def test_stored_images_declare_a_light_background(path: Path) -> None:
    """JupyterLab and the course's extension need the declaration to show images in a dark theme."""
    for cell in code_cells(read(path)):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                assert output.metadata.get("needs_background") == "light", cell.id


# The text of a comparison without an answer: the number and a tempting answer.
_COMPARED = re.compile(
    r"No prediction\. (?P<found>.+?)\. (?:The usual wrong answer: (?P<tempting>.+?)\. )?(?P<source>[A-Z])"
)


def comparisons(path: Path) -> dict[str, str]:
    """Return the output of each cell that compares a prediction with its number."""
    return {cell.id: output_text(cell) for cell in code_cells(read(path)) if "reveal(" in cell.source}


@each_notebook
def test_comparisons_name_the_source_of_their_number(path: Path) -> None:
    for cell, text in comparisons(path).items():
        assert _COMPARED.search(text), f"{cell} reveals a number without its source"


@each_notebook
def test_exercise_stubs_do_not_pass(path: Path) -> None:
    for name, cell in exercises(read(path)).items():
        assert output_text(cell).startswith(f"{name}: not yet: "), cell.id


@each_notebook
def test_tempting_answers_are_wrong_in_at_least_half_the_cases(path: Path) -> None:
    """A tempting answer is a misconception, so it must not often be correct."""
    result = [match for text in comparisons(path).values() if (match := _COMPARED.search(text))]
    tempting = [match for match in result if match["tempting"]]
    assert sum(match["tempting"] == match["found"] for match in tempting) <= len(tempting) / 2


@each_notebook
def test_choices_are_stored_in_the_order_in_which_they_are_shown(path: Path) -> None:
    for cell in code_cells(read(path)):
        match_ = re.search(r'gl\.predict\(\s*"([\w-]+)"', cell.source)
        question = folders.find_prediction(match_[1]) if match_ else None
        if question and question.choices:
            assert " / ".join(map(str, asking._fill_question(question, {}).choices)) in output_text(cell), (
                cell.id
            )


def test_no_fixed_choice_position_beats_chance() -> None:
    hits = dict.fromkeys((0, 1, -1), 0)
    by_chance = 0.0
    for path in NOTEBOOKS:
        for cell in code_cells(read(path)):
            match_ = re.search(r'reveal\(\s*"([\w-]+)"', cell.source)
            result = _COMPARED.search(output_text(cell))
            question = folders.find_prediction(match_[1]) if match_ else None
            if result and question and question.choices:
                choices = [str(choice).casefold() for choice in asking._fill_question(question, {}).choices]
                by_chance += 1 / len(choices)
                for place in hits:
                    hits[place] += choices[place] == result["found"].casefold()
    assert by_chance > 20
    assert all(0.7 * by_chance < hit < 1.3 * by_chance for hit in hits.values()), (hits, by_chance)
