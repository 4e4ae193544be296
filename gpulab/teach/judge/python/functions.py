"""What judges of Python functions share: a call, spelled out in messages."""

from __future__ import annotations

from typing import Any

from gpulab.teach.judge.exercise import NotYet


def unexpected(error: BaseException) -> str:
    """What an answer raised, in a few words."""
    text = str(error).strip().splitlines() if error.args != (None,) else []
    return f"it raised {type(error).__name__}" + (f": {text[0]}" if text else ".")


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
    return f"{name}({', '.join(repr(argument) for argument in args)})"
