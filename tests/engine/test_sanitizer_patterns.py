"""``gl.sanitize`` on patterns of parallel programs: right ones stay silent, wrong ones are found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import gpulab as gl
from gpulab import cp, session
from virtualgpu.compile import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


@dataclass(frozen=True)
class Pattern:
    right: bool
    name: str
    grid: int
    block: int
    kinds: frozenset[str]
    code: str


def patterns() -> Iterator[Pattern]:
    text = (Path(__file__).parent / "data" / "patterns.cu").read_text()
    for part in text.split("//! ")[1:]:
        head, code = part.split("\n", 1)
        name, shape, kinds = (field.strip() for field in head.split("|"))
        verdict, name = name.split(": ")
        grid, block = map(int, shape.split())
        hazard_kinds = frozenset(kind.replace("-", " ") for kind in kinds.split())
        yield Pattern(verdict == "right", name, grid, block, hazard_kinds, code)


ALL = list(patterns())


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with session.on_device("virtual:H200"):
        gl.use_device(watchdog_s=20)
        yield


@pytest.mark.parametrize("pattern", ALL, ids=lambda pattern: pattern.name)
def test_wrong_patterns_are_reported_and_right_ones_are_not(pattern: Pattern) -> None:
    x = np.random.default_rng(0).random(4096).astype(np.float32) * 60 - 5
    kernel = cp.RawKernel(pattern.code, "k", enable_cooperative_groups="this_grid" in pattern.code)
    types = {"char": np.uint8, "int": np.int32, "float": np.float32}
    parameters = pattern.code[pattern.code.index(" k(") :].split(")")[0].split(",")
    args = []
    for parameter, values in zip(parameters, (x, np.zeros(4096), np.zeros(1)), strict=True):
        if "**" in parameter:
            args.append(cp.zeros(64, np.int64))
        elif "*" in parameter:
            kind = next(kind for word, kind in types.items() if word in parameter)
            args.append(cp.asarray(values.astype(kind)))
        else:
            args.append(np.int32(4000 if "histogram" in pattern.name else 8))
    shared = 256 if "extern __shared__" in pattern.code else 0
    report = gl.sanitize(kernel, pattern.grid, pattern.block, args, shared_mem=shared)
    hazard_kinds = {hazard.kind for hazard in report.hazards if hazard.severity != "info"}
    assert (hazard_kinds == set()) if pattern.right else (hazard_kinds >= pattern.kinds)
