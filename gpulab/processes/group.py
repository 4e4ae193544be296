"""Several processes that run at the same time and end together: the ranks of a collective call."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from gpulab.processes.talk import Talk
from virtualgpu.errors import GpulabError

# A process with NCCL and a CUDA context; what it pins counts.
_MEMORY_BYTES = 24 << 30
# Whoever fails because another one did, may say so before that one's end is seen.
_GRACE_S = 0.3
# The group's own limit comes first: a rank alone cannot say who is missing.
_BEYOND = 2


class Group:
    """Processes, one per device, with a common time limit; if one fails or exceeds it, all end.

    Parameters
    ----------
    devices
        What each uses, as ``GPULAB_DEVICE``.
    limit_s
        How long they may take in all, from the moment in which all stand.
    """

    def __init__(self, devices: Sequence[str], limit_s: float) -> None:
        if not limit_s > 0:
            raise ValueError(f"limit_s is a number of seconds above 0, not {limit_s!r}.")
        self._devices = tuple(devices)
        self._limit_s = limit_s
        self._talks: list[Talk] = []
        self._folder = tempfile.TemporaryDirectory(prefix="gpulab-ranks-")
        self._until = 0.0

    def __enter__(self) -> Self:
        most_s = _BEYOND * self._limit_s
        try:
            for device in self._devices:
                talk = Talk(device, most_s, most_s, _MEMORY_BYTES)
                self._talks.append(talk)
                talk.__enter__()
        except BaseException:
            self.__exit__()
            raise
        self._until = time.monotonic() + self._limit_s
        return self

    def __exit__(self, *_: object) -> None:
        for talk in self._talks:
            talk.__exit__()
        self._folder.cleanup()

    def ask(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call ``function(at, rank, *arguments)`` in each process, and return the results as plain data.

        ``at(call)`` notes which call the rank comes to, for the error's sentence.

        Raises
        ------
        GpulabError
            If a rank fails or ends, or some are not done in time: which, and in which call. All have ended.
        """
        notes = [str(self._note(rank)) for rank in range(len(self._talks))]
        with ThreadPoolExecutor(len(self._talks)) as pool:
            try:
                futures = [
                    pool.submit(talk.ask, "", _noted, notes[rank], function, rank, *arguments)
                    for rank, talk in enumerate(self._talks)
                ]
                left_s = max(0.0, self._until - time.monotonic())
                wait(futures, left_s, FIRST_EXCEPTION)
                if all(future.done() and future.exception() is None for future in futures):
                    return [future.result() for future in futures]
                wait(futures, _GRACE_S)
                message = self._message(futures)
            finally:
                if not all(future.done() for future in futures):
                    for talk in self._talks:
                        talk.printed()  # ends it, so that its thread here ends
        raise GpulabError(message)

    def _note(self, rank: int) -> Path:
        return Path(self._folder.name) / str(rank)

    def _message(self, futures: Sequence[Future[Any]]) -> str:
        """Return a message with the ranks that failed, and the present calls of the others."""
        failed = []
        waiting = []
        for rank, future in enumerate(futures):
            call = "its start"
            with suppress(OSError):
                call = self._note(rank).read_text(encoding="utf-8") or call
            if not future.done():
                waiting.append(f"rank {rank} is in {call}")
            elif future.exception() is not None:
                reason = str(future.exception()).removeprefix("it ").rstrip(".")
                failed.append(f"Rank {rank} failed in {call}: it {reason}.")
        where = "; ".join(waiting)
        timeout = "" if failed else f"Not done after {self._limit_s:g} s. "
        elsewhere = f"{where[:1].upper()}{where[1:]}. " if where else ""
        remedy = "All ranks have been ended" + (
            "." if failed else ": each has to come to the same calls in the same order, or all others wait."
        )
        return f"{timeout}{' '.join([*failed, ''])}{elsewhere}{remedy}"


def _noted(_: Any, note: str, function: Callable[..., Any], rank: int, *arguments: Any) -> Any:
    def at(call: str) -> None:
        Path(note).write_text(call, encoding="utf-8")

    return function(at, rank, *arguments)
