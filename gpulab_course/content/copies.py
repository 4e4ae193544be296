"""A learner's working copies of the notebooks: created without outputs, updated, and never overwritten.

The course's notebooks are in a checkout or in the installed package and stay unchanged. ``gpulab lab``
opens copies without outputs, so that no answer appears below its question. The metadata of a copy contain a
hash of the cells that were written into it. If the cells still have this hash, the learner has edited
nothing, and a newer version can replace the copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpulab_course.content.courses import Course, reduce_notebook
from virtualgpu.errors import GpulabError

COPIES_FOLDER = "gpulab-course"
EARLIER_COPIES_FOLDER = "earlier"
_NOTEBOOK_FORMAT = 4
_PACKAGE_FOLDER = Path(__file__).parent.parent


class CopyError(GpulabError):
    """Error for notebook copies that cannot be created. The message tells the user what to do instead."""


def find_originals() -> dict[str, Path]:
    """Return the paths of the course's original notebooks by file name, in the order of the course.

    Raises
    ------
    CopyError
        If there are no notebooks.
    """
    for folder in (_PACKAGE_FOLDER / "notebooks", _PACKAGE_FOLDER.parent / "notebooks"):
        paths = sorted(folder.glob("[0-9][0-9]*_*.ipynb"))
        paths += folder.glob("glossary.ipynb")
        if paths:
            return {path.name: path for path in paths}
    raise CopyError("This installation has no notebooks. Install gpulab again, or run it in a checkout.")


def find_default_folder() -> Path:
    """Return the default folder for copies of notebooks, ``gpulab-course``, in this checkout or the current
    folder.
    """
    current_folder = Path.cwd()
    checkout_folder = _PACKAGE_FOLDER.parent
    if current_folder.name == COPIES_FOLDER:
        return current_folder
    is_in_checkout = (checkout_folder / "pyproject.toml").is_file() and current_folder.is_relative_to(
        checkout_folder
    )
    return (checkout_folder if is_in_checkout else current_folder) / COPIES_FOLDER


def update_copies(folder: Path, course: Course | None = None, *, solutions: bool = True) -> list[str]:
    """Add missing notebooks to `folder`, and replace outdated copies that the learner has not edited.

    Parameters
    ----------
    folder : Path
        The folder of the copies.
    course : Course, optional
        A course; then only the cells that it uses are copied.
    solutions : bool
        Whether a course's copies contain the solutions of the exercises.

    Returns
    -------
    list of str
        Sentences about the notebooks that were added, replaced, or kept although a newer version exists.

    Raises
    ------
    CopyError
        If the folder cannot be written.
    """
    notebooks = find_originals()
    if course is not None:
        notebooks = {name: notebooks[name] for name in _list_course_notebooks(course, notebooks)}
    messages = (
        []
        if folder.exists()
        else [f"The course is now in {folder}. These notebooks are your own copies, and you can change them."]
    )
    is_new_folder = bool(messages)
    with _make_folder_writable(folder):
        for name, path in notebooks.items():
            copy_path = folder / name
            new_notebook = make_copy(path, course, solutions=solutions)
            if not copy_path.exists():
                _write_copy(new_notebook, copy_path)
                messages += [] if is_new_folder else [f"{name} is new."]
                continue
            old_notebook = _read_copy(copy_path)
            new_hash = _read_copy_metadata(new_notebook)["made_from"]
            if old_notebook is not None and _read_copy_metadata(old_notebook).get("made_from") == new_hash:
                continue
            if old_notebook is None or is_edited(old_notebook):
                problem_text = (
                    "cannot be read"
                    if old_notebook is None
                    else "has a newer version, but you changed your copy, so your copy was kept"
                )
                messages.append(
                    f"{name} {problem_text}. To start it again and keep your copy, run: gpulab reset "
                    f"{name.split('_')[0]}"
                )
                continue
            previous_copy_note = (
                f"The copy that you ran is {_move_to_earlier(copy_path)}."
                if _has_outputs(old_notebook)
                else ""
            )
            _write_copy(new_notebook, copy_path)
            messages.append(
                f"{name} was replaced by a newer version, because you had not changed it.{previous_copy_note}"
            )
        for copy_path in sorted(folder.glob("*.ipynb")):
            # Only copies that still have their original name; learners' own or renamed notebooks stay.
            old_notebook = None if copy_path.name in notebooks else _read_copy(copy_path)
            if old_notebook is not None and _read_copy_metadata(old_notebook).get("name") == copy_path.name:
                outcome_text = (
                    "has changes, so it was kept"
                    if is_edited(old_notebook)
                    else f"is now {_move_to_earlier(copy_path)}"
                )
                successor_names = " and ".join(name for name in notebooks if name[:2] == copy_path.name[:2])
                change_text = f"became {successor_names}" if successor_names else "is no longer in the course"
                messages.append(f"{copy_path.name} {change_text}. Your copy {outcome_text}.")
    return messages


def reset_copies(folder: Path, name_prefixes: Sequence[str]) -> list[str]:
    """Replace the copies whose names start with one of `name_prefixes`. The old copies move to the folder
    ``earlier/``.

    Returns
    -------
    list of str
        Sentences about the notebooks that were replaced.

    Raises
    ------
    CopyError
        If a prefix matches no notebook, or the folder cannot be written.
    """
    notebooks = find_originals()
    for name_prefix in name_prefixes:
        if not name_prefix or not any(name.startswith(name_prefix) for name in notebooks):
            raise CopyError(
                f"No notebook's name starts with {name_prefix!r}. Notebooks: {', '.join(notebooks)}."
            )
    messages = []
    with _make_folder_writable(folder):
        for name, path in notebooks.items():
            if name.startswith(tuple(name_prefixes)):
                copy_path = folder / name
                previous_copy_note = (
                    f"Your copy is now {_move_to_earlier(copy_path)}." if copy_path.exists() else ""
                )
                _write_copy(make_copy(path), copy_path)
                messages.append(f"{copy_path} is a new copy of the course's notebook.{previous_copy_note}")
    return [*messages, "If one is open in JupyterLab, choose File > Reload Notebook from Disk there."]


def _list_course_notebooks(course: Course, notebooks: Mapping[str, Path]) -> list[str]:
    """Return the file names of the notebooks that a course uses, in the order of the course."""
    return [
        name
        for notebook_number in course.notebooks
        for name in notebooks
        if name.startswith(f"{notebook_number}_")
    ]


def make_copy(path: Path, course: Course | None = None, *, solutions: bool = True) -> Any:
    """Return the JSON of a learner's copy of a notebook, which contains no outputs.

    With a `course`, the copy contains only the cells that the course uses.
    """
    notebook = _load_notebook(path)
    if course is not None:
        notebook = reduce_notebook(notebook, path.name.partition("_")[0], course, solutions=solutions)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
            cell["execution_count"] = None
    notebook["metadata"]["gpulab"] = {"name": path.name, "made_from": _hash_cells(notebook)}
    return notebook


def _load_notebook(path: Path) -> Any:
    # Importing nbformat would add more than a second to each start of JupyterLab.
    notebook = json.loads(path.read_text(encoding="utf-8"))
    if notebook["nbformat"] != _NOTEBOOK_FORMAT:
        raise ValueError(f"{path} has format {notebook['nbformat']}")
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])  # a string or a list of lines
    return notebook


def is_edited(notebook: Any) -> bool:
    """Return whether the learner has changed the cells of a copied notebook."""
    return bool(_read_copy_metadata(notebook).get("made_from") != _hash_cells(notebook))


def _hash_cells(notebook: Any) -> str:
    # JupyterLab adds an empty cell when the last cell is run. This is not an edit.
    typed_sources = [(cell["cell_type"], cell["source"]) for cell in notebook["cells"]]
    cell_texts = [f"{cell_type}\0{source}" for cell_type, source in typed_sources if source.strip()]
    return hashlib.sha256("\0\0".join(cell_texts).encode()).hexdigest()[:16]


def _read_copy_metadata(notebook: Any) -> dict[str, str]:
    metadata = notebook["metadata"].get("gpulab")
    return dict(metadata) if isinstance(metadata, dict) else {}


def _has_outputs(notebook: Any) -> bool:
    return any(cell.get("outputs") for cell in notebook["cells"])


def _read_copy(path: Path) -> Any | None:
    """Return the JSON of a learner's notebook, or None if the file is damaged."""
    try:
        notebook = _load_notebook(path)
        _read_copy_metadata(notebook), _hash_cells(notebook), _has_outputs(notebook)
        return notebook
    except Exception:  # any error: one damaged file must not block the other notebooks
        return None


