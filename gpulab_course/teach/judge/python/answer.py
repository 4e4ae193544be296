"""The judge's interface to an answer that runs in another process and returns plain data."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from gpulab.processes import child
from gpulab.processes.values import OtherObject
from gpulab_course.teach.judge.draw import DataGenerator
from gpulab_course.teach.judge.python.functions import format_call, must_be_a_function, must_return


class Answer:
    """A learner's function or value in another process, which the judge can call from here.

    A call sends the arguments to that process. The reply contains only plain types (`values`): numbers,
    strings, lists, tuples, dictionaries, arrays, and `values.OtherObject` for everything else.

    Parameters
    ----------
    ask_process
        ``ask_process(shown, function, *arguments)`` calls ``function(answer, *arguments)`` in the answer's
        process; `shown` is the text of the call in messages.
    seed
        The seed of random data. The same answer gets the same data, and an answer cannot read the seed.

    Attributes
    ----------
    is_function : bool
        Whether the answer can be called.
    kind : str
        The name of the answer's type.
    """

    def __init__(self, ask_process: Callable[..., Any], seed: int, is_function: bool, kind: str) -> None:
        self._ask_process = ask_process
        self.seed = seed
        self.is_function = is_function
        self.kind = kind

    def __call__(self, *arguments: Any) -> Any:
        return self.call_as("", *arguments)

    def call_as(self, call_text: str, *arguments: Any) -> Any:
        """Call the learner's function. The string `call_text` is the text of the call in messages about
        exceptions.
        """
        return self._ask_process(call_text, child.call_answer, *arguments)

    def value(self) -> Any:
        """Return an answer that is not a function as plain data."""
        return self.ask(child.return_answer)

    def ask(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        shown: str = "",
        back: Callable[..., Any] | None = None,
    ) -> Any:
        """Call ``function(answer, *arguments)`` in the answer's process, and return the result.

        With `back`, `function` gets a second argument `asks`: each call of ``asks`` sends plain data to
        `back` in this process, where hidden data stay. A ValueError or TypeError of `back` is raised in the
        answer's process, and any other error here.
        """
        return self._ask_process(shown, function, *arguments, back=back)

    @cached_property
    def rng(self) -> np.random.Generator:
        """A NumPy random number generator whose seed depends on the answer."""
        return self.draw().rng

    def draw(self) -> DataGenerator:
        """Return a new generator of test data (`DataGenerator`) whose seed depends on the answer."""
        return DataGenerator(self.seed)


def call(function: Answer, *args: Any, name: str, shown: str = "") -> Any:
    """Call a learner's function, and return its result. Exceptions of the function become `NotYet`.

    `shown` is the text of the call in messages; by default it contains all arguments.

    Raises
    ------
    NotYet
        If `function` is not callable, raises an exception, or returns None.
    """
    shown = shown or format_call(name, args)
    must_be_a_function(name, function.is_function, function.kind)
    result = function.call_as(shown, *args)
    must_return(shown, None if isinstance(result, OtherObject) and result.type_name == "ellipsis" else result)
    return result


def make_answer_seed(answer: Any, pickled_answer: bytes) -> int:
    """Return a seed that depends on an answer's source text, or on its pickle if there is no text."""
    try:
        text = inspect.getsource(answer)
    except (OSError, TypeError):
        return zlib.crc32(pickled_answer)
    # A changed layout alone does not change the data.
    return zlib.crc32("".join(text.split()).encode(errors="replace"))
