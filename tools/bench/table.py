"""``gpulab bench``: a table of the virtual GPU's times on this machine.

All times are wall-clock times of this computer's processor, measured here and now; nothing in the
table is the speed of a GPU. The kernels take turns, so that whatever else the machine does falls on
all of them, and each row gives the median. Results are checked before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpulab.views.tables import Table
from tools.bench.checks import TARGETS_MS, time_sanitized_matmul
from tools.bench.simulator import SimulatorTimes, run_simulator
from tools.bench.timelines import LAUNCHES, MAX_SLOWDOWN, time_recorded_launches
from tools.bench.traces import TRACE_TARGET_MS, time_slowest_trace
from tools.corpus import read_kernel_code
from virtualgpu.errors import GpulabError
from virtualgpu.records import Dim3, Provenance

if TYPE_CHECKING:
    from virtualgpu.engine import Program
    from virtualgpu.model.memory import DeviceMemory

TARGET = 80
VECTOR_LENGTH = 1 << 20
MATRIX_SIZE = 256
TILE = 16
WIDTH = 1024
HEIGHT = 768
MAX_ITERATIONS = 256
IMPORT_TARGET_S = 0.3
JIT_TARGET_MS = 150.0


class BenchmarkError(GpulabError, RuntimeError):
    """Error for a kernel with wrong results, whose time is meaningless."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table, with times in milliseconds; ``target_ms`` is the project's own limit."""

    name: str
    median_ms: float | None
    min_ms: float | None = None
    max_ms: float | None = None
    target_ms: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """Return ``ok`` or ``slow``, or an empty string if there is no target."""
        if self.target_ms is None or self.median_ms is None:
            return ""
        return "ok" if self.median_ms <= self.target_ms else "slow"

    @classmethod
    def of(cls, name: str, times_s: Sequence[float], target_ms: float | None = None, note: str = "") -> Row:
        """Return a row with the median, minimum and maximum of repeated times in seconds."""
        in_ms = [1e3 * value for value in times_s]
        return cls(name, statistics.median(in_ms), min(in_ms), max(in_ms), target_ms, note)


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel with its launch shape and inputs; ``check`` returns whether the output is right."""

    name: str
    file: str
    kernel: str
    grid: Dim3
    block: Dim3
    inputs: tuple[npt.NDArray[Any], ...]
    output_shape: tuple[int, ...]
    output_dtype: npt.DTypeLike
    scalars: tuple[int, ...]
    target_ms: float | None
    check: Callable[[npt.NDArray[Any]], bool]

    @property
    def threads(self) -> int:
        return int(np.prod(self.grid)) * int(np.prod(self.block))


@dataclass(slots=True)
class LoadedCase:
    """A compiled case with its arrays on the virtual device."""

    case: Case
    code: str
    ptx: str
    program: Program
    memory: DeviceMemory
    params: bytes
    output: npt.NDArray[Any]
    compile_s: float

    def launch(self, instrument: str, program: Program | None = None) -> Any:
        """Run the kernel once."""
        from virtualgpu.engine import PackedLaunch, RunOptions

        launch = PackedLaunch(self.case.kernel, self.case.grid, self.case.block, self.params)
        return (program or self.program).launch(launch, self.memory, RunOptions(instrument=instrument))

    def seconds(self, instrument: str, program: Program | None = None) -> float:
        """Time one launch."""
        start_s = time.perf_counter()
        self.launch(instrument, program)
        return time.perf_counter() - start_s


def make_cases() -> tuple[Case, ...]:
    """Return the kernels that are timed, with fixed inputs."""
    random = np.random.default_rng(1)
    a, b = (random.random(VECTOR_LENGTH, dtype=np.float32) for _ in range(2))
    left_matrix, right_matrix = (
        random.random((MATRIX_SIZE, MATRIX_SIZE), dtype=np.float32) for _ in range(2)
    )
    product = left_matrix.astype(np.float64) @ right_matrix.astype(np.float64)
    tiles = MATRIX_SIZE // TILE
    return (
        Case(
            "vector add, 1,048,576 threads",
            "vector_add",
            "vector_add",
            (VECTOR_LENGTH // 256, 1, 1),
            (256, 1, 1),
            (a, b),
            a.shape,
            np.float32,
            (VECTOR_LENGTH,),
            8.0,
            lambda c: bool(np.array_equal(c, a + b)),
        ),
        Case(
            "tiled matmul, 256 × 256",
            "matmul",
            "matmul_tiled",
            (tiles, tiles, 1),
            (TILE, TILE, 1),
            (left_matrix, right_matrix),
            left_matrix.shape,
            np.float32,
            (MATRIX_SIZE,),
            100.0,
            lambda c: bool(np.allclose(c, product, rtol=1e-4)),
        ),
        Case(
            f"Mandelbrot, {WIDTH} × {HEIGHT}, limit {MAX_ITERATIONS}",
            "mandelbrot",
            "mandelbrot",
            (WIDTH // 16, HEIGHT // 16, 1),
            (16, 16, 1),
            (),
            (HEIGHT, WIDTH),
            np.int32,
            (WIDTH, HEIGHT, MAX_ITERATIONS),
            60.0,
            _mandelbrot_is_right,
        ),
    )


def _mandelbrot_is_right(iterations: npt.NDArray[Any]) -> bool:
    # Every 16th pixel in double precision. At the edge of the set single precision leads to other
    # counts, so a few may differ.
    x, y = np.meshgrid(np.arange(0, WIDTH, 16), np.arange(0, HEIGHT, 16))
    c = (-2 + 2.5 * x / WIDTH) + 1j * (-1.25 + 2.5 * y / HEIGHT)
    z = np.zeros_like(c)
    iteration_counts = np.zeros(c.shape, dtype=np.int32)
    for _ in range(MAX_ITERATIONS):
        is_inside = (z.real**2 + z.imag**2) < 4
        iteration_counts += is_inside
        z = np.where(is_inside, z * z + c, z)
    return bool(np.mean(iteration_counts == iterations[::16, ::16]) > 0.98)


def load(case: Case) -> LoadedCase:
    """Compile a case, put its arrays on a virtual device, run it once and check the result.

    Raises
    ------
    BenchmarkError
        If the kernel's output differs from NumPy's.
    NvrtcMissingError
        If there is no NVRTC on this machine.
    """
    from virtualgpu.compile import nvrtc
    from virtualgpu.engine import Program
    from virtualgpu.model.memory import DeviceMemory

    kernel_text = read_kernel_code(f"{case.file}.cu")
    start_s = time.perf_counter()
    ptx = nvrtc.compile_ptx(kernel_text, target=TARGET).ptx
    compile_s = time.perf_counter() - start_s
    memory = DeviceMemory(256 << 20)
    addresses = []
    size_bytes = int(np.prod(case.output_shape)) * np.dtype(case.output_dtype).itemsize
    for values in (*case.inputs, None):
        nbytes = size_bytes if values is None else values.nbytes
        address = memory.malloc(nbytes)
        memory.track_allocation(address, nbytes, "an array of the benchmark")
        addresses.append(address)
        if values is not None:
            memory.view(address, nbytes)[:] = values.reshape(-1).view(np.uint8)
    params = struct.pack(f"<{len(addresses)}Q{len(case.scalars)}i", *addresses, *case.scalars)
    output = memory.view(addresses[-1], size_bytes).view(case.output_dtype).reshape(case.output_shape)
    loaded_case = LoadedCase(
        case, kernel_text, ptx, Program(ptx, kernel_text), memory, params, output, compile_s
    )
    loaded_case.launch("counters")
    if not case.check(output):
        raise BenchmarkError(
            f"{case.name}: the result differs from NumPy's, so its time means nothing. Run `make test`."
        )
    return loaded_case


@contextmanager
def empty_cache() -> Iterator[None]:
    """Use an empty cache folder for compiled code, so that compilation is included in the time."""
    previous_folder = os.environ.get("GPULAB_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="gpulab-bench-") as folder:
        os.environ["GPULAB_CACHE_DIR"] = folder
        try:
            yield
        finally:
            if previous_folder is None:
                del os.environ["GPULAB_CACHE_DIR"]
            else:
                os.environ["GPULAB_CACHE_DIR"] = previous_folder


def time_jit(loaded_case: LoadedCase, number: int) -> tuple[float, float]:
    """Return the compilation times from PTX to machine code, without and with the cache on disk.

    Parameters
    ----------
    loaded_case
        A case that has run before.
    number
        A number not used before: it changes the text, so that nothing in memory can be reused.
    """
    from virtualgpu.engine import Program

    times_s = []
    with empty_cache():
        for copy_name in ("a", "b"):
            program = Program(f"{loaded_case.ptx}\n// copy {number}{copy_name}\n", loaded_case.code)
            first_s = loaded_case.seconds("counters", program)
            times_s.append(max(first_s - loaded_case.seconds("counters", program), 0.0))
    return times_s[0], times_s[1]


def time_import(statement: str, rounds: int) -> list[float]:
    """Time an import in fresh processes.

    Parameters
    ----------
    statement
        The import statement, such as ``import gpulab``.
    rounds
        The number of processes.
    """
    timing_code = f"import time; s = time.perf_counter(); {statement}; print(time.perf_counter() - s)"
    environment = {**os.environ, "GPULAB_DEVICE": "virtual:A100"}
    times_s = []
    for _ in range(rounds):
        process = subprocess.run(
            [sys.executable, "-c", timing_code], capture_output=True, text=True, check=True, env=environment
        )
        times_s.append(float(process.stdout.split()[-1]))
    return times_s


def make_simulator_row(
    loaded_case: LoadedCase, engine_s: float, times: SimulatorTimes | None, reason: str
) -> Row:
    """Return a row for the Numba CUDA simulator: the time of its first blocks, scaled to all threads."""
    name = f"{loaded_case.case.name}: Numba CUDA simulator"
    simulator_s = times.kernels.get(loaded_case.case.kernel) if times else None
    if simulator_s is None or times is None:
        return Row(name, None, note=f"not available: {reason}")
    scaled_s = simulator_s.seconds / simulator_s.threads * loaded_case.case.threads
    row_note = (
        f"{scaled_s / engine_s:,.0f} × the virtual GPU's time; extrapolated from {simulator_s.threads:,} "
        f"threads ({simulator_s.seconds:.2g} s), {times.versions}"
    )
    return Row(name, 1e3 * scaled_s, note=row_note)


def measure(rounds: int = 15, simulator: bool = True) -> list[Row]:
    """Return the rows of the table, measured now.

    Parameters
    ----------
    rounds
        How often each kernel is launched; rows give the median.
    simulator
        Also run the Numba CUDA simulator (a few seconds), where it is installed.

    Raises
    ------
    BenchmarkError
        If a kernel's result is wrong.
    """
    with empty_cache():
        loaded_cases = [load(case) for case in make_cases()]
    counted_times_s: dict[str, list[float]] = {loaded_case.case.kernel: [] for loaded_case in loaded_cases}
    uncounted_times_s: dict[str, list[float]] = {loaded_case.case.kernel: [] for loaded_case in loaded_cases}
    for loaded_case in loaded_cases:
        loaded_case.launch("none")  # compiled before it is timed
    for _ in range(rounds):
        for loaded_case in loaded_cases:
            counted_times_s[loaded_case.case.kernel].append(loaded_case.seconds("counters"))
            uncounted_times_s[loaded_case.case.kernel].append(loaded_case.seconds("none"))
    rows = []
    for loaded_case in loaded_cases:
        counters = loaded_case.launch("counters").counters
        row_note = f"{counters.thread_instructions / 1e6:,.1f} M thread instructions"
        rows.append(
            Row.of(
                f"{loaded_case.case.name}, counters",
                counted_times_s[loaded_case.case.kernel],
                loaded_case.case.target_ms,
                row_note,
            )
        )
        uncounted_s = uncounted_times_s[loaded_case.case.kernel]
        ratio = statistics.median(counted_times_s[loaded_case.case.kernel]) / statistics.median(uncounted_s)
        rows.append(
            Row.of(f"{loaded_case.case.name}, plain", uncounted_s, note=f"counters cost {ratio:.2f} ×")
        )
    for loaded_case in loaded_cases:
        jit_times_s = [time_jit(loaded_case, copy_number) for copy_number in range(3)]
        cached_ms = 1e3 * statistics.median(cached_s for _, cached_s in jit_times_s)
        nvrtc_ms = 1e3 * loaded_case.compile_s
        row_note = f"after other kernels, from disk in {cached_ms:.0f} ms; NVRTC: {nvrtc_ms:.0f} ms"
        uncached_s = [uncached_time for uncached_time, _ in jit_times_s]
        rows.append(
            Row.of(f"{loaded_case.case.kernel}: PTX to machine code", uncached_s, JIT_TARGET_MS, row_note)
        )
    traced_kernel, trace_times = time_slowest_trace()
    row_note = f"the slowest of the course's kernels, {traced_kernel}"
    rows.append(Row.of("full trace of one warp", trace_times, TRACE_TARGET_MS, row_note))
    for size, target_ms in TARGETS_MS.items():
        checked_s, uncounted_s = time_sanitized_matmul(size, 3)
        row_note = f"plain beside it: {1e3 * statistics.median(uncounted_s):.0f} ms"
        rows.append(Row.of(f"gl.sanitize, tiled matmul, {size} × {size}", checked_s, target_ms, row_note))
    recorded_s, plain_s = time_recorded_launches()
    row_note = f"plain beside it: {1e3 * plain_s:.0f} ms; recording costs {recorded_s / plain_s:.2f} ×"
    limit_ms = MAX_SLOWDOWN * 1e3 * plain_s
    rows.append(Row.of(f"gl.timeline of {LAUNCHES:,} launches", [recorded_s], round(limit_ms), row_note))
    simulator_times, reason = run_simulator() if simulator else (None, "left out (--no-simulator)")
    for loaded_case in loaded_cases[:2]:
        engine_s = statistics.median(counted_times_s[loaded_case.case.kernel])
        rows.append(make_simulator_row(loaded_case, engine_s, simulator_times, reason))
    rows.append(Row.of("import gpulab", time_import("import gpulab", 5), 1e3 * IMPORT_TARGET_S))
    first_array_code = "from gpulab import cp; cp.arange(4).sum()"
    rows.append(
        Row.of("first array on the virtual GPU", time_import(first_array_code, 3), note=first_array_code)
    )
    return rows


def provenance() -> Provenance:
    """Return the names of this computer's processor and of the processor that kernels are compiled for."""
    import llvmlite

    from virtualgpu.engine.machine import processor

    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    machine_text = (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, llvmlite {llvmlite.__version__}"
    )
    return Provenance(
        "measured", name, f"kernels compiled for {processor.find_chosen_processor()}; {machine_text}"
    )


