"""Figures of notebook 12: what an H200 took, recorded, and the dots of a function on the roofline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpulab.views.tables import Table
from virtualgpu.records import Provenance
from virtualgpu.words import duration, number

# GELU in its tanh form, as a product and one exponential: v and nothing else is read.
GELU = "v / (1.0f + expf(v * (v * v * -0.0713548f - 1.5957691f)))"
H200 = Provenance("recorded", "NVIDIA H200", "CuPy 14.2, PyTorch 2.11")


def recorded() -> dict[str, Any]:
    """What ``recorded.json`` holds: times of chains of passes and of caches, and two fused functions."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))
    return found


class Shown(Table):
    """A table that displays itself."""

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()


def factors() -> Shown:
    """How many times as fast one kernel is as so many passes, by elements."""
    rows = recorded()["passes"]
    lengths = sorted({row["n"] for row in rows})
    counts = sorted({row["passes"] for row in rows})
    by = {(row["n"], row["passes"]): row["ops_us"] / row["one_us"] for row in rows}
    cells = [(f"{n:,} elements", *(f"{by[n, k]:.1f}" for k in counts)) for n in lengths]
    headings = ("passes", *map(str, counts))
    return Shown(f"Times as fast in one kernel, {H200.label}", headings, tuple(cells))


def factor(passes: int, elements: int) -> float:
    """One of them."""
    row = next(r for r in recorded()["passes"] if (r["passes"], r["n"]) == (passes, elements))
    return float(row["ops_us"] / row["one_us"])


def one_launch() -> Shown:
    """``cp.fuse`` of a softmax over one long row: CuPy makes one cooperative kernel of it."""
    found = recorded()["softmax_of_one_row"]
    rows = (
        ("as written", number(len(found["ops"])), duration(1e3 * found["ops_us"])),
        ("cp.fuse", number(len(found["fused"])), duration(1e3 * found["fused_us"])),
    )
    return Shown(f"Softmax of {found['n']:,} elements, {H200.label}", ("", "launches", "time"), rows)


def caches() -> Shown:
    """How long the first launch of a kernel takes, by where its code is found."""
    found = recorded()["caches_ms"]
    rows = tuple((where, duration(1e6 * ms)) for where, ms in found.items())
    return Shown(f"First launch of a kernel, {H200.label}", ("its code is", "time"), rows)


def cupyx_jit() -> str:
    """What ``cupyx.jit`` made of a function, recorded."""
    return str(recorded()["cupyx_jit"])
