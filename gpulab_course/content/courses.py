"""Courses of fixed lengths, which use a selection of the notebooks' cells.

`courses.toml` lists the sessions of each course. A session lists sections and exercises for class, homework,
and breaks. If a cell uses a name that is defined in a cell outside the selection, that cell is added as
preparation: it is run, but not discussed.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
import symtable
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpulab_course.content.cells import CHECK_CALL_PATTERN, split_sections
from virtualgpu.errors import GpulabError

_COURSE_TABLE = Path(__file__).with_name("courses.toml")
_MAGIC_PATTERN = re.compile(r"^\s*[%!].*$", re.MULTILINE)
_OPENING_MINUTES_PATTERN = re.compile(r"\*\*\d+ minutes[^*]*\*\*")
_HEADING_MINUTES_PATTERN = re.compile(r"^(## .*) \(\d+ min\)$", re.MULTILINE)
_LINK_PATTERN = re.compile(r"\]\((?=[\w-]+\.ipynb)")
_SOLUTION_PATTERN = re.compile(r"<details><summary>Solution of .*?</details>\s*", re.DOTALL)
_PREPARATION_COMMENT = "# Preparation for later cells: run this cell and go on.\n"


class CourseError(GpulabError):
    """Error for a course that does not exist. The message lists all courses."""


@dataclass(frozen=True)
class SessionPart:
    """A part of a session, which is either a break or some sections and exercises of one notebook.

    Attributes
    ----------
    notebook : str
        The notebook's number, such as ``"05a"``; empty for a break.
    sections : tuple of str
        The numbers of its sections, or headings without a number, such as ``"Questions"``.
    without : tuple of str
        The ids of cells of these sections that are left out.
    exercises, home : tuple of str
        The exercises that are solved in class, and those for home.
    title : str
        The name of a break or of a preparation.
    minutes : int
        The length of a break in minutes; 0 for parts whose minutes are computed.
    """

    notebook: str = ""
    sections: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    exercises: tuple[str, ...] = ()
    home: tuple[str, ...] = ()
    title: str = ""
    minutes: int = 0


@dataclass(frozen=True)
class CourseSession:
    """A session of a course, with its title, its length in minutes and its parts."""

    title: str
    length_min: int
    parts: tuple[SessionPart, ...]


@dataclass(frozen=True)
class Course:
    """A course, with its name in commands, its title, its aim in one sentence, and its sessions."""

    name: str
    title: str
    aim: str
    sessions: tuple[CourseSession, ...]

    def find_parts(self, notebook: str) -> list[SessionPart]:
        """Return the parts of all sessions that use the notebook with this number, such as ``"05a"``."""
        return [part for session in self.sessions for part in session.parts if part.notebook == notebook]

    @property
    def notebooks(self) -> list[str]:
        """The numbers of the notebooks that the course uses, in the order of the course."""
        parts = [part for session in self.sessions for part in session.parts]
        return list(dict.fromkeys(part.notebook for part in parts if part.notebook))


@lru_cache(1)
def read_courses() -> dict[str, Course]:
    """Return all courses by name."""
    course_table = tomllib.loads(_COURSE_TABLE.read_text(encoding="utf-8"))
    return {name: _read_course(name, course_entry) for name, course_entry in course_table.items()}


def find_course(name: str) -> Course:
    """Return the course with this name.

    Raises
    ------
    CourseError
        If there is no such course.
    """
    if name not in read_courses():
        raise CourseError(f"There is no course {name!r}. The courses are {', '.join(read_courses())}.")
    return read_courses()[name]


def _read_part(part_entry: Mapping[str, Any]) -> SessionPart:
    part_fields: dict[str, Any] = dict(part_entry)
    for key, value in part_entry.items():
        if isinstance(value, list):
            part_fields[key] = tuple(value)
    return SessionPart(**part_fields)


def _read_course(name: str, course_entry: Mapping[str, Any]) -> Course:
    sessions = (
        CourseSession(
            session["title"], session["length_min"], tuple(_read_part(part) for part in session["parts"])
        )
        for session in course_entry["sessions"]
    )
    return Course(name, course_entry["title"], course_entry["aim"], tuple(sessions))


def find_chosen_ids(cells: Sequence[Any], part: SessionPart) -> set[str]:
    """Return the ids of the cells in the sections and exercises of a part of a session.

    Raises
    ------
    ValueError
        If the part names a section, an exercise or a cell that the notebook does not have.
    """
    chosen_ids: set[str] = set()
    known_names: set[str] = set()
    for section in split_sections(cells):
        exercises = dict(_find_exercises(section.cells))
        if section.number in part.sections or section.title in part.sections:
            known_names |= {section.number, section.title}
            chosen_ids |= {cell["id"] for cell in section.cells}
            chosen_ids -= {cell_id for cell_ids in exercises.values() for cell_id in cell_ids}
        for exercise in exercises.keys() & {*part.exercises}:
            known_names.add(exercise)
            chosen_ids |= exercises[exercise]
        known_names |= exercises.keys() & {*part.home}
    all_ids = {cell["id"] for cell in cells}
    unknown_names = {*part.sections, *part.exercises, *part.home} - known_names | {*part.without} - all_ids
    if unknown_names:
        raise ValueError(f"notebook {part.notebook} has no {', '.join(sorted(unknown_names))}")
    return chosen_ids - {*part.without}


def find_opening_ids(cells: Sequence[Any]) -> set[str]:
    """Return the ids of the cells before the first numbered section of a notebook."""
    cell_ids: set[str] = set()
    for section in split_sections(cells):
        if section.number.isdigit():
            break
        cell_ids |= {cell["id"] for cell in section.cells}
    return cell_ids


def _find_exercises(cells: Sequence[Any]) -> Iterator[tuple[str, set[str]]]:
    """Yield the exercises of a section: the name, and the ids of the cells that belong to it."""
    for index, cell in enumerate(cells):
        check_match = CHECK_CALL_PATTERN.search(cell["source"]) if cell["cell_type"] == "code" else None
        if not check_match:
            continue
        cell_ids = {cell["id"]}
        if index and cells[index - 1]["source"].startswith("### "):
            cell_ids.add(cells[index - 1]["id"])
        if "<summary>Solution of" in "".join(
            next_cell["source"] for next_cell in cells[index + 1 : index + 2]
        ):
            cell_ids.add(cells[index + 1]["id"])
        yield check_match["id"], cell_ids


def find_preparation_ids(cells: Sequence[Any], chosen_ids: set[str]) -> set[str]:
    """Return the ids of all other code cells that define names which the chosen cells use.

    Raises
    ------
    ValueError
        If a chosen cell uses the answer to an exercise that is not chosen.

    Examples
    --------
    >>> cell = {"cell_type": "code"}
    >>> cells = [cell | {"id": "a", "source": "x = 1"}, cell | {"id": "b", "source": "print(x)"}]
    >>> find_preparation_ids(cells, {"b"})
    {'a'}
    """
    definers_by_cell: list[dict[str, str]] = []  # for each cell: the last cell before it that defines a name
    last_definers: dict[str, str] = {}
    for cell in cells:
        definers_by_cell.append(dict(last_definers))
        if cell["cell_type"] == "code":
            last_definers |= dict.fromkeys(_find_cell_names(cell["source"])[0], cell["id"])
    needed_ids: set[str] = set()
    for cell, definer_of_name in reversed([*zip(cells, definers_by_cell, strict=True)]):
        if cell["cell_type"] == "code" and cell["id"] in chosen_ids | needed_ids:
            needed_ids |= {
                definer_of_name[name]
                for name in _find_cell_names(cell["source"])[1]
                if name in definer_of_name
            }
    answer_ids = {
        cell["id"]
        for cell in cells
        if cell["id"] in needed_ids - chosen_ids and CHECK_CALL_PATTERN.search(cell["source"])
    }
    if answer_ids:
        raise ValueError(f"the chosen cells need answers to the exercises in {', '.join(sorted(answer_ids))}")
    return needed_ids - chosen_ids


@lru_cache(4096)
def _find_cell_names(source: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a cell defines at its top level, and the global names that the cell uses."""
    code_without_magics = _MAGIC_PATTERN.sub("", source)
    defined_names: set[str] = set()
    used_names: set[str] = set()
    symbol_tables = [symtable.symtable(code_without_magics, "<cell>", "exec")]
    while symbol_tables:
        symbol_table = symbol_tables.pop()
        symbol_tables += symbol_table.get_children()
        for symbol in symbol_table.get_symbols():
            is_global = symbol_table.get_type() == "module" or symbol.is_global()
            if is_global and symbol.is_referenced() and not hasattr(builtins, symbol.get_name()):
                used_names.add(symbol.get_name())
            if is_global and (symbol.is_assigned() or symbol.is_imported()):
                defined_names.add(symbol.get_name())
    # A cell that assigns a name before it reads it needs no other cell for it.
    return frozenset(defined_names), frozenset(used_names - _find_names_assigned_first(code_without_magics))


