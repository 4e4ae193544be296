"""What a notebook's opening, its headings and the README promise is what its text and exercises take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from tests.notebooks.course import NOTEBOOKS, number, read
from tools import minutes

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@each_notebook
def test_stated_minutes_equal_the_computed_minutes(path: Path) -> None:
    notebook = read(path)
    advice = f"python -m tools.minutes --write {number(path)}"
    assert minutes.read_said_minutes(notebook) == minutes.sum_minutes(notebook), advice
    assert minutes.read_readme_minutes(number(path)) == minutes.sum_minutes(notebook), advice
    promised = minutes.read_section_minutes(notebook)
    spent = {section.title: max(round(section.minutes), 1) for section in minutes.measure_sections(notebook)}
    numbered = {title for title in spent if title[:1].isdigit()}
    assert promised == {title: spent[title] for title in promised.keys() | numbered}, advice


@each_notebook
def test_long_notebooks_suggest_a_pause(path: Path) -> None:
    notebook = read(path)
    assert minutes.read_said_pause(notebook) == minutes.find_pause(notebook)
    assert (minutes.read_said_pause(notebook) is not None) == (
        minutes.sum_minutes(notebook) > minutes.SITTING_MIN
    )


SOLUTION = """<details><summary>Hint for 00-x</summary>

{hint}

</details>

<details><summary>Solution of 00-x</summary>

```python
{code}
```

</details>"""


def spent(*cells: Any) -> float:
    return sum(
        section.minutes for section in minutes.measure_sections(nbformat.v4.new_notebook(cells=list(cells)))
    )


def test_minutes_of_each_kind_of_cell() -> None:
    assert spent(new_markdown_cell("word " * 300)) == pytest.approx(3)
    assert spent(new_markdown_cell("**Your turn.** " + "word " * 98)) == pytest.approx(3)
    assert spent(new_code_cell("x = 1\n\ny = 2\nz = 3")) == pytest.approx(0.2)
    shown = new_output("execute_result", {"text/html": "<table></table>"})
    printed = new_output("stream", text="1")
    assert spent(new_code_cell("x", outputs=[printed, shown])) == pytest.approx(0.5 + 4 / 60)
    assert spent(new_code_cell("print(x)", outputs=[printed])) == pytest.approx(4 / 60)
    assert spent(new_code_cell('gl.predict("00-x", n=n)')) == pytest.approx(0.75)
    questions = [new_markdown_cell("## Questions\n" + "word " * 900), new_code_cell("x = 1\n" * 300)]
    assert spent(*questions) == pytest.approx(10)


@pytest.mark.parametrize(("lines", "expected"), [(0, 5), (4, 8), (400, 35)])
def test_exercise_minutes_depend_on_new_solution_lines(lines: int, expected: float) -> None:
    code = "\n".join(["def f(x):", *(f"    y = {n}" for n in range(lines))])
    stub = new_code_cell('def f(x):\n    pass\n\n\ngl.check("00-x", f)')
    folded = new_markdown_cell(SOLUTION.format(hint="word " * 600, code=code))
    assert spent(stub, folded) == pytest.approx(expected)
