"""Figures of notebook 16 in addition to the views of gpulab: the matrix of artefacts and GPUs."""

from __future__ import annotations

import base64
import functools
import json
import lzma
from importlib import resources
from typing import Any

import numpy as np

from gpulab import session
from gpulab.views._base import View
from gpulab.views.parts.boxes import Box, column, matrix, words
from gpulab.views.tables import Table
from gpulab_course.content.n16_platform.exercises import GPUS
from virtualgpu.errors import NotSupportedError
from virtualgpu.records import Provenance
from virtualgpu.records.device import images

RUNS = "runs"
COMPILES = "compiles"
REFUSED = "–"
GUIDE = "CUDA Programming Guide, compute capabilities and binary compatibility"
_RECORD = "recorded.json"
_CODE = "twice"


@functools.cache
def _compiled_artefacts() -> Any:
    """Return the content of the file with the compiled artefacts."""
    file = resources.files(__package__) / "artefacts.json.xz"
    return json.loads(lzma.decompress(file.read_bytes()))


def artefacts() -> dict[str, bytes]:
    """Return one small kernel, compiled in advance: machine code, PTX, and several images in one file."""
    return {name: base64.b64decode(text) for name, text in _compiled_artefacts()["artefacts"].items()}


def by_the_rules(name: str, gpu: str) -> str:
    """Return what NVIDIA's published rules predict for an artefact on a GPU of the table."""
    image = artefacts()[name]
    capability = GPUS[gpu]
    image_parts = [
        images.Part(part.kind, part.number, "a" if name.endswith("a") else part.suffix)
        for part in images.parts(image)
    ]
    chosen_part = images.chosen(image_parts, capability)
    if chosen_part is None:
        return REFUSED
    return RUNS if chosen_part.kind == "cubin" else COMPILES


def load(name: str) -> tuple[str, str]:
    """Load an artefact on the device in use and run it; return the outcome and a description.

    A virtual GPU runs no machine code: there ``"runs"`` means that a driver would load it, and
    ``"compiles"`` that its PTX ran.
    """
    cp = session.cp()
    image = artefacts()[name]
    module = cp.cuda.function.Module()
    try:
        module.load(image + b"\0" * (not image.startswith((images.ELF, b"\x50\xed"))))
        x = cp.arange(8, dtype="f4")
        y = cp.zeros(8, "f4")
        module.get_function(_CODE)((1,), (32,), (x, y, np.int32(8)))
        assert y.tolist() == (2 * x).tolist()
    except NotSupportedError:
        return RUNS, "the driver would take its machine code, which a virtual GPU cannot run"
    except cp.cuda.driver.CUDADriverError as error:
        return REFUSED, str(error)
    capability = tuple(int(part) for part in _capability(cp))
    part = images.chosen(images.parts(image), (capability[0], capability[1]))
    return (RUNS if part and part.kind == "cubin" else COMPILES), "it ran"


def _capability(cp: Any) -> tuple[int, int]:
    """Return the compute capability of the current device."""
    properties = cp.cuda.runtime.getDeviceProperties(cp.cuda.runtime.getDevice())
    return properties["major"], properties["minor"]


def recorded() -> Any:
    """Return the record of an H200 for each artefact and each variable; None if there is none."""
    file = resources.files(__package__) / _RECORD
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def filled(text: str) -> dict[tuple[str, str], str]:
    """Parse a learner's matrix: one row per artefact, one letter per GPU.

    ``r`` means runs, ``c`` compiles, ``-`` refused.
    """
    letters = {"r": RUNS, "c": COMPILES, "-": REFUSED, "–": REFUSED}
    cells: dict[tuple[str, str], str] = {}
    for line in text.strip().splitlines():
        name, _, row = line.partition(":")
        if name.strip() not in artefacts():
            continue
        cells |= {
            (name.strip(), gpu): letters[letter]
            for gpu, letter in zip(GPUS, row.split(), strict=False)
            if letter in letters
        }
    return cells