def _write_copy(notebook: Any, path: Path) -> None:
    temporary_path = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        cells = [cell | {"source": cell["source"].splitlines(True)} for cell in notebook["cells"]]
        notebook_json = json.dumps(notebook | {"cells": cells}, ensure_ascii=False, indent=1, sort_keys=True)
        temporary_path.write_text(notebook_json + "\n", encoding="utf-8")
        temporary_path.replace(path)
    finally:
        temporary_path.unlink(missing_ok=True)


def _move_to_earlier(path: Path) -> Path:
    """Move a notebook to ``earlier/``, add the time to its name, and return its new relative path."""
    folder = path.parent / EARLIER_COPIES_FOLDER
    folder.mkdir(exist_ok=True)
    file_stem = f"{path.stem}_{time.strftime('%Y-%m-%d_%H%M%S')}"
    used_stems = {earlier_path.stem for earlier_path in folder.iterdir()}
    candidate_stem = file_stem
    copy_number = 1
    while candidate_stem in used_stems:
        copy_number += 1
        candidate_stem = f"{file_stem}_{copy_number}"
    return path.rename(folder / f"{candidate_stem}.ipynb").relative_to(path.parent)


@contextlib.contextmanager
def _make_folder_writable(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        path = error.filename or folder
        raise CopyError(
            f"{path} cannot be written ({error.strerror or error}). Choose a folder in "
            f"which you can create files: gpulab lab --folder ~/{COPIES_FOLDER}"
        ) from None
