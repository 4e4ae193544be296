"""The judge: example exercises, unusual answers, and state that a check must not change."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab_course.api import check, progress
from gpulab_course.teach.judge import (
    Budget,
    Case,
    DataGenerator,
    KernelExercise,
    MeasuredLaunch,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
    call,
    draw,
)
from gpulab_course.teach.judge.budget import is_within_budget
from gpulab_course.teach.judge.check import UnknownExerciseError, judge
from gpulab_course.teach.judge.kernel import bench
from virtualgpu.compile import nvrtc

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

LAST_BLOCK = """extern "C" __global__ void last_block(int* out, int n) {
    if (threadIdx.x == 0) atomicMax(out, (int)blockIdx.x);
}"""


def last_block_case(data: DataGenerator, n: int, block: Any) -> Case:
    blocks = draw.count_blocks(n, block[0])
    return Case(blocks, {"n": n, "out": np.zeros(1, np.int32)}, {"out": np.array([blocks - 1], np.int32)})


class FromText(KernelExercise):
    """An exercise with its reference as a string instead of a file."""

    def source(self, file: str) -> str:
        return LAST_BLOCK


ORDERED = FromText("demo", "Demo", "last_block", "int* out, int n", last_block_case, "-")


def stage_of(body: str) -> tuple[str, str]:
    verdict = judge(ORDERED, f'extern "C" __global__ void last_block(int* out, int n) {{ {body} }}')
    assert not verdict
    return verdict.failed_stage, verdict.message


@needs_nvrtc
def test_a_result_that_depends_on_the_order_of_blocks_is_not_accepted() -> None:
    stage, message = stage_of("if (threadIdx.x == 0) out[0] = blockIdx.x;")
    assert stage == "orders"
    assert "run in reverse order: out[0] is 0" in message
    assert "CUDA does not guarantee an order of blocks" in message


@needs_nvrtc
def test_a_race_fails_even_if_the_result_is_correct() -> None:
    stage, message = stage_of(
        "__shared__ int last; if (threadIdx.x == 0) last = gridDim.x - 1;"
        "if (threadIdx.x == blockDim.x - 1) atomicMax(out, last);"
    )
    assert stage == "hazards"
    assert "right only by chance" in message


@needs_nvrtc
def test_an_answer_that_relies_on_the_initial_output_fails() -> None:
    def case(data: DataGenerator, n: int, block: Any) -> Case:
        return Case(draw.count_blocks(n, block[0]), {"n": n}, {"out": np.arange(n, dtype=np.int32)})

    exercise = FromText("demo", "Demo", "last_block", "int* out, int n", case, "-")
    body = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) atomicAdd(&out[i], i);"
    verdict = judge(exercise, f'extern "C" __global__ void last_block(int* out, int n) {{ {body} }}')
    assert verdict.failed_stage == "results"
    assert "adds to the initial contents of the output" in verdict.message


@needs_nvrtc
def test_byte_order_marks_are_removed_and_other_characters_reported() -> None:
    code = 'extern "C" __global__ void last_block(int* out, int n) { out[0] = n; }'
    assert bench.read_kernel_answer(ORDERED, "\ufeff" + code).code == code
    for letter, name in (("\u00a0", "NO-BREAK SPACE"), ("\u2013", "EN DASH")):
        verdict = judge(ORDERED, code.replace("= n", f"={letter}n"))
        assert f"U+{ord(letter):04X} ({name}) is not a character of C++. Type it again." in verdict.message
    assert "is not a character" not in judge(ORDERED, code.replace("= n", "= m")).message


@needs_nvrtc
def test_infinitely_expanding_macros_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_COMPILE_S", 0.3)
    twice = "\n".join(f"#define A{k} A{k - 1} A{k - 1}" for k in range(1, 40))
    code = 'extern "C" __global__ void last_block(int* out, int n) { A39 }'
    verdict = judge(ORDERED, f"#define A0 out[0] += n;\n{twice}\n{code}")
    assert "NVRTC was stopped after it had used 0.3 s of processor time. Look for macros" in verdict.message
    assert verdict.message.endswith("expand into one another.")


@needs_nvrtc
def test_a_check_does_not_change_the_learners_arrays_or_device() -> None:
    cp = gl.cp
    mine = cp.arange(1000, dtype=np.float32)
    before = mine.get().copy()
    used = cp.get_default_memory_pool().used_bytes()
    code = 'extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {'
    for body in (
        "for (long k = -100000; k < 100000; k += 256) y[k] = 7;",
        "*(float*)8 = 1;",
        "while (true) {}",
    ):
        assert not check("00-saxpy", f"{code} {body} }}")
    assert (mine.get() == before).all()
    assert cp.get_default_memory_pool().used_bytes() == used
    assert float((mine + 1).sum()) == before.sum() + 1000


# Python answers


def plus_one(answer: Any) -> str:
    if call(answer, 1, name="f") != 2:
        raise NotYet("f(1) should be 2.")
    return "right."


PLUS_ONE = PythonExercise("demo", "Demo", plus_one, limit_s=1.0)
never = threading.Lock()


def swallow(n: int) -> None:
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda n: n + 1, "demo: passed: right."),
        (lambda n: n, "demo: not yet: f(1) should be 2."),
        (None, "replace the TODO"),
        (..., "replace the TODO"),
        (lambda n: None, "f(1) returns nothing; replace the TODO"),
        (lambda n: n / 0, "f(1) raised ZeroDivisionError: division by zero"),
        (lambda n: sys.exit(3), "it calls exit(3), which would end Python"),
        (lambda n: os._exit(0), "it ended Python with status 0 before it returned"),
        (lambda n: os.kill(os.getpid(), signal.SIGSEGV), "it crashed Python (SIGSEGV)"),
        (lambda n: [0 for _ in iter(int, 1)], "it takes longer than 1 s of processor time (in f(1))"),
        (lambda n: sum(range(10**12)), "it takes longer than 1 s of processor time (in f(1))"),
        (lambda n: time.sleep(100), "it waits (in f(1))"),
        (swallow, "it takes longer than 1 s of processor time (in f(1))"),
        (lambda n: [bytearray(1 << 28) for _ in range(1000)], ""),
        (lambda n: bytearray(1 << 50), "f(1) raised MemoryError"),
        (lambda n: input("?"), "f(1) raised EOFError"),
        (lambda n: never.acquire(), "cannot leave this notebook"),
        ((n for n in [1]), "cannot leave this notebook"),
        (3, "f should be a function, not int. Pass it without calling it"),
        (lambda n: os.write(1, b'{"passed": true, "message": ""}') and 3, "f(1) should be 2"),
        (lambda n: threading.Thread(target=lambda: time.sleep(60)).start() or 2, "demo: passed"),
    ],
)
def test_python_answers_get_a_verdict(answer: Any, message: str) -> None:
    verdict = judge(PLUS_ONE, answer)
    assert message in repr(verdict)
    assert "\n" not in repr(verdict)


def test_an_answer_changes_nothing_in_the_notebook() -> None:
    def meddles(n: int) -> int:
        os.environ["GPULAB_MEDDLED"] = "1"
        os.chdir("/")
        sys.path.clear()
        return n + 1

    before = Path.cwd(), list(sys.path)
    assert judge(PLUS_ONE, meddles)
    assert (Path.cwd(), list(sys.path)) == before
    assert "GPULAB_MEDDLED" not in os.environ


class Interrupted:
    """An answer that interrupts its judge at a fixed step, independent of timing."""

    def __init__(self, where: str) -> None:
        self.where, self.judge_pid = where, os.getpid()

    def interrupt_at(self, where: str) -> None:
        if self.where == where:
            os.kill(self.judge_pid, signal.SIGINT)

    def __getstate__(self) -> dict[str, Any]:
        self.interrupt_at("sent")
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.interrupt_at("received")

    def __call__(self, n: int) -> None:
        self.interrupt_at("called")
        swallow(n)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
@pytest.mark.parametrize("where", ["sent", "received", "called"])
def test_ctrl_c_stops_a_check(where: str) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores SIGINT
    try:
        verdict = judge(PythonExercise("demo", "Demo", plus_one, limit_s=30), Interrupted(where))
    finally:
        signal.signal(signal.SIGINT, before)
    assert repr(verdict) == "demo: not yet: you stopped the check."


# Programs


def doubled_sum(cp: Any, x: Any) -> float:
    return float((cp.asarray(x) * 2).sum())


def sum_case(data: DataGenerator, n: int) -> ProgramCase:
    x = data.integer_floats(n)
    return ProgramCase((x,), np.float64(2 * x.sum()), label=f"total(x) with {n:,} elements")


def reference_total(x: Any) -> Any:
    return doubled_sum(gl.cp, x)


def naive_total(x: Any) -> Any:
    on_device = gl.cp.asarray(x)
    return float((on_device + on_device.get().sum() * 0).sum() + on_device.sum())


TOTAL = ProgramExercise(
    "demo",
    "Demo",
    "total",
    sum_case,
    reference_total,
    naive_total,
    sizes=(1, 33, 1000),
    budgets=(
        Budget("to_host_bytes", "Sum on the device, and copy one number."),
        Budget("waits"),
        Budget("launches", max_reference_factor=2),
    ),
)


def test_a_program_is_judged_by_results_and_counts() -> None:
    from gpulab import cp

    def good(x: Any) -> Any:
        return 2 * float(cp.asarray(x).sum())

    verdict = judge(TOTAL, good)
    assert verdict, str(verdict)
    assert {score.counter: score.yours for score in verdict.scores} == {
        "to_host_bytes": 4,
        "waits": 1,
        "launches": 1,
    }

    def copies_back(x: Any) -> Any:
        return 2 * float(cp.asarray(x).get().sum())

    verdict = judge(TOTAL, copies_back)
    assert verdict.failed_stage == "counts"
    assert "4,000 bytes copied to the host, and 5 are allowed" in verdict.message
    assert "copy one number" in verdict.message

    def waits(x: Any) -> Any:
        total = cp.asarray(x).sum()
        cp.cuda.Device().synchronize()
        return 2 * float(total)

    assert "takes 2 waits of the host" in judge(TOTAL, waits).message
    assert judge(TOTAL, naive_total).failed_stage == "counts"


def test_a_program_may_import_cupy_itself() -> None:
    def program(x: Any) -> Any:
        import cupy

        return 2 * float(cupy.asarray(x).sum())

    assert judge(TOTAL, program)


def test_unknown_exercise_suggests_the_nearest() -> None:
    with pytest.raises(UnknownExerciseError, match="Did you mean '00-saxpy'"):
        check("saxpy", None)


def test_a_passed_exercise_stays_passed_after_a_failed_check() -> None:
    assert not progress().exercises["00-blocks"]
    assert check("00-blocks", lambda n, i: (-(-n // i.max_threads_per_block), i.max_threads_per_block))
    assert progress().exercises["00-blocks"]
    assert not check("00-blocks", lambda n, info: (n // 512, 512))
    assert progress().exercises["00-blocks"]


TWICE = 'extern "C" __global__ void twice(const float* x, float* y, int n) {{ {} }}'
ELEMENT = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * {};"
FRUGAL = TWICE.format(ELEMENT.format("x[i % 256]"))


def twice_all(data: DataGenerator, n: int, block: Any) -> Case:
    x = np.resize(data.floats(256), n)  # 256 numbers, repeated
    return Case(draw.count_blocks(n, block[0]), {"x": x, "n": n}, {"y": 2 * x})


class Frugal(KernelExercise):
    def source(self, file: str) -> str:
        return FRUGAL


# Each kernel exceeds the budget of exactly one counter.
SPENDTHRIFTS = {
    "sectors": ELEMENT.format("x[i % 256]") + " if (i < n && x[8 * i % min(n, 256)] == 1234.5f) y[i] = 0;",
    "conflict_ways": "__shared__ float box[32 * 32]; int t = threadIdx.x % 32; box[32 * t] = 2; __syncwarp();"
    + ELEMENT.format("x[i % 256]").replace("2 *", "box[32 * t] *"),
    # A two-way conflict in every second block, no conflict in the others.
    "conflict_ways at times": "__shared__ float box[64]; int t = threadIdx.x % 32 * (1 + blockIdx.x % 2); "
    "box[t] = 2; __syncwarp();" + ELEMENT.format("x[i % 256]").replace("2 *", "box[t] *"),
    "local_bytes": "volatile float two[2]; two[n & 1] = 2; "
    + ELEMENT.format("x[i % 256]").replace("2 *", "two[n & 1] *"),
    "dram_bytes": ELEMENT.format("x[i]"),
}


@needs_nvrtc
@pytest.mark.parametrize("case", SPENDTHRIFTS)
def test_a_budget_fails_a_kernel_that_exceeds_only_this_budget(case: str) -> None:
    bounds = {"sectors": None, "conflict_ways": 1, "local_bytes": 0, "dram_bytes": None}
    budgets = tuple(Budget(name, name, max_count=most) for name, most in bounds.items())
    exercise = Frugal(
        "demo",
        "Demo",
        "twice",
        "const float* x, float* y, int n",
        twice_all,
        "-",
        budgets=budgets,
        blocks=lambda rng: [(32, 1, 1)] * 3,
        measured_launch=MeasuredLaunch(1024, (32, 1, 1), max_instruction_factor=9),
    )
    verdict = judge(exercise, TWICE.format(SPENDTHRIFTS[case]))
    assert verdict.failed_stage == "budget", str(verdict)
    counters = {
        item.counter
        for item, score in zip(budgets, verdict.scores, strict=True)
        if not is_within_budget(item, score)
    }
    assert counters == {case.split()[0]}
    assert judge(exercise, FRUGAL)


def twice_case(data: DataGenerator, n: int) -> ProgramCase:
    x = data.integer_floats(n)
    return ProgramCase((x,), x + 2, known_mistakes=((x + 1, "The second launch is missing."),))


def replayed(launches: int, chain: bool = True) -> Any:
    """Return a program that adds one twice, with a graph of one or two nodes and a number of launches."""

    def program(x: Any) -> Any:
        from gpulab import cp

        y = cp.asarray(x)
        z = cp.zeros(1, dtype="float32")
        stream = cp.cuda.Stream(non_blocking=True)
        cp.cuda.get_current_stream().synchronize()
        with stream:
            stream.begin_capture()
            cp.add(y, 1, out=y)
            if not chain:
                cp.add(y, 1, out=y)
            else:
                cp.add(z, 1, out=z)
            graph = stream.end_capture()
            for _ in range(launches):
                graph.launch(stream)
            stream.synchronize()
        return y

    return program


def test_graph_launches_and_depth_are_counted_and_mistakes_named() -> None:
    exercise = ProgramExercise(
        "demo",
        "Demo",
        "twice",
        twice_case,
        replayed(2),
        sizes=(100,),
        budgets=(
            Budget("graph_launches", max_count=9),
            Budget("graphs", max_count=9),
            Budget("host_launches", max_count=9),
            Budget("graph_depth", max_count=9),
        ),
        advice=(("raised ZeroDivisionError", "Do not divide."),),
    )
    counts = {s.counter: s.yours for s in judge(exercise, replayed(2)).scores}
    assert counts == {"graph_launches": 2, "graphs": 1, "host_launches": 2, "graph_depth": 2}
    once = judge(exercise, replayed(1, chain=False))
    assert {s.counter: s.yours for s in once.scores}["graph_depth"] == 2
    assert judge(exercise, replayed(1)).message.endswith("The second launch is missing.")
    assert judge(exercise, lambda x: 1 / 0).message.endswith("Do not divide.")
