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
    """A learner's function or value in another process.

    Each call sends its arguments. The reply consists of exact types (`values`): numbers, strings, lists,
    tuples, dictionaries, arrays, and `values.Other` for everything else.

    Parameters
    ----------
    asking
        ``asking(shown, function, *arguments)`` calls ``function(answer, *arguments)`` there; `shown` names
        the call in messages.
    seed
        The seed of random data: the same answer gets the same data, and no answer can read the seed.

    Attributes
    ----------
    is_function : bool
        Whether it can be called.
    kind : str
        Its type's name.
    """

    def __init__(self, ask_process: Callable[..., Any], seed: int, is_function: bool, kind: str) -> None:
        self._ask_process = ask_process
        self.seed = seed
        self.is_function = is_function
        self.kind = kind

    def __call__(self, *arguments: Any) -> Any:
        return self.calling("", *arguments)

    def calling(self, shown: str, *arguments: Any) -> Any:
        """Call the function; a message about an exception shows the call as `shown`."""
        return self._ask_process(shown, child.call_answer, *arguments)

    def value(self) -> Any:
        """Return the answer itself, if it is a value."""
        return self.ask(child.itself)

    def ask(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        shown: str = "",
        back: Callable[..., Any] | None = None,
    ) -> Any:
        """Call ``function(answer, *arguments)`` in the answer's process, and return its result.

        Hidden data stay in this process: ``function(answer, asks, *arguments)`` gets a function `asks`, and
        each call of it calls `back` here with plain data. A ValueError or TypeError is raised there, any
        other error here.
        """
        return self._ask_process(shown, function, *arguments, back=back)

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random number generator with the seed of the answer."""
        return self.draw().rng

    def draw(self) -> Draw:
        """Return random data with the seed of the answer."""
        return Draw(self.seed)


def call(function: Answer, *args: Any, name: str, shown: str = "") -> Any:
    """Call a learner's function; an exception becomes `NotYet` with the text of the call.

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
    """Return a seed from an answer's source text, or from its pickle if there is no text."""
    try:
        text = inspect.getsource(answer)
    except (OSError, TypeError):
        return zlib.crc32(pickled)
    # A changed layout alone does not change the data.
    return zlib.crc32("".join(text.split()).encode(errors="replace"))
