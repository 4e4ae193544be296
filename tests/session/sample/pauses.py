"""Pauses of Python's garbage collector: the subject of the sample, with its record and its picture."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, table
from gpulab.words import count, duration
from virtualgpu.records.origin import HOST_CLOCK, Provenance


@dataclass(frozen=True, slots=True)
class Pauses:
    """Duration and generation of each collection."""

    provenance: Provenance
    took_ns: tuple[int, ...]
    generations: tuple[int, ...]


class PauseRecorder:
    """Record collections from `start` to `stop`."""

    def __init__(self) -> None:
        self._collections: list[tuple[int, int]] = []
        self._begin_ns = 0
        self.after: Callable[[], object] = lambda: None

    def start(self) -> None:
        gc.callbacks.append(self._callback)

    def stop(self) -> Pauses:
        gc.callbacks.remove(self._callback)
        return self.record()

    def record(self) -> Pauses:
        took, generations = zip(*self._collections, strict=True) if self._collections else ((), ())
        return Pauses(HOST_CLOCK, took, generations)

    def _callback(self, phase: str, details: dict[str, Any]) -> None:
        if phase == "start":
            self._begin_ns = time.perf_counter_ns()
        else:
            self._collections.append((time.perf_counter_ns() - self._begin_ns, details["generation"]))
            self.after()


class PauseView(View):
    """A row for each pause."""

    def __init__(self, pauses: Callable[[], Pauses]) -> None:
        self._pauses = pauses
        super().__init__(title="Pauses", source="measured")
        self.redraw()

    @property
    def record(self) -> Pauses:
        return self._pauses()

    def sentence(self) -> str:
        record = self.record
        return (
            f"{count(len(record.took_ns), 'pause')} of {duration(sum(record.took_ns))} in all; "
            f"{record.provenance.label}."
        )

    def describe(self) -> str:
        return self.sentence()

    def draw(self) -> Box:
        record = self.record
        rows = [(str(n), duration(ns)) for n, ns in zip(record.generations, record.took_ns, strict=True)]
        return table(rows, headings=("generation", "took"))
