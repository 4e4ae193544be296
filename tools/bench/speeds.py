"""``gpulab bench --check``: compare processor times with their limits.

A figure is processor time divided by that of a reference loop. Each is the minimum of several rounds in
which they take turns, so that a busy machine slows down both. Limits are about 1.6 times the figure measured
when it was entered, on two busy cores of an AMD EPYC.
"""

from __future__ import annotations

import importlib
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gpulab.views.tables import Table
from tools.bench.table import LoadedCase, empty_cache, load, make_cases, provenance
from virtualgpu.engine.machine import processor

Work = Callable[[], object]
ROUNDS = 3
ROOT = Path(__file__).resolve().parents[2]
_RECORDED_LAUNCHES = 1000
# One round is enough for a figure with a limit of more reference loops than this.
_MIN_LONG_LOOPS = 100


@dataclass(frozen=True, slots=True)
class WorkTime:
    """The processor time of a piece of work, in reference loops and in ms, and its limit in loops."""

    name: str
    limit: float
    loops: float
    milliseconds: float

    @property
    def slow(self) -> bool:
        """Whether the processor time is above its limit."""
        return self.loops > self.limit


# In reference loops.
LIMITS = {
    "vector add, 1,048,576 threads": 0.23,
    "tiled matmul, 256 × 256": 0.8,
    "Mandelbrot, 1024 × 768, limit 256": 0.55,
    "vector add, 1,048,576 threads, x86-64-v3": 0.23,
    "tiled matmul, 256 × 256, x86-64-v3": 0.8,
    "Mandelbrot, 1024 × 768, limit 256, x86-64-v3": 0.82,
    "matmul_tiled: PTX to machine code": 4.5,
    "mandelbrot: PTX to machine code": 2.9,
    "1,000 launches": 60,
    "1,000 launches under a timeline": 60,
    "1,000 launches under gl.check_streams": 93,
    "allocator: lives of 100,000 events": 9.6,
    "allocator: ten maps of 100,000 events": 2.8,
    "overlap of 100,000 intervals": 19.5,
    "timeline of 100,000 operations laid out": 25,
    "timeline of 25,000 operations saved": 19,
    "a file of 1,000,000 events opened": 370,
    "32,768 blocks placed": 0.7,
    "any view shown": 2.0,
    "a launch counted": 15.0,
    "a launch diagnosed": 2.1,
    "gl.traffic of nine expressions": 2.6,
    "1,000,000 random numbers of Philox4x32-10": 0.9,
    "a right answer judged": 19,
    "import gpulab": 1.4,
}


def run_reference_loop() -> int:
    """Run a loop of typical Python and NumPy operations for some hundredths of a second."""
    sum_by_key: dict[int, int] = {}
    for number in range(200_000):
        sum_by_key[number & 1023] = sum_by_key.get(number & 511, 0) + number
    values = np.arange(100_000, dtype=np.float64)
    for _ in range(100):
        values = np.sqrt(values * values + 1.0)
    return len(sum_by_key) + int(values[0])


