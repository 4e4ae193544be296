"""A learner's copies of the notebooks: their content, and that no work of a learner is ever lost."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import nbformat
import pytest

from gpulab import cli
from gpulab_course.content import copies

ROOT = Path(__file__).resolve().parents[2]


def notebook(*sources: str) -> Any:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    for number, cell in enumerate(cells):
        cell.execution_count = number
        cell.outputs = [nbformat.v4.new_output("stream", text="the answer is 232")]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title"), *cells])


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small course of two notebooks in the place of the real one."""
    package = tmp_path / "site" / "gpulab"
    place = package / "notebooks"
    place.mkdir(parents=True)
    for name in ("00_start.ipynb", "01_next.ipynb"):
        nbformat.write(notebook("x = 1", "x + 1"), place / name)
    monkeypatch.setattr(copies, "_PACKAGE_FOLDER", package)
    return place


@pytest.fixture
def mine(course: Path, tmp_path: Path) -> Path:
    """A learner's folder with fresh copies."""
    folder = tmp_path / "learner" / "gpulab-course"
    copies.update_copies(folder)
    return folder


def change(path: Path, source: str | None = None, run: bool = False, cell: int = 1) -> bytes:
    """Save a notebook as JupyterLab does after an edit of one cell, or after running all."""
    document = nbformat.read(path, as_version=4)
    document.metadata["language_info"] = {"name": "python", "version": "3.12.1"}
    document.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    if source is not None:
        document.cells[cell].source = source
    if run:
        document.cells[1].outputs = [nbformat.v4.new_output("stream", text="2")]
        document.cells.append(nbformat.v4.new_code_cell(""))  # after Shift+Enter in the last one
    nbformat.write(document, path)
    return path.read_bytes()


@pytest.mark.parametrize("path", copies.find_originals().values(), ids=lambda path: path.stem)
def test_copies_contain_no_outputs_or_answers(path: Path) -> None:
    original = nbformat.read(path, as_version=4)
    copy = nbformat.from_dict(copies.make_copy(path))
    nbformat.validate(copy)
    assert len(copy.cells) == len(original.cells)
    code = [cell for cell in copy.cells if cell.cell_type == "code"]
    assert not [cell for cell in code if cell.outputs or cell.execution_count or "NBVAL" in cell.source]
    assert not [cell.id for cell in code if "because=" in cell.source], "answers lie in the course's folder"
    prose = "\n".join(cell.source for cell in copy.cells if cell.cell_type == "markdown")
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", prose, flags=re.DOTALL)  # f[x](y) is no link in code
    for link in re.findall(r"\]\((?!https?://|#)((?:[^()]|\([^()]*\))+)\)", prose):
        name, _, heading = link.partition("#")
        assert name in copies.find_originals(), "a link that leads nowhere from a learner's folder"
        if heading:
            cells = nbformat.read(copies.find_originals()[name], as_version=4).cells
            headings = [cell.source.partition("\n")[0].removeprefix("## ") for cell in cells]
            assert heading in [text.replace(" ", "-") for text in headings], link


def test_copies_are_made_once_and_then_left_alone(course: Path, mine: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in mine.iterdir()}
    assert set(before) == {"00_start.ipynb", "01_next.ipynb"}
    assert copies.update_copies(mine) == []
    assert {path.name: path.stat().st_mtime_ns for path in mine.iterdir()} == before


def test_running_and_saving_does_not_count_as_an_edit(course: Path, mine: Path) -> None:
    change(mine / "00_start.ipynb", run=True)
    assert not copies.is_edited(nbformat.read(mine / "00_start.ipynb", as_version=4))
    change(mine / "00_start.ipynb", "x = 2")
    assert copies.is_edited(nbformat.read(mine / "00_start.ipynb", as_version=4))


@pytest.mark.parametrize("cell", [0, 1, 2])
def test_an_edited_copy_is_kept_and_the_newer_version_named(course: Path, mine: Path, cell: int) -> None:
    edited = change(mine / "01_next.ipynb", "my work", cell=cell)
    change(course / "01_next.ipynb", "x = 3")
    (message,) = copies.update_copies(mine)
    assert "01_next.ipynb has a newer version" in message
    assert message.endswith("gpulab reset 01")
    assert (mine / "01_next.ipynb").read_bytes() == edited
    assert copies.update_copies(mine) == [message]
    copies.reset_copies(mine, ["01"])
    assert "x = 3" in (mine / "01_next.ipynb").read_text()
    assert [path.read_bytes() for path in (mine / "earlier").iterdir()] == [edited]
    assert copies.update_copies(mine) == []


def test_unedited_copy_is_updated_and_its_outputs_are_kept(course: Path, mine: Path) -> None:
    change(course / "00_start.ipynb", "x = 3")
    change(course / "01_next.ipynb", "x = 4")
    content = change(mine / "01_next.ipynb", run=True)
    messages = copies.update_copies(mine)
    assert [line.split(".ipynb")[0] for line in messages] == ["00_start", "01_next"]
    assert "x = 3" in (mine / "00_start.ipynb").read_text()
    assert "x = 4" in (mine / "01_next.ipynb").read_text()
    assert [path.read_bytes() for path in (mine / "earlier").iterdir()] == [content]


def test_new_and_deleted_notebooks_are_copied(course: Path, mine: Path) -> None:
    nbformat.write(notebook("y = 1"), course / "02_more.ipynb")
    (mine / "00_start.ipynb").unlink()
    assert copies.update_copies(mine) == ["00_start.ipynb is new.", "02_more.ipynb is new."]