def _find_names_assigned_first(code: str) -> set[str]:
    """Return the global names that a cell assigns before it reads them."""
    read_names: set[str] = set()
    assigned_names: set[str] = set()
    for statement in ast.parse(code).body:
        name_nodes = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
        read_names |= {node.id for node in name_nodes if isinstance(node.ctx, ast.Load)} - assigned_names
        target_names: set[str] = set()
        if isinstance(statement, ast.Import | ast.ImportFrom):
            target_names = {
                (import_alias.asname or import_alias.name).partition(".")[0]
                for import_alias in statement.names
            }
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            target_names = {statement.name}
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.For | ast.With):
            target_names = {node.id for node in name_nodes if isinstance(node.ctx, ast.Store)}
        assigned_names |= target_names - read_names
    return assigned_names


def reduce_notebook(notebook: Any, number: str, course: Course, *, solutions: bool = True) -> Any:
    """Return a copy of a notebook that contains only the cells that a course uses.

    Parameters
    ----------
    notebook : dict
        The JSON of the whole notebook, with cells whose sources are strings.
    number : str
        The number of the notebook, such as ``"05a"``.
    course : Course
        The course.
    solutions : bool
        Whether the notebook contains the solutions of the exercises.
    """
    cells = notebook["cells"]
    parts = course.find_parts(number)
    selected_ids = find_opening_ids(cells).union(*(find_chosen_ids(cells, part) for part in parts))
    homework_names = {name for part in parts for name in part.home}
    homework_ids = {
        cell_id
        for name, exercise_cell_ids in _find_exercises(cells)
        if name in homework_names
        for cell_id in exercise_cell_ids
    }
    preparation_ids = find_preparation_ids(cells, selected_ids) | find_preparation_ids(
        cells, selected_ids | homework_ids
    )
    kept_cells = []
    for cell in cells:
        if cell["id"] in selected_ids | preparation_ids:
            cell = copy.deepcopy(cell)
            if cell["id"] in preparation_ids:
                cell["source"] = _PREPARATION_COMMENT + cell["source"]
                cell["metadata"]["jupyter"] = {"source_hidden": True}
            kept_cells.append(cell)
    if homework_ids:
        kept_cells.append({"cell_type": "markdown", "id": "home", "metadata": {}, "source": "## Homework"})
        kept_cells += [copy.deepcopy(cell) for cell in cells if cell["id"] in homework_ids]
    for cell in kept_cells:
        if cell["cell_type"] == "markdown":
            cell["source"] = _adapt_text(cell["source"], course, solutions=solutions)
    return notebook | {"cells": kept_cells}


def _adapt_text(text: str, course: Course, *, solutions: bool) -> str:
    """Return a cell's text with the minutes of the whole notebook removed and links adapted to the course."""
    opening_text = f"**These are the sections that the course “{course.title}” uses.**"
    text = _OPENING_MINUTES_PATTERN.sub(opening_text, text, count=1)
    text = _HEADING_MINUTES_PATTERN.sub(r"\1", text)
    text = _LINK_PATTERN.sub("](../", text)
    return text if solutions else _SOLUTION_PATTERN.sub("", text).strip()
