"""A learner's working copies of the notebooks: made without outputs, kept up to date, never overwritten.

The course's notebooks lie in a checkout or in the installed package and stay as they are. ``gpulab lab``
opens copies, in which no answer stands below its question. A copy notes in its metadata what it was made
from: where its text still is that, nothing was edited, and a newer version may take its place.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from virtualgpu.errors import GpulabError

FOLDER = "gpulab-course"
EARLIER = "earlier"
_FORMAT = 4
_PACKAGE = Path(__file__).parent.parent


class CopyError(GpulabError):
    """Copies that cannot be made; the message says what to do instead."""


def originals() -> dict[str, Path]:
    """The course's notebooks by file name, in order: the installed package's or this checkout's.

    Raises
    ------
    CopyError
        If there are none.
    """
    for place in (_PACKAGE / "notebooks", _PACKAGE.parent / "notebooks"):
        found = sorted(place.glob("[0-9][0-9]*_*.ipynb"))
        found += place.glob("glossary.ipynb")
        if found:
            return {path.name: path for path in found}
    raise CopyError("This installation has no notebooks. Install gpulab again, or run it in a checkout.")


def folder_here() -> Path:
    """Return the folder of the copies: ``gpulab-course`` in this checkout, or else in the current folder."""
    here = Path.cwd()
    checkout = _PACKAGE.parent
    if here.name == FOLDER:
        return here
    inside = (checkout / "pyproject.toml").is_file() and here.is_relative_to(checkout)
    return (checkout if inside else here) / FOLDER


def update(folder: Path) -> list[str]:
    """Add the notebooks that `folder` lacks and renew those that were not edited.

    Returns
    -------
    list of str
        What was done and what is newer, in sentences.

    Raises
    ------
    CopyError
        If the folder cannot be written.
    """
    course = originals()
    said = [] if folder.exists() else [f"The course is now in {folder}: notebooks of your own to change."]
    first = bool(said)
    with _writing(folder):
        for name, path in course.items():
            mine = folder / name
            fresh = as_copy(path)
            if not mine.exists():
                _write(fresh, mine)
                said += [] if first else [f"{name} is new."]
                continue
            old = _read(mine)
            if old is not None and _note(old).get("made_from") == _note(fresh)["made_from"]:
                continue
            if old is None or is_edited(old):
                what = (
                    "cannot be read" if old is None else "has a newer version; yours has changes and was kept"
                )
                said.append(f"{name} {what}. Begin it anew, keeping yours: gpulab reset {name.split('_')[0]}")
                continue
            kept = f" What you ran is {_keep(mine)}." if _has_run(old) else ""
            _write(fresh, mine)
            said.append(f"{name} has been replaced by a newer version; you had changed nothing in it.{kept}")
        for mine in sorted(folder.glob("*.ipynb")):
            # A copy under the name it was given: what learners make or rename themselves is none.
            old = None if mine.name in course else _read(mine)
            if old is not None and _note(old).get("name") == mine.name:
                where = "has changes and was kept" if is_edited(old) else f"is {_keep(mine)} now"
                heirs = " and ".join(name for name in course if name[:2] == mine.name[:2])
                became = f"became {heirs}" if heirs else "is no longer in the course"
                said.append(f"{mine.name} {became}. Yours {where}.")
    return said


def reset(folder: Path, prefixes: Sequence[str]) -> list[str]:
    """Begin the notebooks whose names start with one of `prefixes` anew; the old ones go to ``earlier/``.

    Returns
    -------
    list of str
        What was done, in sentences.

    Raises
    ------
    CopyError
        If no notebook's name starts so, or the folder cannot be written.
    """
    course = originals()
    for prefix in prefixes:
        if not prefix or not any(name.startswith(prefix) for name in course):
            raise CopyError(f"No notebook's name starts with {prefix!r}. There are {', '.join(course)}.")
    said = []
    with _writing(folder):
        for name, path in course.items():
            if name.startswith(tuple(prefixes)):
                mine = folder / name
                kept = f" Yours is {_keep(mine)} now." if mine.exists() else ""
                _write(as_copy(path), mine)
                said.append(f"{mine} is as new.{kept}")
    return [*said, "If one is open in JupyterLab, choose File > Reload Notebook from Disk there."]


def as_copy(path: Path) -> Any:
    """The notebook at `path` as learners get it, as JSON: without outputs."""
    notebook = _loaded(path)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    notebook["metadata"]["gpulab"] = {"name": path.name, "made_from": _text_of(notebook)}
    return notebook


def _loaded(path: Path) -> Any:
    # nbformat would do; it takes over a second of each start of JupyterLab to be imported.
    notebook = json.loads(path.read_text(encoding="utf-8"))
    if notebook["nbformat"] != _FORMAT:
        raise ValueError(f"{path} has format {notebook['nbformat']}")
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])  # one text, or its lines
    return notebook


def is_edited(notebook: Any) -> bool:
    """Return whether a copy's cells differ from the ones that were written into it."""
    return bool(_note(notebook).get("made_from") != _text_of(notebook))


def _text_of(notebook: Any) -> str:
    # JupyterLab adds an empty cell when the last one is run: that is no edit.
    texts = [(cell["cell_type"], cell["source"]) for cell in notebook["cells"]]
    cells = [f"{kind}\0{source}" for kind, source in texts if source.strip()]
    return hashlib.sha256("\0\0".join(cells).encode()).hexdigest()[:16]


def _note(notebook: Any) -> dict[str, str]:
    note = notebook["metadata"].get("gpulab")
    return dict(note) if isinstance(note, dict) else {}


def _has_run(notebook: Any) -> bool:
    return any(cell.get("outputs") for cell in notebook["cells"])


def _read(path: Path) -> Any | None:
    """A learner's notebook; None where it is damaged."""
    try:
        notebook = _loaded(path)
        _note(notebook), _text_of(notebook), _has_run(notebook)
        return notebook
    except Exception:  # whatever is wrong with it: one damaged file must not lock the rest
        return None


def _write(notebook: Any, path: Path) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        cells = [cell | {"source": cell["source"].splitlines(True)} for cell in notebook["cells"]]
        text = json.dumps(notebook | {"cells": cells}, ensure_ascii=False, indent=1, sort_keys=True)
        unfinished.write_text(text + "\n", encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _keep(path: Path) -> Path:
    """Move a learner's notebook to ``earlier/``, with the time in its name; returns the place."""
    folder = path.parent / EARLIER
    folder.mkdir(exist_ok=True)
    stem = f"{path.stem}_{time.strftime('%Y-%m-%d_%H%M%S')}"
    taken = {entry.stem for entry in folder.iterdir()}
    number = 1
    while (name := stem if number == 1 else f"{stem}_{number}") in taken:
        number += 1
    return path.rename(folder / f"{name}.ipynb").relative_to(path.parent)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        place = error.filename or folder
        raise CopyError(
            f"{place} cannot be written ({error.strerror or error}). Name a folder of your own: "
            f"gpulab lab --folder ~/{FOLDER}"
        ) from None