@pytest.mark.parametrize("edit", [None, "my work"])
def test_a_renamed_notebook_is_never_lost(course: Path, mine: Path, edit: str | None) -> None:
    (course / "01_next.ipynb").rename(course / "01_renamed.ipynb")
    (course / "00_start.ipynb").rename(course / "07_start.ipynb")
    before = change(mine / "01_next.ipynb", edit)
    messages = "\n".join(copies.update_copies(mine))
    for text in (
        "01_renamed.ipynb is new.",
        "01_next.ipynb became 01_renamed.ipynb.",
        "00_start.ipynb is no longer",
    ):
        assert text in messages
    (copy,) = [*mine.glob("01_next.ipynb"), *mine.glob("earlier/01_next*")]
    assert copy.read_bytes() == before
    assert (copy.parent == mine) is (edit is not None)


def test_a_notebook_that_was_split_becomes_both_halves(course: Path, mine: Path) -> None:
    original = (course / "01_next.ipynb").read_bytes()
    (course / "01_next.ipynb").unlink()
    names = ["01a_first.ipynb", "01b_second.ipynb"]
    for name in names:
        (course / name).write_bytes(original)
    assert copies.update_copies(mine)[:2] == [f"{name} is new." for name in names]
    assert sorted(path.name for path in mine.glob("*.ipynb")) == ["00_start.ipynb", *names]


def test_learners_own_notebooks_are_not_touched(course: Path, mine: Path) -> None:
    nbformat.write(notebook("mine"), mine / "09_mine.ipynb")
    (mine / "01_next.ipynb").rename(mine / "01_renamed_by_me.ipynb")
    before = {path: path.read_bytes() for path in (mine / "09_mine.ipynb", mine / "01_renamed_by_me.ipynb")}
    assert copies.update_copies(mine) == ["01_next.ipynb is new."]
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b'{"cells": 3}', b"[" * 100_000])
def test_a_damaged_copy_is_named_kept_and_can_be_reset(course: Path, mine: Path, content: bytes) -> None:
    (mine / "00_start.ipynb").write_bytes(content)
    (message,) = copies.update_copies(mine)
    assert "00_start.ipynb cannot be read" in message
    assert (mine / "00_start.ipynb").read_bytes() == content
    copies.reset_copies(mine, ["00"])
    assert [path.read_bytes() for path in (mine / "earlier").iterdir()] == [content]


@pytest.mark.parametrize("note", ["evil", 3, None, ["a"], {"made_from": ["a"]}])
def test_strange_metadata_of_one_copy_does_not_affect_the_others(course: Path, mine: Path, note: Any) -> None:
    damaged = nbformat.read(mine / "00_start.ipynb", 4)
    damaged.metadata["gpulab"] = note
    nbformat.write(damaged, mine / "00_start.ipynb")
    (mine / "01_next.ipynb").unlink()
    messages = copies.update_copies(mine)
    assert "01_next.ipynb is new." in messages
    assert any(text.startswith("00_start.ipynb has a newer version") for text in messages)


def test_repeated_resets_keep_every_earlier_copy(course: Path, mine: Path) -> None:
    for number in range(4):
        change(mine / "00_start.ipynb", f"number {number}")
        copies.reset_copies(mine, ["0"])
    text = "".join(path.read_text() for path in (mine / "earlier").iterdir())
    assert all(f"number {number}" in text for number in range(4))


def test_reset_with_an_unknown_name_changes_nothing(course: Path, mine: Path) -> None:
    edited = change(mine / "00_start.ipynb", "my work")
    with pytest.raises(copies.CopyError, match=r"'07'.*00_start"):
        copies.reset_copies(mine, ["00", "07"])
    with pytest.raises(copies.CopyError, match="starts with ''"):
        copies.reset_copies(mine, [""])
    assert (mine / "00_start.ipynb").read_bytes() == edited


def test_folders_that_cannot_be_written_are_named(course: Path, mine: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(copies.CopyError, match=r"cannot be written.*--folder"):
        copies.update_copies(tmp_path / "file" / "gpulab-course")
    change(mine / "00_start.ipynb", "my work")
    (mine / "earlier").write_text("")
    with pytest.raises(copies.CopyError, match=r"earlier cannot be written"):
        copies.reset_copies(mine, ["00"])


def test_default_folder_of_the_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "gpulab").mkdir(parents=True)
    (checkout / "notebooks").mkdir()
    (checkout / "pyproject.toml").write_text("")
    monkeypatch.setattr(copies, "_PACKAGE_FOLDER", checkout / "gpulab")
    elsewhere = tmp_path / "elsewhere"
    for folder, expected in [
        (elsewhere, elsewhere / "gpulab-course"),
        (elsewhere / "gpulab-course", elsewhere / "gpulab-course"),
        (checkout, checkout / "gpulab-course"),
        (checkout / "notebooks", checkout / "gpulab-course"),
    ]:
        folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(folder)
        assert copies.find_default_folder() == expected


def test_git_ignores_the_copies_of_a_checkout() -> None:
    process = subprocess.run(["git", "check-ignore", "-q", "gpulab-course/00_x.ipynb"], cwd=ROOT)
    if process.returncode == 128:
        pytest.skip("needs a git checkout")
    assert process.returncode == 0


def test_copy_and_reset_commands(course: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my course"
    assert cli.main(["copy", "--folder", str(folder)]) == 0
    assert "my course" in capsys.readouterr().err
    change(folder / "00_start.ipynb", "my work")
    assert cli.main(["reset", "00", "--folder", str(folder)]) == 0
    assert "earlier" in capsys.readouterr().err
    assert cli.main(["reset", "9", "--folder", str(folder)]) == 1
    assert capsys.readouterr().err.startswith("gpulab: No notebook's name starts with '9'")
