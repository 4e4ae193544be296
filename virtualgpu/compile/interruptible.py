"""Long compiler calls that Ctrl-C and a notebook's stop button interrupt at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.1
# The main thread's size on Linux; other threads get half a megabyte on macOS.
_STACK_BYTES = 8 << 20
_stack_size_lock = threading.Lock()


@contextmanager
def set_stack_size(size_bytes: int) -> Iterator[None]:
    """Context manager that sets the stack size of new threads. The setting applies to the whole process."""
    with _stack_size_lock:
        previous_size = threading.stack_size(size_bytes)
        try:
            yield
        finally:
            threading.stack_size(previous_size)


def run_interruptible(long_call: Callable[[], T], stop_call: Callable[[], None] = lambda: None) -> T:
    """Run a long function call in a separate thread, and wait for it. If an interrupt ends the wait, the
    function calls `stop_call`.

    Python raises `KeyboardInterrupt` only in the main thread, and not before a call into C returns.
    Interrupted work that cannot be stopped continues to its end in the background; a process that exits does
    not wait for it.
    """
    if threading.current_thread() is not threading.main_thread():
        return long_call()
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(long_call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="gpulab-compiler", daemon=True)
    with set_stack_size(_STACK_BYTES):
        thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_S)
    except BaseException:
        stop_call()
        raise
    if errors:
        raise errors[0]
    return results[0]
