"""Several processes that run and end together, such as the ranks of a collective call."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from gpulab.processes.talk import RequestProcess
from virtualgpu.errors import GpulabError

# Limit for a process with NCCL and a CUDA context, including pinned memory.
_MEMORY_BYTES = 24 << 30
# A rank that fails because another rank failed can report its failure first.
_ANSWER_GRACE_S = 0.3
# Ranks have a longer limit than the group, because a rank alone does not know which rank is missing.
_RANK_LIMIT_FACTOR = 2


class ProcessGroup:
    """A group of processes with a common time limit, one process per device. If one of them fails or exceeds
    the limit, all are ended.

    Parameters
    ----------
    devices
        The device of each process, as in ``GPULAB_DEVICE``.
    limit_s
        Limit on the elapsed time in seconds, from the moment when all processes have started.
    """

    def __init__(self, devices: Sequence[str], limit_s: float) -> None:
        if not limit_s > 0:
            raise ValueError(f"limit_s must be a number of seconds above 0, not {limit_s!r}.")
        self._devices = tuple(devices)
        self._limit_s = limit_s
        self._processes: list[RequestProcess] = []
        self._folder = tempfile.TemporaryDirectory(prefix="gpulab-ranks-")
        self._deadline_s = 0.0

    def __enter__(self) -> Self:
        rank_limit_s = _RANK_LIMIT_FACTOR * self._limit_s
        try:
            for device in self._devices:
                process = RequestProcess(device, rank_limit_s, rank_limit_s, _MEMORY_BYTES)
                self._processes.append(process)
                process.__enter__()
        except BaseException:
            self.__exit__()
            raise
        self._deadline_s = time.monotonic() + self._limit_s
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.__exit__()
        self._folder.cleanup()

    def ask(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Call a function in the process of each rank, and return the results as plain data.

        The call is ``function(at, rank, *arguments)``. The function reports each call of its rank with
        ``at(call)``, so that error messages can name the failed call.

        Raises
        ------
        GpulabError
            If a rank fails, ends, or exceeds the limit. The message names the ranks and calls; all have
            ended.
        """
        note_paths = [str(self._note_path(rank)) for rank in range(len(self._processes))]
        with ThreadPoolExecutor(len(self._processes)) as executor:
            try:
                futures = [
                    executor.submit(
                        process.ask, "", _call_with_note, note_paths[rank], function, rank, *arguments
                    )
                    for rank, process in enumerate(self._processes)
                ]
                remaining_s = max(0.0, self._deadline_s - time.monotonic())
                wait(futures, remaining_s, FIRST_EXCEPTION)
                if all(future.done() and future.exception() is None for future in futures):
                    return [future.result() for future in futures]
                wait(futures, _ANSWER_GRACE_S)
                error_message = self._make_error_message(futures)
            finally:
                if not all(future.done() for future in futures):
                    for process in self._processes:
                        process.end_and_read_output()  # ends it, so that its thread here ends
        raise GpulabError(error_message)

    def _note_path(self, rank: int) -> Path:
        return Path(self._folder.name) / str(rank)

    def _make_error_message(self, futures: Sequence[Future[Any]]) -> str:
        """Return an error message with the ranks that failed, and the current calls of the others."""
        failure_texts = []
        waiting_ranks = []
        for rank, future in enumerate(futures):
            current_call = "its start"
            with suppress(OSError):
                current_call = self._note_path(rank).read_text(encoding="utf-8") or current_call
            if not future.done():
                waiting_ranks.append(f"rank {rank} is in {current_call}")
            elif future.exception() is not None:
                failure_text = str(future.exception()).removeprefix("it ").rstrip(".")
                failure_texts.append(f"Rank {rank} failed in {current_call}: it {failure_text}.")
        waiting_text = "; ".join(waiting_ranks)
        timeout_text = "" if failure_texts else f"Not finished after {self._limit_s:g} s. "
        waiting_sentence = f"{waiting_text[:1].upper()}{waiting_text[1:]}. " if waiting_text else ""
        remedy = "All ranks have been ended" + (
            "."
            if failure_texts
            else (": all ranks must make the same calls in the same order. Otherwise the other ranks wait.")
        )
        return f"{timeout_text}{' '.join([*failure_texts, ''])}{waiting_sentence}{remedy}"


def _call_with_note(_: Any, note_path: str, function: Callable[..., Any], rank: int, *arguments: Any) -> Any:
    def report_call(call: str) -> None:
        Path(note_path).write_text(call, encoding="utf-8")

    return function(report_call, rank, *arguments)
