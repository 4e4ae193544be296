"""Tables about libraries, recorded on an H200: products by format, cuBLAS workspaces, PyTorch's TunableOp."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from gpulab.views.tables import NO_VALUE_MARK, Table
from gpulab.words import duration, number, size

_MIN_MATRIX_SIZE = 2048  # the host limits smaller products


def recorded() -> Any:
    """Load the measurements that were recorded on an H200."""
    file = resources.files("gpulab_course.content.n13_libraries.libraries") / "recorded.json"
    return json.loads(file.read_text(encoding="utf-8"))


def _make_table_title(subject: str) -> str:
    """Return a table's title with the versions and the device of the recording."""
    record = recorded()
    return f"{subject}, PyTorch {record['versions']['PyTorch']}, recorded on an {record['device']}"


def speeds() -> Table:
    """Return a table of the TFLOP/s of square matrix multiplications by number format."""
    # PyTorch's int8 product requires a column-major second factor; it was recorded row-major.
    times_ns = {(dtype, n): time_ns for dtype, n, time_ns in recorded()["gemm"] if dtype != "int8"}
    dtype_names = dict.fromkeys(dtype for dtype, _ in times_ns)
    matrix_sizes = sorted({n for _, n in times_ns if n >= _MIN_MATRIX_SIZE})

    def format_rate(dtype: str, n: int) -> str:
        time_ns = times_ns.get((dtype, n))
        return number(2 * n**3 / time_ns / 1e3) if time_ns else NO_VALUE_MARK

    dtype_rows = tuple((dtype, *(format_rate(dtype, n) for n in matrix_sizes)) for dtype in dtype_names)
    return Table(
        _make_table_title("Matrix multiplications in TFLOP/s"),
        ("format", *(f"{n:,}³" for n in matrix_sizes)),
        dtype_rows,
    )


def workspaces() -> Table:
    """Return a table of the times of matrix products with and without a workspace for cuBLAS."""
    measured_products = recorded()["workspace"]["products"]
    product_rows = []
    for product_name, measurements in measured_products.items():
        with_ns, without_ns = (
            measurements[workspace_variant]["kernels_ns"] for workspace_variant in ("with", "without")
        )
        kernels = [
            str(len(measurements[workspace_variant]["kernels"])) for workspace_variant in ("with", "without")
        ]
        shape, dtype = product_name.replace("torch.", "").split()
        time_ratio_text = f"{number(without_ns / with_ns)} ×"
        m, n, k = (f"{int(extent):,}" for extent in shape.split("x"))
        product_rows.append(
            (
                f"{m} × {n} × {k}",
                dtype,
                kernels[0],
                duration(with_ns),
                kernels[1],
                duration(without_ns),
                time_ratio_text,
            )
        )
    headings = ("m × n × k", "dtype", "kernels with", "time", "kernels without", "time", "times as long")
    return Table(
        _make_table_title("Matrix multiplications with cuBLAS's workspace and without"),
        headings,
        tuple(product_rows),
    )


def workspace_cost() -> float:
    """Return how many times longer a matrix product with a large inner dimension takes without a
    workspace.
    """
    measurements = recorded()["workspace"]["products"]["64x64x65536 torch.float32"]
    return float(measurements["without"]["kernels_ns"] / measurements["with"]["kernels_ns"])


def workspace() -> str:
    """Return a sentence about the memory that the first matrix multiplication in each stream allocates."""
    record = recorded()["workspace"]
    first_size_text, other_size_text = (
        size(record[size_key]) for size_key in ("first_product_bytes", "another_stream_bytes")
    )
    return _make_table_title(
        f"The first matrix multiplication of a process allocates {first_size_text}, the first one in another "
        f"stream {other_size_text} more"
    )


def tunable() -> str:
    """Return a sentence about the candidates from which PyTorch's TunableOp can choose."""
    record = recorded()["tunable"]
    counts_text = join_with_commas(record["candidates"])
    return _make_table_title(
        f"torch.cuda.tunable: {record['tuned']} choices from {counts_text} candidates each, all of them "
        f"named {join_with_commas(record['names'])}; at most {record['max_tuning_duration_ms']} ms per "
        "candidate by default"
    )


def join_with_commas(values: list[Any]) -> str:
    """Return a list of values as text, separated by commas."""
    return ", ".join(map(str, values))
