"""What judges of Python functions share: a call, spelled out in messages."""

from __future__ import annotations

import reprlib
from typing import Any

from gpulab.teach.judge.exercise import NotYet

_LONGEST = 200


def spelt(value: Any) -> str:
    """A value in a message: its repr, shortened, on one line; a value whose repr fails by its type."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = 60
    try:
        return " ".join(short.repr(value).split())
    except Exception:
        return f"a value of type {type(value).__name__}"


def unexpected(error: BaseException) -> str:
    """What an answer raised, in a few words."""
    try:
        text = str(error).strip() if error.args != (None,) else ""
    except Exception:
        text = ""
    first = text.splitlines()[0][:_LONGEST] if text else ""
    return f"it raised {type(error).__name__}" + (f": {first}" if first else ".")


def call(function: Any, *args: Any, name: str, shown: str = "") -> Any:
    """Call a learner's function; what it raises becomes `NotYet` with the call spelled out.

    `shown` is how the call is written in messages, where its arguments would be too long.

    Raises
    ------
    NotYet
        If `function` is not callable, raises, or still returns None.
    """
    shown = shown or spell(name, args)
    if not callable(function):
        raise NotYet(
            f"{name} should be a function, not {type(function).__name__}; pass it without calling it."
        )
    try:
        result = function(*args)
    except Exception as error:
        raise NotYet(f"{shown} raised {unexpected(error).removeprefix('it raised ')}") from error
    if result is None or result is ...:
        raise NotYet(f"{shown} returns nothing; replace the TODO and end with a return.")
    return result


def spell(name: str, args: tuple[Any, ...]) -> str:
    """A call as the learner would write it."""
    return f"{name}({', '.join(map(spelt, args))})"
