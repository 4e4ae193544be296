"""Judging of device programs: the runs, and the verdict for the facts that they report (faked here)."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab.processes.values import DamagedBytesError, DeviceContents
from gpulab_course.teach.judge import (
    Answer,
    Budget,
    DataGenerator,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
)
from gpulab_course.teach.judge.python import apart
from gpulab_course.teach.judge.python.answer import make_answer_seed
from gpulab_course.teach.judge.python.counts import COUNTS
from gpulab_course.teach.judge.python.performed import Task, perform_task
from gpulab_course.teach.judge.python.programs import add_advice, judge_program
from gpulab_course.teach.judge.verdict import StageResult, Verdict

ZERO = dict.fromkeys(COUNTS, 0)
SIZES = (2, 3, 5, 8)
Tell = Callable[[Task], Any]


def doubled(data: DataGenerator, n: int) -> ProgramCase:
    x = data.floats(n)
    return ProgramCase((x, 1), 2 * x)


def reference(x: Any, by: Any) -> Any:
    return 2 * x


def naive(x: Any, by: Any) -> Any:
    return x + x


DOUBLE = ProgramExercise("demo", "Demo", "double", doubled, reference, sizes=SIZES, checks_stream_order=True)


def size(task: Task) -> int:
    return int(task.arguments[0].size)


def facts(task: Task, **changes: Any) -> dict[str, Any]:
    return {"result": 2 * task.arguments[0], "counts": ZERO, "hazards": [], "changed": []} | changes


def answering(tell: Tell, seed: int = 1) -> Answer:
    """Return a fake answer: `tell` returns its results and costs."""
    return Answer(lambda shown, function, task, back=None: tell(task), seed, True, "function")


def judged(tell: Tell, exercise: ProgramExercise = DOUBLE, seed: int = 1, **programs: Tell) -> Verdict:
    @contextlib.contextmanager
    def neighbours() -> Iterator[Callable[[Any], Answer]]:
        yield lambda program: answering(programs.get(program.__name__, facts))

    return judge_program(exercise, answering(tell, seed), neighbours)


def costs(counter: str, cost: Callable[[Task], int]) -> Tell:
    return lambda task: facts(task, counts=ZERO | {counter: cost(task)})


# The runs


def runs(exercise: ProgramExercise = DOUBLE, seed: int = 1) -> list[Task]:
    tasks: list[Task] = []

    def tell(task: Task) -> Any:
        tasks.append(task)
        return facts(task)

    assert judged(tell, exercise, seed)
    return tasks


def test_sizes_are_run_checked_and_repeated_in_other_orders() -> None:
    first = ("last first", 0)
    second = ("random", 1)
    assert [(task.run_mode, size(task)) for task in runs()] == [
        *(("as given", n) for n in SIZES),
        *(("checked", n) for n in SIZES[:-1]),
        *((how, n) for how in (first, second) for n in (3, 8)),
    ]
    assert [(task.run_mode, size(task)) for task in runs(replace(DOUBLE, sizes=(4,)))] == [
        ("as given", 4),
        ("checked", 4),
        (first, 4),
        (second, 4),
    ]
    five = [size(task) for task in runs(replace(DOUBLE, sizes=(2, 3, 5, 6, 8)))]
    assert five[-4:] == [5, 8, 5, 8]
    assert [task.run_mode for task in runs(replace(DOUBLE, checks_stream_order=False))] == 4 * ["as given"]


def test_each_run_has_different_data_derived_from_the_seed() -> None:
    def data_of(seed: int) -> list[bytes]:
        return [task.arguments[0].tobytes() for task in runs(seed=seed)]

    assert len(set(data_of(1) + data_of(2))) == 22
    assert data_of(1) == data_of(1)
    any_size = replace(DOUBLE, sizes=lambda rng: tuple(map(int, rng.integers(1, 10**4, 3))))
    sizes = {tuple(size(task) for task in runs(any_size, seed)[:3]) for seed in (1, 2, 1)}
    assert len(sizes) == 2


# Verdicts


def stages_of(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [(stage.name, stage.state, stage.said) for stage in verdict.stages]


PASSED = [
    ("results", "passed", "the results are right for 4 sizes."),
    ("hazards", "passed", "all necessary waits between streams are present."),
    ("orders", "passed", "the results are right in 2 other orders that its streams allow."),
]
ONCE = Budget("waits", "Wait once.", max_count=1)


def test_a_passing_program_lists_every_stage() -> None:
    two = replace(DOUBLE, budgets=(ONCE, Budget("copies", max_count=0)), praise="well done.")
    verdict = judged(costs("waits", lambda task: 1), two)
    assert (verdict.passed, verdict.message) == (True, "well done.")
    counts = ("counts", "passed", "1 wait of the host for the device; 0 copies.")
    assert stages_of(verdict) == [*PASSED, counts]
    assert [score.yours for score in verdict.scores] == [1, 0]


def test_a_real_device_reports_no_counts() -> None:
    verdict = judged(lambda task: facts(task, counts=None), replace(DOUBLE, budgets=(ONCE,)))
    assert (verdict.passed, verdict.message, stages_of(verdict)) == (True, DOUBLE.praise, PASSED[:1])


def wrong_if(where: Callable[[Task], bool], **changes: Any) -> Tell:
    return lambda task: (
        facts(task, **(changes or {"result": 0 * task.arguments[0]})) if where(task) else facts(task)
    )


@pytest.mark.parametrize(
    ("where", "changes", "stage", "message_of"),
    [
        (lambda t: size(t) == 8, {}, "results", "double(array of (8,), 1): the result[0] is "),
        (
            lambda t: t.run_mode == "checked",
            {},
            "hazards",
            "The result was right for other numbers, so do not keep results of",
        ),
        (
            lambda t: t.run_mode == "checked",
            {"hazards": ["one.", "two."]},
            "hazards",
            "(array of (2,), 1): one.",
        ),
        (
            lambda t: t.run_mode == ("random", 1),
            {},
            "orders",
            "In another order that its streams allow, double(",
        ),
        (lambda t: size(t) == 5, {"changed": [1]}, "results", "(5,), 1) changes by, which belongs to its"),
        (lambda t: size(t) == 5, {"changed": [0, 1]}, "results", "(5,), 1) changes x, which belongs to"),
        (lambda t: True, {"result": None}, "results", "returns NoneType, but the result should be an array"),
    ],
)
def test_judging_stops_at_the_first_failed_stage(
    where: Any, changes: Any, stage: str, message_of: str
) -> None:
    verdict = judged(wrong_if(where, **changes), replace(DOUBLE, budgets=(ONCE,)))
    assert not verdict
    assert message_of in verdict.message
    names = ["results", "hazards", "orders", "counts"]
    failed = names.index(stage)
    later = [(name, "not reached", "") for name in names[failed + 1 :]]
    assert stages_of(verdict) == [*PASSED[:failed], (stage, "failed", verdict.message), *later]


def test_advice_is_selected_by_words_of_the_failure_message() -> None:
    exercise = replace(
        DOUBLE, advice=(("shape", "Look at its shape."), ("result", "Look."), ("res", "Never."))
    )
    assert add_advice(exercise, "the result is bad ") == "the result is bad. Look."
    assert add_advice(exercise, "Is its shape right?") == "Is its shape right? Look at its shape."
    assert add_advice(exercise, "result!") == "result! Look."
    assert add_advice(exercise, "result.") == "result. Look."
    assert add_advice(exercise, "nothing") == "nothing"
    assert judged(wrong_if(lambda task: True), exercise).message.endswith("differ). Look.")


@pytest.mark.parametrize(
    "changes",
    [
        {"counts": 3},
        {"counts": ZERO | {"more": 1}},
        {"counts": ZERO | {"waits": 0.0}},
        {"counts": ZERO | {"waits": True}},
        {"hazards": None},
        {"hazards": [1]},
        {"changed": (0,)},
        {"changed": [2]},
        {"more": 1},
    ],
)
def test_damaged_replies_of_the_answer_process_are_refused(changes: Any) -> None:
    with pytest.raises(DamagedBytesError):
        judged(lambda task: facts(task, **changes))


@pytest.mark.parametrize("message", [None, [], "result counts hazards changed", {}, {"result": 0}])
def test_malformed_replies_of_the_answer_process_are_refused(message: Any) -> None:
    with pytest.raises(DamagedBytesError):
        judged(lambda task: message)


# Budgets


def test_an_exceeded_budget_is_reported_with_the_size() -> None:
    exercise = replace(DOUBLE, budgets=(Budget("copies", max_count=0), ONCE))
    verdict = judged(costs("waits", lambda task: 2 if size(task) == 3 else 0), exercise)
    assert not verdict
    assert verdict.message == (
        "double(array of (3,), 1): the results are right, but it takes 2 waits of the host for the device, "
        "and 1 is allowed (reference 0). Wait once."
    )
    assert stages_of(verdict) == [*PASSED, ("counts", "failed", verdict.message)]
    assert [score.yours for score in verdict.scores] == [0, 0]  # of the last size
    # The largest size comes first, and in it the budgets in their order.
    assert "(8,)" in judged(costs("waits", lambda task: 2), exercise).message
    both = judged(lambda task: facts(task, counts=ZERO | {"waits": 2, "copies": 1}), exercise)
    assert "1 copy" in both.message


@pytest.mark.parametrize(
    ("bad_size", "large", "passes"), [(5, True, False), (3, True, True), (2, False, False)]
)
def test_budgets_for_large_sizes_apply_to_the_last_two_sizes(
    bad_size: int, large: bool, passes: bool
) -> None:
    exercise = replace(DOUBLE, budgets=(replace(ONCE, large_sizes_only=large),))
    assert bool(judged(costs("waits", lambda task: 2 * (size(task) == bad_size)), exercise)) == passes


def test_counts_are_compared_with_the_reference_at_the_same_size() -> None:
    runs_: list[tuple[Any, int]] = []

    def of_reference(task: Task) -> Any:
        runs_.append((task.run_mode, size(task)))
        return facts(task, counts=ZERO | {"waits": size(task), "streams": size(task)})

    budgets = (
        Budget("waits", max_reference_factor=1),
        Budget("waits", min_reference_share=1.0),
        Budget("streams", min_reference_share=1),
    )
    exercise = replace(DOUBLE, budgets=budgets, naive=naive)

    def same(task: Task) -> Any:
        return facts(task, counts=ZERO | {"waits": size(task), "streams": size(task)})

    verdict = judged(same, exercise, reference=of_reference, naive=costs("waits", lambda task: 99))
    assert verdict
    # Dependency counts come from checked runs, which omit the last size, so the largest checked size is used.
    assert [(s.yours, s.reference, s.naive) for s in verdict.scores] == [(8, 8, 99), (8, 8, 99), (5, 5, 0)]
    assert len(runs_) == len(set(runs_)) == 7  # each size once, as given and checked
    assert set(runs_) == {("as given", n) for n in SIZES} | {("checked", n) for n in SIZES[:-1]}
    less = costs("streams", lambda task: 4)
    assert "it has 4 streams" in judged(less, replace(exercise, budgets=budgets[2:]), reference=same).message
    changes = costs("waits", lambda task: size(task) + (size(task) == 3))
    assert (
        "(3,), 1): the results are right, but it takes 4 waits"
        in judged(changes, replace(exercise, budgets=budgets[:1]), reference=same).message
    )
    alone = judged(same, replace(exercise, naive=None), reference=same)
    assert [score.naive for score in alone.scores] == [None] * 3


# Calls


def task(calls: Any = DOUBLE.call_program, *arguments: Any, **changes: Any) -> Task:
    return Task("double", "double(x)", calls, arguments or (np.arange(4, dtype=np.float32),), **changes)


_OF_MODELS = {"microseconds", "waits", "driver_calls", "segments"} | {
    n for n in COUNTS if n.startswith("peak")
}
_OF_MODELS |= {"wasted_bytes"}


def test_a_call_receives_host_arrays_that_are_checked_for_changes() -> None:
    array = np.arange(4, dtype=np.float32)
    result = perform_task(lambda x: x + gl.cp.asarray(x).get(), task(DOUBLE.call_program, array))
    assert result["result"].tolist() == [0, 2, 4, 6]
    assert (result["hazards"], result["changed"]) == ([], [])
    counts = {name: count for name, count in result["counts"].items() if count and name not in _OF_MODELS}
    assert counts == {
        "copies": 2,
        "copied_bytes": 32,
        "to_device_copies": 1,
        "to_device_bytes": 16,
        "to_host_copies": 1,
        "to_host_bytes": 16,
        "pageable_copies": 1,
        "bus_bytes": 32,
    }
    assert result["counts"]["peak_used_bytes"] == 16


def test_device_results_are_copied_to_the_host() -> None:
    cp = gl.cp

    def several(x: Any) -> Any:
        return [cp.asarray(x), x, 3, (2 * cp.asarray(x),)]

    device, host, number, inner = perform_task(several, task())["result"]
    assert isinstance(device, DeviceContents)
    assert device.values.tolist() == host.tolist() == [0, 1, 2, 3]
    assert number == 3
    assert inner[0].values.tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("how", ["as given", "checked", ("last first", 0), ("random", 1)])
def test_device_arguments_are_written_when_the_call_begins(how: Any) -> None:
    result = perform_task(
        lambda x, n: n * x, task(DOUBLE.call_program, np.arange(4.0), 2, on_device=True, run_mode=how)
    )
    assert result["result"].values.tolist() == [0, 2, 4, 6]
    assert result["counts"]["launches"] == 1  # operations of the judge are not counted
    assert result["hazards"] == []
    assert result["counts"]["streams"] == (how == "checked")


def test_arguments_read_without_a_wait_are_not_yet_written() -> None:
    cp = gl.cp

    def elsewhere(x: Any) -> Any:
        with cp.cuda.Stream(non_blocking=True) as stream:
            y = x + x
        stream.synchronize()
        return y

    for array, result in ((np.arange(4.0), [np.nan] * 4), (np.arange(4), [2] * 4)):
        late = perform_task(
            elsewhere, task(DOUBLE.call_program, array, on_device=True, run_mode=("last first", 0))
        )
        np.testing.assert_array_equal(late["result"].values, result)
    hazards = perform_task(elsewhere, task(on_device=True, run_mode="checked"))["hazards"]
    assert 1 <= len(hazards) <= 3
    assert "current may still be writing it" in hazards[0]
    assert perform_task(elsewhere, task(on_device=True))["hazards"] == []


def test_changed_arguments_are_reported_by_number() -> None:
    def arguments() -> tuple[Any, ...]:
        return np.arange(4.0), 3, np.zeros(4), np.ones(4)

    def changed(program: Any, **changes: Any) -> Any:
        return perform_task(
            program, task(DOUBLE.call_program, *arguments(), **({"keeps_arguments": True} | changes))
        )["changed"]

    def second(x: Any, n: Any, y: Any, z: Any) -> Any:
        y[1] = n
        return x

    def back(x: Any, n: Any, y: Any, z: Any) -> Any:
        z *= 2
        z /= 2
        return x

    assert changed(second) == changed(second, on_device=True) == [2]
    assert changed(second, keeps_arguments=False, on_device=True) == []
    assert changed(back, on_device=True) == []
    assert changed(back, on_device=True, run_mode="checked") == [3]
    assert changed(lambda x, n, y, z: x, on_device=True, run_mode="checked") == []


def test_operations_of_the_judge_are_not_counted() -> None:
    def calls(bench: Any, program: Any, x: Any) -> Any:
        before = bench.cp.asarray(x)
        pinned = bench.copy_to_pinned(x)
        bench.keep_host_busy(5000)
        y = program(pinned)
        bench.cp.cuda.Device().synchronize()
        assert pinned.tolist() == x.tolist()
        assert before.sum() == 6
        return bench.read(y)

    result = perform_task(lambda x: 2 * gl.cp.asarray(x), task(calls))
    assert result["result"].tolist() == [0, 2, 4, 6]
    counts = result["counts"]
    assert (counts["launches"], counts["copies"], counts["pageable_copies"]) == (1, 1, 0)
    assert counts["microseconds"] < 1000
    assert counts["device_waits"] == 0

    def nested(bench: Any, program: Any, x: Any) -> Any:
        return bench.run_recorded(lambda: program(x) + program(x))

    assert perform_task(lambda x: 2 * gl.cp.asarray(x), task(nested))["counts"]["launches"] == 3
    empty = perform_task(lambda x: x, task(lambda bench, program, x: program(bench.copy_to_pinned(x[:0]))))
    assert empty["result"].shape == (0,)


# Answers


def test_the_seed_depends_on_the_code_of_the_answer() -> None:
    def one(x: Any) -> Any:
        return x + 1

    def two(x: Any) -> Any:
        return x + 2

    first, second = (make_answer_seed(f, b"") for f in (one, two))
    assert first != second
    assert make_answer_seed(one, b"other bytes") == first
    assert make_answer_seed(3, b"a") == make_answer_seed(4, b"a") != make_answer_seed(3, b"b")


# In a separate process, and on a GPU


def test_unpicklable_answers_are_refused() -> None:
    def message_of(error: Exception) -> str:
        class Held:
            def __reduce__(self) -> Any:
                raise error

        return apart.judge_in_process(PythonExercise("demo", "Demo", str), Held()).message

    big = "it refers to too much data to be checked. Create the data inside the function."
    assert message_of(RecursionError("deep")) == message_of(MemoryError()) == big
    for error in (pickle.PicklingError("a lock"), TypeError("a lock"), AttributeError("a lock")):
        assert message_of(error).startswith(
            "it refers to an object that cannot leave this notebook (a lock). Create streams"
        )
    assert "this notebook (TypeError)" in message_of(TypeError())
    assert message_of(OSError("no file")) == "it cannot be checked: it raised OSError: no file"


def test_an_answer_with_too_much_data_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "_MAX_SENT_BYTES", 1000)
    verdict = apart.judge_in_process(PythonExercise("demo", "Demo", str), bytes(1001))
    assert (verdict.passed, verdict.exercise_id) == (False, "demo")
    assert (
        verdict.message == "it contains more than 256 MiB of data. Create large arrays inside the function."
    )


def test_a_program_is_also_run_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Verdict(
        "demo", True, "right.", (StageResult("results", "passed", "all."), StageResult("orders", "passed"))
    )
    wrong = Verdict("demo", False, "bad.", (StageResult("results", "failed", "bad."),))
    devices: list[str] = []

    def verdict_of(virtual: Verdict, real: Verdict, exercise: Any = DOUBLE, gpu: Any = gl.cp) -> Verdict:
        def judged_on(_: Any, answer: Any, device: str, past: Any) -> Verdict:
            devices.append(device)
            return real if device.startswith("cuda") else virtual

        monkeypatch.setattr(apart, "_judge_on_device", judged_on)
        monkeypatch.setattr(session, "real_cp", lambda: gpu)
        return apart.judge_in_process(exercise, None)

    chosen = SimpleNamespace(device="NVIDIA H200", index=3)
    monkeypatch.setattr(session, "which_device", lambda: chosen)
    verdict = verdict_of(right, right)
    assert devices == ["virtual:H200", "cuda:3"]
    assert verdict == replace(
        right, stages=(replace(right.stages[0], said="all. The same on the NVIDIA H200."), right.stages[1])
    )
    assert verdict_of(right, wrong) == replace(wrong, message="on the NVIDIA H200: bad.")
    devices.clear()
    assert verdict_of(wrong, right) is wrong
    assert verdict_of(right, wrong, PythonExercise("demo", "Demo", str)) is right
    assert verdict_of(right, wrong, gpu=None) is right
    chosen.device = "of nobody's table"
    verdict_of(right, right)
    assert devices == [*["virtual:H200"] * 3, "virtual", "cuda:3"]
