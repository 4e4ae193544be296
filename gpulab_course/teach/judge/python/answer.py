"""An answer in its process, as the judge uses it: requests, and replies of plain data."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from gpulab.processes import child
from gpulab.processes.values import Other
from gpulab_course.teach.judge.draw import Draw
from gpulab_course.teach.judge.python.functions import must_be_a_function, must_return, spell


class Answer:
    """A function or value that lives in another process.

    What it is called with is sent anew each time; what comes back has been turned into exact types
    (`values`): numbers, texts, lists, tuples, dictionaries, arrays, and `values.Other` for all else.

    Parameters
    ----------
    asking
        ``asking(shown, function, *arguments)`` calls ``function(answer, *arguments)`` there; `shown` names
        the call in messages.
    seed
        What data are drawn from: the same answer is judged the same way, and no answer knows it.

    Attributes
    ----------
    is_function : bool
        Whether it can be called.
    kind : str
        Its type's name.
    """

    def __init__(self, asking: Callable[..., Any], seed: int, is_function: bool, kind: str) -> None:
        self._asking = asking
        self.seed = seed
        self.is_function = is_function
        self.kind = kind

    def __call__(self, *arguments: Any) -> Any:
        return self.calling("", *arguments)

    def calling(self, shown: str, *arguments: Any) -> Any:
        """Call the function; an exception that it raises is reported with the call as in `shown`."""
        return self._asking(shown, child.call_it, *arguments)

    def value(self) -> Any:
        """The answer itself, if it is a value."""
        return self.ask(child.itself)

    def ask(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        shown: str = "",
        back: Callable[..., Any] | None = None,
    ) -> Any:
        """Call ``function(answer, *arguments)`` in the answer's process, and return its result.

        What an answer may ask and must not look into stays here: `back` is called as often as
        ``function(answer, asks, *arguments)`` calls ``asks``, with plain data; a ValueError or TypeError is
        raised there, anything else is the verdict.
        """
        return self._asking(shown, function, *arguments, back=back)

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random numbers, from the seed on."""
        return self.draw().rng

    def draw(self) -> Draw:
        """Random data, from the seed on."""
        return Draw(self.seed)


def call(function: Answer, *args: Any, name: str, shown: str = "") -> Any:
    """Call a learner's function; an exception that it raises becomes `NotYet` with the call spelled out.

    `shown` is how the call is written in messages, where its arguments would be too long.

    Raises
    ------
    NotYet
        If `function` is not callable, raises, or still returns None.
    """
    shown = shown or spell(name, args)
    must_be_a_function(name, function.is_function, function.kind)
    result = function.calling(shown, *args)
    must_return(shown, None if isinstance(result, Other) and result.kind == "ellipsis" else result)
    return result


def seed_of_answer(answer: Any, pickled: bytes) -> int:
    """A seed from an answer's text; where there is none, from what is sent of it."""
    try:
        text = inspect.getsource(answer)
    except (OSError, TypeError):
        return zlib.crc32(pickled)
    # Layout alone does not redraw.
    return zlib.crc32("".join(text.split()).encode(errors="replace"))