def make_table(rows: Sequence[Row], source: Provenance) -> Table:
    """Return the rows as a table to be printed."""

    def number(value: float | None) -> str:
        if value is None:
            return "–"
        return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"

    cells = tuple(
        (
            row.name,
            number(row.median_ms),
            f"{number(row.min_ms)} to {number(row.max_ms)}" if row.min_ms is not None else "–",
            f"≤ {row.target_ms:g} {row.verdict}" if row.target_ms is not None else "",
            row.note,
        )
        for row in rows
    )
    return Table(source.label, ("what", "median ms", "range ms", "target", "note"), cells)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``gpulab bench``.

    Returns
    -------
    int
        0, or 1 with ``--check`` if a figure is above its limit.
    """
    parser = argparse.ArgumentParser(prog="gpulab bench", description="Time the virtual GPU on this machine.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--rounds", type=int, default=15, metavar="N", help="launches per kernel (default: 15)"
    )
    parser.add_argument("--no-simulator", action="store_true", help="leave out the Numba CUDA simulator")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare processor times with their limits instead; exit with 1 if a limit is exceeded",
    )
    options = parser.parse_args(arguments)
    if options.check:
        from tools.bench import speeds

        return int(speeds.check() > 0)
    rows = measure(max(options.rounds, 1), not options.no_simulator)
    origin = provenance()
    if options.json:
        row_dicts = [{**asdict(row), "verdict": row.verdict} for row in rows]
        print(json.dumps({"provenance": asdict(origin), "rows": row_dicts}, indent=2, ensure_ascii=False))
    else:
        print(make_table(rows, origin).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
