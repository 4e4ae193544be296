"""Public names that are loaded at first use: those of this package, and those of an installed course."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# The group of entry points in which a course declares its functions.
ENTRY_POINT_GROUP = "gpulab.course"
# The functions of this course, which `gpulab_course.api` has.
COURSE_FUNCTIONS = ("check", "interview", "names", "predict", "progress", "quiz", "reveal")
_COURSE_PACKAGE = "gpulab_course"


def load_attribute(module_name: str, name: str) -> Any:
    """Return the object `name`, which is an attribute or a submodule of the module `module_name`."""
    module = import_module(module_name)
    return getattr(module, name) if hasattr(module, name) else import_module(f"{module_name}.{name}")


def find_course_functions() -> dict[str, EntryPoint]:
    """Return a dictionary of the functions of the installed course, by name.

    If the course is not installed but on the import path, its package is found by its name.
    """
    from importlib.metadata import EntryPoint, entry_points

    course_entry_points = [*entry_points(group=ENTRY_POINT_GROUP)]
    if not course_entry_points:
        course_entry_points = [
            EntryPoint(name, f"{_COURSE_PACKAGE}.api:{name}", ENTRY_POINT_GROUP) for name in COURSE_FUNCTIONS
        ]
    return {
        entry_point.name: entry_point
        for entry_point in course_entry_points
        if find_spec(entry_point.module.partition(".")[0])
    }


def make_missing_message(name: str) -> str:
    """Return a message if `name` is a function of a course that is not installed, or an empty string
    otherwise.
    """
    if name not in COURSE_FUNCTIONS:
        return ""
    return (
        f"gl.{name} is a function of the course. It needs the package gpulab-course, "
        "which is not installed here: pip install gpulab-course"
    )
