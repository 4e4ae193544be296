"""After a failure, a check repeats the failed case and adds new data until an answer passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpulab_course.teach.judge import (
    Answer,
    Case,
    DataGenerator,
    KernelExercise,
    NotYet,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
    SpecialInput,
    call,
    draw,
    past,
)
from gpulab_course.teach.judge import check as checking
from gpulab_course.teach.judge.check import judge
from gpulab_course.teach.judge.kernel.bench import Bench
from gpulab_course.teach.judge.past import PastFailures
from gpulab_course.teach.judge.python.programs import judge_program
from virtualgpu.compile import nvrtc

needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")


def test_only_answers_that_failed_get_new_data() -> None:
    past_ = PastFailures(salt=3)
    assert past_.choose_seed(7) == past_.choose_seed(7) == 7
    past_.record_failure("results", None)
    second = past_.choose_seed(7)
    past_.record_failure("results", None)
    assert (
        len({7, second, past_.choose_seed(7), PastFailures(4, failures=past_.failures).choose_seed(7)}) == 4
    )
    assert past_.choose_seed(8) == 8, "another text has data of its own"
    assert len({PastFailures(skipped_draws=number).choose_seed(7) for number in range(5)}) == 5


# Kernels

_BODY = 'extern "C" __global__ void twice(const int* x, int* y, int n) {'
_INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
RIGHT = f"{_BODY} {_INDEX} if (i < n) y[i] = 2 * x[i]; }}"
# LONG is wrong for long arrays, and WIDE for numbers whose double overflows an int.
LONG = f"{_BODY} {_INDEX} if (i < n && i < 700) y[i] = 2 * x[i]; }}"
WIDE = f"{_BODY} {_INDEX} if (i < n) y[i] = x[i] > (1 << 29) ? 0 : 2 * x[i]; }}"


def twice(data: DataGenerator, n: int, block: Any) -> Case:
    return case_of(data.integers(n), block)


def case_of(x: Any, block: Any) -> Case:
    return Case(draw.count_blocks(x.size, block[0]), {"x": x, "n": x.size}, {"y": 2 * x})


class Shipped(KernelExercise):
    def source(self, file: str) -> str:
        return RIGHT


ROW = SpecialInput(
    "large numbers", lambda data, n, block: case_of(data.integers(n, 1 << 29, 1 << 30), block), (5, 40)
)
KERNEL = Shipped(
    "demo",
    "Demo",
    "twice",
    "const int* x, int* y, int n",
    twice,
    "twice.cu",
    table=(ROW,),
    sizes=lambda rng, at_once: (1, 30 + int(rng.integers(30)), 900),
    blocks=lambda rng: [(64, 1, 1)],
)


@needs_nvrtc
def test_every_row_of_an_exercise_table_is_run_and_named() -> None:
    verdict = judge(KERNEL, WIDE)
    assert verdict.failed_stage == "results"
    assert "n = 5, 1 block of 64 threads, large numbers: y[0] is 0" in verdict.message
    assert judge(replace(KERNEL, table=()), WIDE), "what is drawn does not show it"


@needs_nvrtc
def test_the_failed_launch_is_repeated_first_and_others_get_new_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launched: list[Case] = []
    run = Bench.run

    def noted(self: Bench, exercise: Any, source: Any, case: Case, *arguments: Any, **options: Any) -> Any:
        launched.append(case)
        return run(self, exercise, source, case, *arguments, **options)

    monkeypatch.setattr(Bench, "run", noted)
    history = PastFailures(salt=1)
    first = judge(KERNEL, LONG, history)
    assert "n = 900" in first.message
    assert history.failed_case in launched
    before = [case.label for case in launched]
    launched.clear()
    assert judge(KERNEL, LONG, history).message == first.message
    assert launched[0] is history.failed_case
    assert judge(KERNEL, RIGHT, history)
    assert [case.label for case in launched][1 : len(before)] != before[1:]


# Python functions and programs


def judge_parity(answer: Answer) -> str:
    n = int(answer.rng.integers(1 << 40))
    if call(answer, n, name="parity") != n % 2:
        raise NotYet(f"parity({n})")
    return "right."


def test_hard_coding_the_values_of_messages_does_not_pass(capsys: pytest.CaptureFixture[str]) -> None:
    exercise = PythonExercise("demo", "Demo", judge_parity)
    history = PastFailures(salt=1)

    def parity(n: int) -> int:
        print(n)
        return -1

    messages = [judge(exercise, parity, history).message for _ in range(3)]
    assert len(set(messages)) == 1, "the number that failed is asked for until it is right"
    capsys.readouterr()
    first = int(messages[0][len("parity(") : -1])
    for _ in range(3):
        assert not judge(exercise, lambda n: n % 2 if n == first else -1, history)
    verdict = judge(exercise, lambda n: n % 2, history)
    assert verdict.passed


SIZES = (1, 5, 9)


def doubled(data: DataGenerator, n: int) -> ProgramCase:
    x = data.integer_floats(n)
    return ProgramCase((x,), 2 * x)


PROGRAM = ProgramExercise(
    "demo",
    "Demo",
    "double",
    doubled,
    lambda x: x + x,
    sizes=SIZES,
    table=(
        SpecialInput("only zeros", lambda data, n: ProgramCase((np.zeros(n, "f"),), np.zeros(n, "f")), (3,)),
    ),
)


def test_a_program_is_run_with_its_table_and_the_failed_call() -> None:
    sizes: list[int] = []

    def answering(wrong: int) -> Answer:
        def tell(label: str, function: Any, task: Any, back: Any = None) -> Any:
            (x,) = task.arguments
            sizes.append(x.size)
            return {"result": 2 * x + (x.size == wrong), "counts": None, "hazards": [], "changed": []}

        return Answer(tell, 1, True, "function")

    history = PastFailures()
    verdict = judge_program(PROGRAM, answering(3), lambda: None, history).message  # type: ignore[arg-type,return-value]
    assert "only zeros" in verdict
    assert sizes == [*SIZES, 3]
    sizes.clear()
    assert judge_program(PROGRAM, answering(-1), lambda: None, history)  # type: ignore[arg-type,return-value]
    assert sizes == [3, *SIZES, 3]


def test_passing_clears_the_remembered_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    exercise = PythonExercise("00-demo", "Demo", judge_parity)
    monkeypatch.setattr(past, "_failures", {})
    assert not checking.check(exercise, lambda n: -1)
    assert past.get_past_failures("00-demo").failed_case is not None
    assert checking.check(exercise, lambda n: n % 2)
    assert past.get_past_failures("00-demo").failed_case is None
