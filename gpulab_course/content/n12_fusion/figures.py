"""Figures of notebook 12: what an H200 took, recorded, and the dots of a function on the roofline."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from gpulab.views.tables import Table
from gpulab.words import duration, number, size
from virtualgpu.records import Provenance

# GELU in its tanh form, as a product and one exponential: v and nothing else is read.
GELU = "v / (1.0f + expf(v * (v * v * -0.0713548f - 1.5957691f)))"
H200 = Provenance("recorded", "NVIDIA H200", "CuPy 14.2, PyTorch 2.11")


def recorded() -> dict[str, Any]:
    """Return ``recorded.json``: times of chains of passes and of caches, and two fused functions."""
    found: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))
    return found


class Shown(Table):
    """A table that displays itself."""

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return self.html()


def factors() -> Shown:
    """Speedups of one kernel over several passes, by the number of elements."""
    rows = recorded()["passes"]
    lengths = sorted({row["n"] for row in rows})
    counts = sorted({row["passes"] for row in rows})
    by = {(row["n"], row["passes"]): row["ops_us"] / row["one_us"] for row in rows}
    cells = [(f"{n:,} elements", *(f"{by[n, k]:.1f}" for k in counts)) for n in lengths]
    headings = ("passes", *map(str, counts))
    return Shown(f"Times as fast in one kernel, {H200.label}", headings, tuple(cells))


def factor(passes: int, elements: int) -> float:
    """Return the speedup of one kernel over `passes` passes."""
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
    """Times of the first launch of a kernel, by the cache in which its code is found."""
    found = recorded()["caches_ms"]
    rows = tuple((where, duration(1e6 * ms)) for where, ms in found.items())
    return Shown(f"First launch of a kernel, {H200.label}", ("its code is", "time"), rows)


def cupyx_jit() -> str:
    """Return the recorded code that ``cupyx.jit`` made of a function."""
    return str(recorded()["cupyx_jit"])


SECOND = """
extern "C" __global__ void second_kernel(const float* h, const float* b, float* y) {  // a block a row
    int column = 4 * threadIdx.x, first = blockIdx.x * N + column;
    float4 v = *(const float4*)(h + first);
    float row[4] = {v.x, v.y, v.z, v.w};
    norm_gelu(row, b + column, y + first);
}
"""

NARROW = """
@triton.jit
def one(x, w, g, y, K: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n, k = tl.arange(0, N), tl.arange(0, STEP)
    h = tl.zeros((ROWS, N), tl.float32)
    for at in range(0, K, STEP):
        a = tl.load(x + r[:, None] * K + (at + k)[None, :])
        b = tl.load(w + (at + k)[:, None] * N + n[None, :])
        h = tl.dot(a, b, h)
    h -= (tl.sum(h, 1) / N)[:, None]
    h *= tl.rsqrt(tl.sum(h * h, 1) / N + 1e-5)[:, None]
    v = h * tl.load(g + n)[None, :] + tl.load(g + n)[None, :]
    v = v / (1 + tl.exp(v * (v * v * -0.0713548 - 1.5957691)))
    tl.store(y + r[:, None] * N + n[None, :], v.to(tl.bfloat16))

# two: torch.mm(x, w, out=h), and a kernel of the same lines from h -= on, which loads h
"""


class WithSource(Shown):
    """A table with the source of a kernel that it times, folded."""

    source = ""

    def _repr_html_(self) -> str:
        source = f"<pre>{html.escape(self.source.strip())}</pre>"
        return f"{self.html()}<details><summary>Source</summary>{source}</details>"


class Second(WithSource):
    """A table of times with the source of `SECOND`."""

    source = SECOND


class Narrow(WithSource):
    """A table of times with the source of `NARROW`."""

    source = NARROW


def whole_layer() -> Shown:
    """Times of a product, layer norm and GELU: a library's product and a second kernel, or one kernel."""
    rows = tuple(
        (
            f"{row['rows']:,} × {row['k']:,}",
            *(duration(1e3 * us) for us in (row["two_us"], row["one_us"]["8"], row["one_us"]["4"])),
        )
        for row in recorded()["whole_layer"]
    )
    headings = ("x", "cuBLAS and second_kernel", "one_kernel", "one_kernel, ROWS = 4")
    return Second(f"Product, layer norm and GELU, 1,024 columns, {H200.label}", headings, rows)


def whole_layer_memory() -> str:
    """Return the DRAM traffic that Nsight Compute counted for the smallest of these layers."""
    seen = recorded()["whole_layer_memory"]["kernels"]
    read = {name: size(counted["dram_read_bytes"]) for name, counted in seen.items()}
    return (
        f"one_kernel read {read['one_kernel']} of DRAM; cuBLAS's product and second_kernel read "
        f"{read['product']} and {read['second_kernel']}; {H200.label}, by Nsight Compute"
    )


def narrow_layers() -> Shown:
    """Times of the same layer with square weights, on tensor cores, in one kernel and in two."""
    found = recorded()["narrow_layers"]
    rows = tuple(
        (
            f"{row['columns']:,}",
            f"{row['rows']:,}",
            duration(1e3 * row["two_us"]),
            duration(1e3 * row["one_us"]),
            f"{row['two_us'] / row['one_us']:.2f} ×",
        )
        for row in found["layers"]
    )
    title = f"Layers in BF16, Triton {found['triton']}, {H200.label}"
    return Narrow(title, ("columns", "rows", "two kernels", "one kernel", "times as fast"), rows)


def symbols() -> Shown:
    """Numbers of programs that ``torch.compile`` had made after each call, by the rows of its argument."""
    rows = tuple(
        (row["option"], listing(row["sizes"]), listing(row["compiled_after_each_call"]))
        for row in recorded()["symbols"]
    )
    headings = ("option", "rows in each call", "programs after each call")
    return Shown(f"torch.compile and changing sizes, {H200.label}", headings, rows)


def listing(numbers: list[int]) -> str:
    """Return numbers as text, separated by commas."""
    return ", ".join(map(str, numbers))
