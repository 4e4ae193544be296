"""Jupyter kernels that start. As a pytest plugin (``-p tests.kernels``) it makes nbval's do so.

A kernel is told ports that were free a moment before. Where another program takes one in between, the
kernel dies at once; JupyterLab then tries others, while nbclient and nbval give up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
ATTEMPTS = 4


class StartError(RuntimeError):
    """Something that listens on a port did not start, and may on another one."""


def until_alive(start: Callable[[], T], attempts: int = ATTEMPTS) -> T:
    """What `start` returns, called again while what it starts is dead before it said anything."""
    for attempts_left in reversed(range(attempts)):
        try:
            return start()
        except RuntimeError as error:
            dead = isinstance(error, StartError) or "Kernel died before replying" in str(error)
            if not attempts_left or not dead:
                raise
    raise AssertionError("at least one attempt")


def pytest_configure() -> None:
    try:
        from nbval import kernel
    except ImportError:
        return
    start = kernel.start_new_kernel
    kernel.start_new_kernel = lambda *args, **options: until_alive(lambda: start(*args, **options))
