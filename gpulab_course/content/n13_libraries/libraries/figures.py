"""Figures of libraries, recorded on an H200: products by format, cuBLAS's workspaces, PyTorch's tuner."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from gpulab.views.tables import NOTHING, Table
from gpulab.words import duration, number, size

_SMALLEST = 2048  # smaller products wait for the host


def recorded() -> Any:
    """Return the record of an H200."""
    file = resources.files("gpulab_course.content.n13_libraries.libraries") / "recorded.json"
    return json.loads(file.read_text(encoding="utf-8"))


def _title(what: str) -> str:
    known = recorded()
    return f"{what}, PyTorch {known['versions']['PyTorch']}, recorded on an {known['device']}"


def ladder() -> Table:
    """TFLOP/s of square products by format, each the mean of several in a row, the median of five such."""
    # PyTorch's product of bytes wants the second factor column-major; it was recorded row-major.
    times = {(dtype, n): time_ns for dtype, n, time_ns in recorded()["gemm"] if dtype != "int8"}
    sizes = sorted({n for _, n in times if n >= _SMALLEST})
    rows = tuple(
        (dtype, *(number(2 * n**3 / ns / 1e3) if (ns := times.get((dtype, n))) else NOTHING for n in sizes))
        for dtype in dict.fromkeys(dtype for dtype, _ in times)
    )
    return Table(_title("Products in TFLOP/s"), ("format", *(f"{n:,}³" for n in sizes)), rows)


def workspaces() -> Table:
    """Products with and without memory that cuBLAS may use for itself."""
    known = recorded()["workspace"]["products"]
    rows = []
    for name, both in known.items():
        with_ns, without_ns = (both[how]["kernels_ns"] for how in ("with", "without"))
        kernels = [str(len(both[how]["kernels"])) for how in ("with", "without")]
        shape, dtype = name.replace("torch.", "").split()
        times = f"{number(without_ns / with_ns)} ×"
        m, n, k = (f"{int(one):,}" for one in shape.split("x"))
        rows.append(
            (
                f"{m} × {n} × {k}",
                dtype,
                kernels[0],
                duration(with_ns),
                kernels[1],
                duration(without_ns),
                times,
            )
        )
    headings = ("m × n × k", "dtype", "kernels with", "time", "kernels without", "time", "times as long")
    return Table(_title("Products with cuBLAS's workspace and without"), headings, tuple(rows))


def workspace_cost() -> float:
    """Return the time of the longest sums without a workspace, relative to that with one."""
    both = recorded()["workspace"]["products"]["64x64x65536 torch.float32"]
    return float(both["without"]["kernels_ns"] / both["with"]["kernels_ns"])


def workspace() -> str:
    """Describe how much memory the first product of each stream takes from PyTorch's allocator."""
    known = recorded()["workspace"]
    first, other = (size(known[key]) for key in ("first_product_bytes", "another_stream_bytes"))
    return _title(
        f"The first product of a process allocates {first}, the first of another stream {other} more"
    )


def tunable() -> str:
    """Describe the candidates among which PyTorch's TunableOp had to choose."""
    known = recorded()["tunable"]
    most = listed(known["candidates"])
    return _title(
        f"torch.cuda.tunable: {known['tuned']} choices out of {most} candidates each, all of them named "
        f"{listed(known['names'])}; at most {known['max_tuning_duration_ms']} ms a candidate by default"
    )


def listed(values: list[Any]) -> str:
    """Values in a sentence."""
    return ", ".join(map(str, values))
