"""Tables and figures of notebook 12: times that were recorded on an H200."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from gpulab.views.tables import Table
from gpulab.words import duration, number, size
from virtualgpu.records import Provenance

# The tanh form of GELU with a single exponential; it reads only v.
GELU = "v / (1.0f + expf(v * (v * v * -0.0713548f - 1.5957691f)))"
H200 = Provenance("recorded", "NVIDIA H200", "CuPy 14.2, PyTorch 2.11")


def recorded() -> dict[str, Any]:
    """Load ``recorded.json``, which contains the times of kernels, caches and fused functions."""
    record: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))
    return record


def factors() -> Table:
    """Return a table of the speedup of one fused kernel over several kernels, by the number of elements."""
    pass_rows = recorded()["passes"]
    element_counts = sorted({row["n"] for row in pass_rows})
    pass_counts = sorted({row["passes"] for row in pass_rows})
    speedups = {(row["n"], row["passes"]): row["ops_us"] / row["one_us"] for row in pass_rows}
    length_rows = [
        (
            f"{element_count:,} elements",
            *(f"{speedups[element_count, pass_count]:.1f}" for pass_count in pass_counts),
        )
        for element_count in element_counts
    ]
    headings = ("passes", *map(str, pass_counts))
    return Table(f"How many times as fast one kernel is, {H200.label}", headings, tuple(length_rows))


def factor(passes: int, elements: int) -> float:
    """Return the speedup of one fused kernel over a chain of `passes` kernels."""
    pass_row = next(
        recorded_row
        for recorded_row in recorded()["passes"]
        if (recorded_row["passes"], recorded_row["n"]) == (passes, elements)
    )
    return float(pass_row["ops_us"] / pass_row["one_us"])


def one_launch() -> Table:
    """Return a table of the launches and the time of a softmax with and without ``cp.fuse``."""
    record = recorded()["softmax_of_one_row"]
    rows = (
        ("as written", number(len(record["ops"])), duration(1e3 * record["ops_us"])),
        ("cp.fuse", number(len(record["fused"])), duration(1e3 * record["fused_us"])),
    )
    return Table(f"Softmax of {record['n']:,} elements, {H200.label}", ("", "launches", "time"), rows)


def caches() -> Table:
    """Return a table of the times of a kernel's first launch, by the cache that contains its code."""
    times_ms = recorded()["caches_ms"]
    cache_rows = tuple((cache, duration(1e6 * time_ms)) for cache, time_ms in times_ms.items())
    return Table(f"First launch of a kernel, {H200.label}", ("its code is", "time"), cache_rows)


def cupyx_jit() -> str:
    """Return the CUDA source that ``cupyx.jit`` generated for a function in a recorded run."""
    return str(recorded()["cupyx_jit"])


SECOND_KERNEL_NOTE = """
extern "C" __global__ void second_kernel(const float* h, const float* b, float* y) {  // one block per row
    int column = 4 * threadIdx.x, first = blockIdx.x * N + column;
    float4 v = *(const float4*)(h + first);
    float row[4] = {v.x, v.y, v.z, v.w};
    norm_gelu(row, b + column, y + first);
}
"""

NARROW_LAYERS_NOTE = """
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

# The two kernels: torch.mm(x, w, out=h), and a kernel that loads h and has the same lines from h -= on
"""


class TableWithSource(Table):
    """A table of times, with the source code of a kernel in a section that the reader can expand."""

    source = ""

    def _repr_html_(self) -> str:
        source_html = f"<pre>{html.escape(self.source.strip())}</pre>"
        return f"{self.card()}<details><summary>Source</summary>{source_html}</details>"


class SecondKernelTable(TableWithSource):
    """A table of times with the kernel source code in the constant `SECOND_KERNEL_NOTE`."""

    source = SECOND_KERNEL_NOTE


class NarrowLayersTable(TableWithSource):
    """A table of times with the kernel source code in the constant `NARROW_LAYERS_NOTE`."""

    source = NARROW_LAYERS_NOTE


def whole_layer() -> Table:
    """Return a table of the times of a whole layer in two kernels and in one kernel."""
    rows = tuple(
        (
            f"{row['rows']:,} × {row['k']:,}",
            *(duration(1e3 * time_us) for time_us in (row["two_us"], row["one_us"]["8"], row["one_us"]["4"])),
        )
        for row in recorded()["whole_layer"]
    )
    headings = ("x", "cuBLAS and second_kernel", "one_kernel", "one_kernel, ROWS = 4")
    return SecondKernelTable(
        f"Matrix multiplication, layer norm and GELU, 1,024 columns, {H200.label}", headings, rows
    )


def whole_layer_memory() -> str:
    """Return a sentence about the DRAM reads of each kernel for the smallest layer, measured with Nsight
    Compute.
    """
    kernels = recorded()["whole_layer_memory"]["kernels"]
    dram_reads = {name: size(counters["dram_read_bytes"]) for name, counters in kernels.items()}
    return (
        f"one_kernel read {dram_reads['one_kernel']} from DRAM; cuBLAS's kernel and second_kernel read "
        f"{dram_reads['product']} and {dram_reads['second_kernel']}; {H200.label}, by Nsight Compute"
    )


def narrow_layers() -> Table:
    """Return a table of times for a layer with square weights on tensor cores, in two kernels and in one."""
    record = recorded()["narrow_layers"]
    rows = tuple(
        (
            f"{row['columns']:,}",
            f"{row['rows']:,}",
            duration(1e3 * row["two_us"]),
            duration(1e3 * row["one_us"]),
            f"{row['two_us'] / row['one_us']:.2f} ×",
        )
        for row in record["layers"]
    )
    title = f"Layers in BF16, Triton {record['triton']}, {H200.label}"
    return NarrowLayersTable(title, ("columns", "rows", "two kernels", "one kernel", "times as fast"), rows)


def symbols() -> Table:
    """Return a table that shows how many programs ``torch.compile`` had compiled after each call."""
    rows = tuple(
        (row["option"], join_with_commas(row["sizes"]), join_with_commas(row["compiled_after_each_call"]))
        for row in recorded()["symbols"]
    )
    headings = ("option", "rows in each call", "programs after each call")
    return Table(f"torch.compile and changing sizes, {H200.label}", headings, rows)


def join_with_commas(numbers: list[int]) -> str:
    """Return a list of numbers as text, separated by commas."""
    return ", ".join(map(str, numbers))
