"""Tables and figures of notebook 16: which GPUs can load which compiled artefacts."""

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
from gpulab_course.content.n16_platform.pictures import bulk_copy as bulk_copy
from gpulab_course.content.n16_platform.pictures import layers as layers
from gpulab_course.content.n16_platform.pictures import reach as reach
from virtualgpu.errors import NotSupportedError
from virtualgpu.records import Provenance
from virtualgpu.records.device import images

RUNS = "runs"
COMPILES = "compiles"
REFUSED = "–"
COMPATIBILITY_GUIDE = "CUDA Programming Guide, compute capabilities and binary compatibility"
_RECORDING_FILE = "recorded.json"
_KERNEL_NAME = "twice"


@functools.cache
def _load_artefacts() -> Any:
    """Load the file with the compiled artefacts."""
    file = resources.files(__package__) / "artefacts.json.xz"
    return json.loads(lzma.decompress(file.read_bytes()))


def artefacts() -> dict[str, bytes]:
    """Return the compiled forms of a small kernel, such as machine code, PTX and fat binaries, by name."""
    return {name: base64.b64decode(text) for name, text in _load_artefacts()["artefacts"].items()}


def find_outcome_by_rules(name: str, gpu: str) -> str:
    """Return the outcome of loading a compiled kernel on a GPU, by NVIDIA's published compatibility rules."""
    image = artefacts()[name]
    capability = GPUS[gpu]
    image_parts = [
        images.Part(part.kind, part.number, "a" if name.endswith("a") else part.suffix)
        for part in images.find_parts(image)
    ]
    chosen_part = images.choose_part(image_parts, capability)
    if chosen_part is None:
        return REFUSED
    return RUNS if chosen_part.kind == "cubin" else COMPILES


def load(name: str) -> tuple[str, str]:
    """Load and run a compiled kernel on the device in use, and return the outcome and its description.

    A virtual GPU cannot run machine code: ``"runs"`` means that a driver would load the artefact, and
    ``"compiles"`` that the virtual GPU ran its PTX.
    """
    cp = session.cp()
    image = artefacts()[name]
    module = cp.cuda.function.Module()
    try:
        module.load(image + b"\0" * (not image.startswith((images.ELF_MAGIC, b"\x50\xed"))))
        x = cp.arange(8, dtype="f4")
        y = cp.zeros(8, "f4")
        module.get_function(_KERNEL_NAME)((1,), (32,), (x, y, np.int32(8)))
        assert y.tolist() == (2 * x).tolist()
    except NotSupportedError:
        return RUNS, "a real GPU would run its machine code; a virtual GPU cannot"
    except cp.cuda.driver.CUDADriverError as error:
        return REFUSED, ": ".join(str(error).split(": ")[:2])
    capability = tuple(int(version_part) for version_part in _read_capability(cp))
    part = images.choose_part(images.find_parts(image), (capability[0], capability[1]))
    return (RUNS if part and part.kind == "cubin" else COMPILES), "it ran"


def _read_capability(cp: Any) -> tuple[int, int]:
    """Return the compute capability of the current device."""
    device_properties = cp.cuda.runtime.getDeviceProperties(cp.cuda.runtime.getDevice())
    return device_properties["major"], device_properties["minor"]


def recorded() -> Any:
    """Load the outcomes that were recorded on an H200, or return None if there is no recording."""
    file = resources.files(__package__) / _RECORDING_FILE
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


class Matrix(View):
    """A table that shows for each GPU whether a compiled kernel runs, is compiled first, or is rejected."""

    def __init__(self) -> None:
        record = recorded()
        self._recorded_loads = record["loads"] if record else {}
        origins = [f"published ({COMPATIBILITY_GUIDE})"]
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
        """The outcome of loading each compiled kernel on each GPU."""
        return {name: {gpu: self._find_outcome(name, gpu) for gpu in GPUS} for name in artefacts()}

    def _find_outcome(self, name: str, gpu: str) -> str:
        """Return the outcome of an artefact on a GPU: recorded for the H200, by the rules for other GPUs."""
        return (
            str(self._recorded_loads.get(name, find_outcome_by_rules(name, gpu)))
            if gpu == "H200"
            else find_outcome_by_rules(name, gpu)
        )

    def sentence(self) -> str:
        outcomes = [outcome for outcome_by_gpu in self.record.values() for outcome in outcome_by_gpu.values()]
        return (
            f"{len(self.record)} artefacts on {len(GPUS)} GPUs: {outcomes.count(RUNS)} run, "
            f"{outcomes.count(COMPILES)} "
            f"are compiled first, {outcomes.count(REFUSED)} are refused; published, the H200's "
            f"{'recorded' if self._recorded_loads else 'too'}."
        )

    def describe(self) -> str:
        lines = [self.sentence()]
        for name, outcome_by_gpu in self.record.items():
            lines.append(
                f"{name}: " + ", ".join(f"{gpu} {outcome}" for gpu, outcome in outcome_by_gpu.items())
            )
        return "\n".join(lines)

    def draw(self) -> Box:
        grid_rows = [
            {
                "label": name,
                "cells": [
                    (outcome, {RUNS: 1.0, COMPILES: 0.5}.get(outcome)) for outcome in outcome_by_gpu.values()
                ],
                "strong": False,
                "title": ", ".join(f"{gpu}: {outcome}" for gpu, outcome in outcome_by_gpu.items()),
            }
            for name, outcome_by_gpu in self.record.items()
        ]
        headings = [f"{gpu} {major}.{minor}" for gpu, (major, minor) in GPUS.items()]
        legend_note = words(
            "runs: machine code, loaded without a change · compiles: PTX, which the driver compiles when it "
            "loads the program · –: refused. A longer bar means an earlier start.",
            "note",
        )
        return column(matrix(grid_rows, headings), legend_note)


def loads() -> Table:
    """Return a table of the outcomes of all compiled kernels on the device in use."""
    cp = session.cp()
    origin: Provenance = session.backend().provenance
    major, minor = _read_capability(cp)
    file_rows = []
    for name in artefacts():
        outcome, description = load(name)
        file_rows.append((name, outcome, description))
    return Table(
        f"Loaded here: capability {major}.{minor}, {origin.label}",
        ("file", "outcome", "message"),
        tuple(file_rows),
    )
