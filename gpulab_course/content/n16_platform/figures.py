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
def _made() -> Any:
    file = resources.files(__package__) / "artefacts.json.xz"
    return json.loads(lzma.decompress(file.read_bytes()))


def artefacts() -> dict[str, bytes]:
    """One small kernel, compiled in advance: machine code, PTX, and several in one file."""
    return {name: base64.b64decode(text) for name, text in _made()["artefacts"].items()}


def by_the_rules(name: str, gpu: str) -> str:
    """Return what NVIDIA's published rules predict for an artefact on a GPU of the table."""
    image = artefacts()[name]
    capability = GPUS[gpu]
    held = [
        images.Part(part.kind, part.number, "a" if name.endswith("a") else part.suffix)
        for part in images.parts(image)
    ]
    part = images.chosen(held, capability)
    return REFUSED if part is None else RUNS if part.kind == "cubin" else COMPILES


def load(name: str) -> tuple[str, str]:
    """Load an artefact on the device in use and run it; return the outcome and a description.

    A virtual GPU runs no machine code: there ``"runs"`` says that it would be taken, and ``"compiles"`` that
    its PTX did run.
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
    found = cp.cuda.runtime.getDeviceProperties(cp.cuda.runtime.getDevice())
    return found["major"], found["minor"]


def recorded() -> Any:
    """Return the record of an H200 for each artefact and each variable; None if there is none."""
    file = resources.files(__package__) / _RECORD
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def filled(text: str) -> dict[tuple[str, str], str]:
    """Parse a learner's matrix: one row per artefact, one letter per GPU.

    ``r`` means runs, ``c`` compiles, ``-`` refused.
    """
    letters = {"r": RUNS, "c": COMPILES, "-": REFUSED, "–": REFUSED}
    found: dict[tuple[str, str], str] = {}
    for line in text.strip().splitlines():
        name, _, row = line.partition(":")
        if name.strip() not in artefacts():
            continue
        found |= {
            (name.strip(), gpu): letters[letter]
            for gpu, letter in zip(GPUS, row.split(), strict=False)
            if letter in letters
        }
    return found


class Matrix(View):
    """A matrix of artefacts and GPUs: which run, compile first or are refused, and the learner's answers.

    Parameters
    ----------
    mine
        A learner's matrix (`filled`), or nothing.
    """

    def __init__(self, mine: str = "") -> None:
        self._mine = filled(mine)
        known = recorded()
        self._told = known["loads"] if known else {}
        origins = [f"published ({GUIDE})"]
        if known:
            origins.insert(0, f"H200: recorded, driver {known['driver']}; others")
        super().__init__(
            title="One PTX, every GPU",
            source="published",
            caption=f"{' '.join(origins)}. Checked against what the device in use loads in the next cell.",
        )
        self.redraw()

    @property
    def record(self) -> dict[str, dict[str, str]]:
        """The outcome of each artefact on each GPU."""
        return {name: {gpu: self._at(name, gpu) for gpu in GPUS} for name in artefacts()}

    def _at(self, name: str, gpu: str) -> str:
        return (
            str(self._told.get(name, by_the_rules(name, gpu))) if gpu == "H200" else by_the_rules(name, gpu)
        )

    def right(self) -> tuple[int, int]:
        """Return the number of the learner's cells that are right, and the number of all of them."""
        return sum(self._at(*place) == said for place, said in self._mine.items()), len(self._mine)

    def sentence(self) -> str:
        cells = [cell for row in self.record.values() for cell in row.values()]
        right, filled_in = self.right()
        yours = f"; yours: {right} of {filled_in} right" if filled_in else ""
        return (
            f"{len(self.record)} artefacts on {len(GPUS)} GPUs: {cells.count(RUNS)} run, "
            f"{cells.count(COMPILES)} "
            f"are compiled first, {cells.count(REFUSED)} are refused{yours}; published, the H200's "
            f"{'recorded' if self._told else 'too'}."
        )

    def describe(self) -> str:
        lines = [self.sentence()]
        for name, row in self.record.items():
            lines.append(f"{name}: " + ", ".join(f"{gpu} {self._said(name, gpu)}" for gpu in row))
        return "\n".join(lines)

    def _said(self, name: str, gpu: str) -> str:
        here = self._at(name, gpu)
        said = self._mine.get((name, gpu))
        return here if said in (None, here) else f"{here} (not {said})"

    def _drawn(self, name: str, gpu: str) -> str:
        here = self._at(name, gpu)
        return here if self._said(name, gpu) == here else f"{here} ✗"

    def draw(self) -> Box:
        rows = [
            {
                "label": name,
                "cells": [
                    (self._drawn(name, gpu), {RUNS: 1.0, COMPILES: 0.5}.get(cell))
                    for gpu, cell in row.items()
                ],
                "strong": False,
                "title": ", ".join(f"{gpu}: {self._said(name, gpu)}" for gpu in row),
            }
            for name, row in self.record.items()
        ]
        headings = [f"{gpu} {a}.{b}" for gpu, (a, b) in GPUS.items()]
        note = words(
            "runs: machine code, loaded as it is · compiles: PTX, compiled by the driver when it is loaded · "
            "–: refused. The longer the bar, the sooner it starts. ✗: something else was filled in.",
            "note",
        )
        return column(matrix(rows, headings), note)


def loads() -> Table:
    """Tabulate the outcome of every artefact on the device in use, and the rules for a device like it."""
    cp = session.cp()
    origin: Provenance = session.backend().provenance
    major, minor = _capability(cp)
    rows = []
    for name in artefacts():
        became, why = load(name)
        rows.append((name, became, why))
    return Table(
        f"Loaded here: capability {major}.{minor}, {origin.label}",
        ("artefact", "", "what was said"),
        tuple(rows),
    )