class Matrix(View):
    """A matrix of artefacts and GPUs: runs, compiles first or is refused, and the learner's answers.

    Parameters
    ----------
    answers
        A learner's matrix (`filled`), or nothing.
    """

    def __init__(self, answers: str = "") -> None:
        self._answers = filled(answers)
        record = recorded()
        self._recorded_loads = record["loads"] if record else {}
        origins = [f"published ({GUIDE})"]
        if record:
            origins.insert(0, f"H200: recorded, driver {record['driver']}; others")
        super().__init__(
            title="One PTX, every GPU",
            source="published",
            caption=f"{' '.join(origins)}. A cell below loads the files on the device in use.",
        )
        self.redraw()

    @property
    def record(self) -> dict[str, dict[str, str]]:
        """The outcome of each artefact on each GPU."""
        return {name: {gpu: self._outcome(name, gpu) for gpu in GPUS} for name in artefacts()}

    def _outcome(self, name: str, gpu: str) -> str:
        """Return the outcome of an artefact on a GPU: recorded for the H200, by the rules for others."""
        return (
            str(self._recorded_loads.get(name, by_the_rules(name, gpu)))
            if gpu == "H200"
            else by_the_rules(name, gpu)
        )

    def right(self) -> tuple[int, int]:
        """Return the number of the learner's cells that are right, and the number of cells filled in."""
        right = sum(self._outcome(*cell) == answer for cell, answer in self._answers.items())
        return right, len(self._answers)

    def sentence(self) -> str:
        cells = [cell for row in self.record.values() for cell in row.values()]
        right, filled_in = self.right()
        answer_text = f"; yours: {right} of {filled_in} right" if filled_in else ""
        return (
            f"{len(self.record)} artefacts on {len(GPUS)} GPUs: {cells.count(RUNS)} run, "
            f"{cells.count(COMPILES)} "
            f"are compiled first, {cells.count(REFUSED)} are refused{answer_text}; published, the H200's "
            f"{'recorded' if self._recorded_loads else 'too'}."
        )

    def describe(self) -> str:
        lines = [self.sentence()]
        for name, row in self.record.items():
            lines.append(f"{name}: " + ", ".join(f"{gpu} {self._outcome_text(name, gpu)}" for gpu in row))
        return "\n".join(lines)

    def _outcome_text(self, name: str, gpu: str) -> str:
        """Return the outcome as text, with the learner's answer if it differs."""
        outcome = self._outcome(name, gpu)
        answer = self._answers.get((name, gpu))
        return outcome if answer in (None, outcome) else f"{outcome} (not {answer})"

    def _cell_text(self, name: str, gpu: str) -> str:
        """Return the text of a cell: the outcome, marked if the learner's answer differs."""
        outcome = self._outcome(name, gpu)
        return outcome if self._outcome_text(name, gpu) == outcome else f"{outcome} ✗"

    def draw(self) -> Box:
        rows = [
            {
                "label": name,
                "cells": [
                    (self._cell_text(name, gpu), {RUNS: 1.0, COMPILES: 0.5}.get(cell))
                    for gpu, cell in row.items()
                ],
                "strong": False,
                "title": ", ".join(f"{gpu}: {self._outcome_text(name, gpu)}" for gpu in row),
            }
            for name, row in self.record.items()
        ]
        headings = [f"{gpu} {major}.{minor}" for gpu, (major, minor) in GPUS.items()]
        note = words(
            "runs: machine code, loaded without a change · compiles: PTX, which the driver compiles when it "
            "loads the program · –: refused. A longer bar means an earlier start. ✗: your answer was "
            "different.",
            "note",
        )
        return column(matrix(rows, headings), note)


def loads() -> Table:
    """Tabulate the outcome of every artefact on the device in use."""
    cp = session.cp()
    origin: Provenance = session.backend().provenance
    major, minor = _capability(cp)
    rows = []
    for name in artefacts():
        outcome, description = load(name)
        rows.append((name, outcome, description))
    return Table(
        f"Loaded here: capability {major}.{minor}, {origin.label}",
        ("file", "outcome", "message"),
        tuple(rows),
    )