def measure_spent_s() -> float:
    """Return the processor time in seconds of this process and its finished child processes."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@contextmanager
def compile_for_level(level: str) -> Iterator[None]:
    """Compile kernels for a given level of processor within a ``with`` block."""
    previous_level = os.environ.get(processor.CPU_VARIABLE)
    os.environ[processor.CPU_VARIABLE] = level
    try:
        yield
    finally:
        if previous_level is None:
            del os.environ[processor.CPU_VARIABLE]
        else:
            os.environ[processor.CPU_VARIABLE] = previous_level


def _make_kernel_works(level: str) -> Iterator[tuple[str, Work]]:
    for case in make_cases():
        loaded_case = load(case)
        name = case.name if level == processor.NATIVE_CHOICE else f"{case.name}, {level}"
        yield name, partial(loaded_case.launch, "counters")
        if level == processor.NATIVE_CHOICE and case.kernel != "vector_add":
            yield f"{case.kernel}: PTX to machine code", _make_compile_work(loaded_case)


def _make_compile_work(loaded_case: LoadedCase) -> Work:
    from virtualgpu.engine import Program

    copy_numbers = itertools.count()

    def work() -> None:
        with empty_cache():
            loaded_case.launch(
                "counters", Program(f"{loaded_case.ptx}\n// copy {next(copy_numbers)}\n", loaded_case.code)
            )

    return work


def _make_launch_works() -> Iterator[tuple[str, Work]]:
    import gpulab as gl
    from gpulab import session

    session.use_device("virtual:A100")
    cp = session.cp()
    kernel = cp.RawKernel('extern "C" __global__ void add(float* x) { x[threadIdx.x] += 1.0f; }', "add")
    x = cp.ones(32, cp.float32)

    def plain() -> None:
        for _ in range(_RECORDED_LAUNCHES):
            kernel((1,), (32,), (x,))

    def recorded() -> None:
        recorder = session.backend().timeline_recorder()
        recorder.start()
        plain()
        if len(recorder.stop().activities) != _RECORDED_LAUNCHES:
            raise RuntimeError("The timeline lacks a launch, so that its time means nothing.")

    def checked() -> None:
        with gl.check_streams() as report:
            plain()
        if report.findings:
            raise RuntimeError("The order of launches in one stream was complained of.")

    yield f"{_RECORDED_LAUNCHES:,} launches", plain
    yield f"{_RECORDED_LAUNCHES:,} launches under a timeline", recorded
    yield f"{_RECORDED_LAUNCHES:,} launches under gl.check_streams", checked


def _make_diagnosis_works() -> Iterator[tuple[str, Work]]:
    """Yield `gl.count` and `gl.diagnose` of a launch; the second may take at most twice as long."""
    import gpulab as gl
    from gpulab import session

    session.use_device("virtual:A100")
    flawed_kernels = importlib.import_module("gpulab_course.content.n17_interview.cards.hidden.flawed")
    flawed_case = flawed_kernels.draw_flawed_kernel(5, "uncoalesced", 2)
    kernel, grid, block, args, _ = flawed_case.launch(session.cp(), "flawed")
    yield "a launch counted", lambda: gl.count(kernel, grid, block, args)
    yield "a launch diagnosed", lambda: gl.diagnose(kernel, grid, block, args)


def _make_array_works() -> Iterator[tuple[str, Work]]:
    """Yield `gl.traffic` of array code, and random numbers drawn with the device's algorithm."""
    import gpulab as gl
    from gpulab import session

    session.use_device("virtual:A100")
    cp = session.cp()
    x, w, b = (cp.random.standard_normal((256, 1024)).astype(cp.float32) for _ in range(3))

    def gelu(x: Any, w: Any, b: Any) -> Any:
        v = x * w + b
        return v / (1 + cp.exp(v * (v * v * -0.0713548 - 1.5957691)))

    generator = cp.random.Generator(cp.random.Philox4x3210(1))
    yield "gl.traffic of nine expressions", lambda: gl.traffic(gelu, x, w, b)
    yield "1,000,000 random numbers of Philox4x32-10", lambda: generator.random(1_000_000).get()


def _make_record_works(folder: Path) -> Iterator[tuple[str, Work]]:
    """Long records, made as the tests make theirs."""
    from gpulab.allocators.steps import make_block_map, make_history
    from gpulab.analysis.files.read import open_file
    from gpulab.analysis.files.write import save_timeline
    from gpulab.analysis.overlap import find_overlaps
    from gpulab.views.timeline.view import TimelineView
    from virtualgpu.model.placement import place_blocks

    def tests(name: str) -> Any:
        return importlib.import_module(f"tests.{name}")

    trace_tests, timeline_tests, interval_tests = (
        tests(name) for name in ("allocators.traces", "views.timelines", "trace.test_overlap")
    )
    trace = trace_tests.trace_of(trace_tests.many_rows())
    block_history = make_history(trace)
    map_steps = np.random.default_rng(0).integers(0, 100_001, 10).tolist()
    yield "allocator: lives of 100,000 events", lambda: make_history(trace)
    yield (
        "allocator: ten maps of 100,000 events",
        lambda: [make_block_map(block_history, map_step) for map_step in map_steps],
    )
    generated_records = interval_tests.generated(7, 100_000, 10_000_000, 900)
    yield "overlap of 100,000 intervals", lambda: find_overlaps(generated_records)
    timeline = timeline_tests.many()
    yield "timeline of 100,000 operations laid out", lambda: TimelineView(timeline).close()
    short_timeline = timeline_tests.many(25_000)
    yield "timeline of 25,000 operations saved", lambda: save_timeline(short_timeline, folder / "saved.json")
    large_path = folder / "large.json"
    event_format = (
        '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": %d, "dur": 5, "args": {}}'
    )
    with large_path.open("w") as file:
        file.write('{"traceEvents": [')
        file.write(",\n".join(event_format % (10 * number) for number in range(1_000_000)))
        file.write("]}")
    yield "a file of 1,000,000 events opened", lambda: open_file(large_path)
    durations_ns = np.random.default_rng(4).uniform(500.0, 3000.0, 32_768)
    yield "32,768 blocks placed", lambda: place_blocks(durations_ns, 132, 8, 0.6)


