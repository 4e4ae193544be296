"""Tracebacks that hide the frames of packages, and restore them afterwards."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from virtualgpu.tracebacks import trim_tracebacks

PACKAGE = Path("/a/package")


def function(name: str, path: str, body: str = "return f()") -> Callable[..., Any]:
    """Return a function ``name(f)`` that seems to be in a file."""
    namespace: dict[str, Any] = {}
    exec(compile(f"def {name}(f=None):\n    {body}", path, "exec"), namespace)
    result: Callable[..., Any] = namespace[name]
    return result


learner = function("learner", "/tmp/ipykernel_1/2.py")
ours = function("ours", f"{PACKAGE}/inner.py")
callback = function("callback", "/tmp/ipykernel_1/3.py")
library = function("library", traceback.__file__)
cython = function("cython", "cupy/_core/raw.pyx")
raises = function("raises", f"{PACKAGE}/raises.py", "raise ValueError('why')")
catches = function(
    "catches",
    f"{PACKAGE}/catches.py",
    "try:\n        f()\n    except ValueError as error:\n        raise TypeError('more') from error",
)


def called(*functions: Callable[..., Any]) -> BaseException:
    """Return the error of functions that call each other."""

    call: Callable[..., Any] = functions[-1]
    for outer in reversed(functions[:-1]):
        call = functools.partial(outer, call)  # which has no frame of its own
    with pytest.raises((TypeError, ValueError)) as raised:
        call()
    return raised.value


def shown(error: BaseException) -> list[str]:
    file = Path(__file__).name
    frames = traceback.extract_tb(error.__traceback__)
    return [frame.name for frame in frames if Path(frame.filename).name != file]


@pytest.mark.parametrize(
    ("functions", "names"),
    [
        ((learner, ours, raises), ["learner"]),
        ((learner, ours, library, ours, raises), ["learner"]),
        ((learner, ours, cython, raises), ["learner"]),
        ((learner, library, ours, raises), ["learner", "library"]),
        ((learner, ours, callback, ours, raises), ["learner", "callback"]),
        ((learner, ours, library, callback, raises), ["learner", "callback"]),
    ],
)
def test_frames_of_packages_are_hidden(functions: tuple[Callable[..., Any], ...], names: list[str]) -> None:
    error = called(*functions)
    before = shown(error)
    with trim_tracebacks(error, [PACKAGE]) as shorter:
        assert shown(error) == names
        assert shorter
    assert shown(error) == before
    assert len(before) == len(functions)


@pytest.mark.parametrize(
    ("functions", "names"),
    [
        ((library, learner, library, ours, raises), ["library", "learner"]),
        ((library, ours, raises), []),  # this test is what called it
        ((learner, ours, callback, library, ours, library, raises), ["learner", "callback"]),
    ],
)
def test_frames_of_libraries_are_hidden_on_request(
    functions: tuple[Callable[..., Any], ...], names: list[str]
) -> None:
    error = called(*functions)
    with trim_tracebacks(error, [PACKAGE], trim_libraries=True):
        assert shown(error) == names


def test_the_cause_inside_packages_is_hidden_temporarily() -> None:
    error = called(learner, catches, raises)
    with trim_tracebacks(error, [PACKAGE]):
        assert "direct cause" not in "".join(traceback.format_exception(error))
    assert "direct cause" in "".join(traceback.format_exception(error))
    assert isinstance(error.__cause__, ValueError)


def test_the_cause_raised_by_the_program_stays_in_the_chain() -> None:
    wrong = function("wrong", "/tmp/ipykernel_1/4.py", "raise ValueError('mine')")
    error = called(learner, catches, wrong)
    with trim_tracebacks(error, [PACKAGE]):
        assert "direct cause" in "".join(traceback.format_exception(error))
        assert "mine" in "".join(traceback.format_exception(error))


def test_a_traceback_without_packages_is_unchanged() -> None:
    wrong = function("wrong", "/tmp/ipykernel_1/4.py", "raise ValueError('mine')")
    error = called(learner, library, wrong)
    with trim_tracebacks(error, [PACKAGE]) as shorter:
        assert not shorter
        assert shown(error) == ["learner", "library", "wrong"]
