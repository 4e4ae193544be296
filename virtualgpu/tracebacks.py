"""Tracebacks that end in the program: without the virtual GPU's own frames and what those call."""

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

_HERE = Path(__file__).resolve().parent


@contextmanager
def trimmed(
    error: BaseException, packages: Collection[Path] = (), *, between: bool = False
) -> Iterator[bool]:
    """Shorten an exception's traceback, and those of its causes, until the end of a ``with`` block.

    Errors that were raised and caught within the packages leave the chain. A program's function that the
    packages call keeps its frames.

    Parameters
    ----------
    error
        What was raised.
    packages
        Folders whose frames are left out beside those of `virtualgpu`.
    between
        Leave out as well the frames of installed libraries through which the program came here, such as
        those of matplotlib that was given a device array.

    Yields
    ------
    bool
        Whether there was anything to leave out.
    """
    ours = tuple(f"{folder.as_posix()}/" for folder in (_HERE, *packages))
    names = tuple(folder.name for folder in (_HERE, *packages))
    chain = list(_chain(error))
    before = [(e, e.__traceback__, e.__cause__, e.__context__, e.__suppress_context__) for e in chain]
    shown = {id(e): _own_frames(e.__traceback__, ours, names, between) for e in chain}
    within = {id(e) for e in chain if e is not error and e.__traceback__ and shown[id(e)] is None}
    try:
        for e, traceback, cause, context, suppressed in before:
            e.__traceback__ = shown[id(e)] or traceback
            e.__cause__, e.__context__ = _outside(cause, within), _outside(context, within)
            e.__suppress_context__ = suppressed
        yield bool(within) or _length(error.__traceback__) < _length(before[0][1])
    finally:
        for e, traceback, cause, context, suppressed in before:
            e.__traceback__ = traceback
            e.__cause__ = cause
            e.__context__ = context
            e.__suppress_context__ = suppressed


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            waiting += [each.__context__, each.__cause__]
            if isinstance(each, BaseExceptionGroup):
                waiting += each.exceptions
            yield each


def _outside(error: BaseException | None, within: set[int]) -> BaseException | None:
    """The first of a chain that the program has to do with."""
    while error is not None and id(error) in within:
        error = error.__cause__ or error.__context__
    return error


def _length(traceback: TracebackType | None) -> int:
    length = 0
    while traceback is not None:
        length = length + 1
        traceback = traceback.tb_next
    return length


def _own_frames(
    traceback: TracebackType | None, ours: tuple[str, ...], names: tuple[str, ...], between: bool
) -> TracebackType | None:
    kept: list[TracebackType] = []
    kept_libraries: list[bool] = []
    inside = False
    while traceback is not None:
        frame = traceback.tb_frame
        path = _resolved(frame.f_code.co_filename)
        # Code that dataclasses make has no file, but the name of our module.
        if path.startswith(ours) or str(frame.f_globals.get("__name__")).partition(".")[0] in names:
            inside = True
        elif not (inside and _is_library(path)):
            inside = False
            kept.append(traceback)
            kept_libraries.append(_is_library(path))
        traceback = traceback.tb_next
    while between and inside and kept_libraries[-1:] == [True] and not all(kept_libraries):
        kept.pop()
        kept_libraries.pop()
    rebuilt = None
    for part in reversed(kept):
        rebuilt = TracebackType(rebuilt, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return rebuilt


@functools.lru_cache(maxsize=1024)
def _resolved(name: str) -> str:
    return name if name.startswith("<") else Path(name).resolve().as_posix()


def _is_library(path: str) -> bool:
    # Cython names its sources, as CuPy's, relative to a folder that is not there.
    return path.startswith((*_libraries(), "<frozen", "<__array")) or path.endswith((".pyx", ".pxi"))


@functools.lru_cache(maxsize=1)
def _libraries() -> tuple[str, ...]:
    places = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({f"{Path(sysconfig.get_path(name)).resolve().as_posix()}/" for name in places})