def _make_answer_works() -> Iterator[tuple[str, Work]]:
    """A right answer whose kernels were compiled before, of an exercise with long ones."""
    from gpulab_course import folders
    from gpulab_course.teach.judge import KernelExercise
    from gpulab_course.teach.judge.check import judge

    exercise = folders.find_exercise("03-branch")
    assert isinstance(exercise, KernelExercise)

    def work() -> None:
        if not judge(exercise, exercise.source(exercise.reference)):
            raise RuntimeError("The right answer was not judged to its end.")

    work()
    yield "a right answer judged", work


def _find_slowest_view() -> tuple[str, Work]:
    """Return the display of the slowest view, in all its formats."""
    views = [make_view() for make_view in importlib.import_module("tests.views.makers").MAKERS.values()]
    view_renderers = [(f"{view_number}", view._repr_mimebundle_) for view_number, view in enumerate(views)]
    for _, render in view_renderers:
        render()
    minimum_s = measure_works(view_renderers)
    return "any view shown", dict(view_renderers)[max(minimum_s, key=minimum_s.__getitem__)]


def _run_import() -> None:
    subprocess.run([sys.executable, "-c", "import gpulab"], check=True, cwd=ROOT)


def make_works(folder: Path) -> Iterator[tuple[str, Work]]:
    """Yield the name of each benchmark and the function that it times."""
    yield from _make_kernel_works(processor.NATIVE_CHOICE)
    if processor.find_architecture() == "x86" and not processor.find_missing_features("x86-64-v3"):
        with compile_for_level("x86-64-v3"):
            yield from _make_kernel_works("x86-64-v3")
    yield from _make_launch_works()
    yield from _make_diagnosis_works()
    yield from _make_array_works()
    yield from _make_answer_works()
    yield from _make_record_works(folder)
    yield _find_slowest_view()
    yield "import gpulab", _run_import


def measure_works(timed_works: Sequence[tuple[str, Work]], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the minimum processor time of each piece of work in seconds. They are timed in turn."""
    minimum_s: dict[str, float] = {}
    for name, run_work in itertools.chain.from_iterable(itertools.repeat(timed_works, rounds)):
        start_s = measure_spent_s()
        run_work()
        minimum_s[name] = min(measure_spent_s() - start_s, minimum_s.get(name, float("inf")))
    return minimum_s


def judge_work(
    name: str,
    work: Work,
    limits: Mapping[str, float] = LIMITS,
    round_count: int = ROUNDS,
    loop: Work = run_reference_loop,
) -> WorkTime:
    """Time a piece of work and the reference loop. Repeat up to twice if it is too slow."""
    if limits[name] > _MIN_LONG_LOOPS:
        round_count = 1
    for tries_left in (2, 1, 0):
        minimum_s = measure_works([("", loop), (name, work)], round_count)
        work_time = WorkTime(name, limits[name], minimum_s[name] / minimum_s[""], 1e3 * minimum_s[name])
        if not work_time.slow or not tries_left:
            return work_time
    raise AssertionError("the last try returns")


def check() -> int:
    """Measure and print every processor time, and return how many are above their limits."""
    with tempfile.TemporaryDirectory(prefix="gpulab-bench-") as folder:
        work_times = [judge_work(name, work) for name, work in make_works(Path(folder))]
    rows = tuple(
        (
            work_time.name,
            f"{work_time.milliseconds:,.1f}",
            f"{work_time.loops:.3f}",
            f"{work_time.limit:g}",
            "slow" if work_time.slow else "ok",
        )
        for work_time in work_times
    )
    print(Table(provenance().label, ("what", "processor ms", "loops", "limit", ""), rows).text())
    return sum(work_time.slow for work_time in work_times)
