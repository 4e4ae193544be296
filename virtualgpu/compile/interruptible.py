"""Long calls of a compiler, which Ctrl-C and a notebook's stop button interrupt at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.1
# As the main thread has on Linux; other threads get half a megabyte on macOS.
_STACK_BYTES = 8 << 20


def interruptible(work: Callable[[], T]) -> T:
    """Do something long on a thread of its own, and wait for it.

    Python raises `KeyboardInterrupt` in the main thread alone, and not before a call from C returns. What
    was interrupted goes on to its end, unheeded; a process that exits does not wait for it.
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

    before = threading.stack_size(_STACK_BYTES)
    try:
        thread = threading.Thread(target=run, name="gpulab-compiler", daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    while thread.is_alive():
        thread.join(_POLL_S)
    if errors:
        raise errors[0]
    return results[0]
