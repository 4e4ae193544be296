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
    """How long each collection took, and of which generation it was."""

    provenance: Provenance
    took_ns: tuple[int, ...]
    generations: tuple[int, ...]


class PauseRecorder:
    """Hears of collections from `start` to `stop`."""

    def __init__(self) -> None:
        self._seen: list[tuple[int, int]] = []
        self._began_ns = 0
        self.then: Callable[[], object] = lambda: None

    def start(self) -> None:
        gc.callbacks.append(self._hear)

    def stop(self) -> Pauses:
        gc.callbacks.remove(self._hear)
        return self.record()

    def record(self) -> Pauses:
        took, generations = zip(*self._seen, strict=True) if self._seen else ((), ())
        return Pauses(HOST_CLOCK, took, generations)

    def _hear(self, phase: str, told: dict[str, Any]) -> None:
        if phase == "start":
            self._began_ns = time.perf_counter_ns()
        else:
            self._seen.append((time.perf_counter_ns() - self._began_ns, told["generation"]))
            self.then()


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
