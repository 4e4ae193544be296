"""Error for a process that did not return a value, and texts that describe the reason."""

from __future__ import annotations

import reprlib
from typing import Any

_MAX_MESSAGE_LENGTH = 200


class ProcessError(Exception):
    """Error for a process that did not return a value. The message begins with "it", such as "it raised
    ValueError".
    """


def short_repr(value: Any) -> str:
    """Return the repr of a value, shortened to one line. If repr fails, return the name of the type."""
    shortener = reprlib.Repr()
    shortener.maxstring = shortener.maxother = shortener.maxlong = 60
    try:
        return " ".join(shortener.repr(value).split())
    except BaseException:  # a value's repr may do anything
        return f"a value of type {type(value).__name__}"


def describe_error(error: BaseException) -> str:
    """Return a short sentence for an exception, such as "it raised ValueError: too small"."""
    try:
        error_text = str(error).strip() if error.args != (None,) else ""
    except BaseException:  # the program may define the text of its errors
        error_text = ""
    first_line = error_text.splitlines()[0][:_MAX_MESSAGE_LENGTH] if error_text else ""
    return f"it raised {type(error).__name__}" + (f": {first_line}" if first_line else ".")


def describe_exit(error: SystemExit) -> str:
    """Return a sentence about a program that called ``exit()``."""
    return f"it calls exit({'' if error.code is None else short_repr(error.code)}), which would end Python."
