"""A table of CUDA errors; each error is caused by a function that runs in a separate process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpulab import session
from gpulab.lab.faults.sandbox import Sandboxed, sandbox
from gpulab.views.tables import NO_VALUE_MARK, Table
from virtualgpu.records import Provenance

_ERROR_KERNELS_CODE = (Path(__file__).parent / "kernels" / "errors.cu").read_text(encoding="utf-8")


def _run_kernel(name: str, dtype: str = "float32") -> None:
    cp = session.cp()
    x = cp.zeros(32, dtype=dtype)
    cp.RawKernel(_ERROR_KERNELS_CODE, name)((1,), (32,), (x,))
    y = cp.arange(32) + 1
    y.get()


def too_much_memory() -> None:
    """Try to allocate a thousand times the memory of the largest GPU."""
    session.cp().zeros(1 << 50)


def too_many_threads() -> None:
    """Try to launch blocks of 4,096 threads."""
    cp = session.cp()
    cp.RawKernel(_ERROR_KERNELS_CODE, "gives_up")((1,), (4096,), (cp.ones(4096, dtype=cp.float32),))


def illegal_address() -> None:
    """Write to an address that is far outside of all allocations."""
    _run_kernel("far_away")


def misaligned_address() -> None:
    """Store 8 bytes at an address that is not a multiple of 8."""
    _run_kernel("odd_address")


def device_assert() -> None:
    """Run a kernel with an assertion that fails."""
    _run_kernel("claims")


def launch_failure() -> None:
    """Run a kernel that calls ``__trap()``."""
    _run_kernel("gives_up")


def endless_kernel() -> None:
    """Run a kernel that waits forever for a value that no thread writes."""
    _run_kernel("waits", "int32")


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One row of the table of CUDA errors, with the function that causes the error, and its remedy."""

    function: Callable[[], None]
    remedy: str


ERROR_ROWS = (
    ErrorRow(too_much_memory, "free memory, or use smaller or fewer arrays (10b)"),
    ErrorRow(too_many_threads, "look up the limits of the device (01)"),
    ErrorRow(illegal_address, "gl.sanitize reports the thread and the line"),
    ErrorRow(misaligned_address, "wide loads need addresses that are multiples of their size (05a)"),
    ErrorRow(device_assert, "read the condition that is printed, with its file and line"),
    ErrorRow(launch_failure, "look for __trap() and for divergent barriers"),
    ErrorRow(endless_kernel, "look for a value that no thread sets"),
)


class ErrorCatalogue:
    """A table of CUDA errors, with the sandbox result of each function in the dict ``runs``."""

    def __init__(self, runs: dict[str, Sandboxed], provenance: Provenance) -> None:
        self.runs = runs
        error_rows = []
        for row in ERROR_ROWS:
            run_record = runs[row.function.__name__].record
            error = run_record.error or f"ended: {run_record.ended.split(';')[0]}"
            context_state = "lost" if run_record.sticky or run_record.ended else "lives"
            raising_line = run_record.raised.text if run_record.raised else NO_VALUE_MARK
            name = row.function.__name__.replace("_", " ")
            first_line = error.split("\n", 1)[0]
            error_rows.append(
                (
                    name,
                    first_line if len(first_line) < 70 else f"{first_line[:69]}…",
                    str(run_record.status or NO_VALUE_MARK),
                    raising_line[:44],
                    context_state,
                    row.remedy,
                )
            )
        headings = ("cause", "error message", "status", "line that raised", "context", "remedy")
        self._table = Table(
            f"Errors, each in a separate process, on {provenance.device}", headings, tuple(error_rows)
        )

    @property
    def lost(self) -> list[str]:
        """The names of the functions that leave the CUDA context unusable."""
        return [name for name, result in self.runs.items() if result.record.sticky or result.record.ended]

    def __repr__(self) -> str:
        return self._table.text()

    def _repr_html_(self) -> str:
        return self._table.card()


def run() -> ErrorCatalogue:
    """Run the function of each row in a sandbox process, and return the table of CUDA errors."""
    runs = {row.function.__name__: sandbox(row.function, limit_s=3.0) for row in ERROR_ROWS}
    return ErrorCatalogue(runs, session.backend().provenance)
