"""Long calls of a compiler, which Ctrl-C and a notebook's stop button interrupt at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.1
# As the main thread has on Linux; other threads get half a megabyte on macOS.
_STACK_BYTES = 8 << 20
_one_at_a_time = threading.Lock()


@contextmanager
def stacks_of(size_bytes: int) -> Iterator[None]:
    """Threads started meanwhile get stacks of a size, which is one setting of the whole process."""
    with _one_at_a_time:
        before = threading.stack_size(size_bytes)
        try:
            yield
        finally:
            threading.stack_size(before)


def interruptible(work: Callable[[], T], stop: Callable[[], None] = lambda: None) -> T:
    """Do something long on a thread of its own, and wait for it; `stop` is called when that is interrupted.

    Python raises `KeyboardInterrupt` in the main thread alone, and not before a call from C returns. What
    was interrupted and cannot be stopped goes on to its end, unheeded; a process that exits does not wait for
    it.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="gpulab-compiler", daemon=True)
    with stacks_of(_STACK_BYTES):
        thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_S)
    except BaseException:
        stop()
        raise
    if errors:
        raise errors[0]
    return results[0]
