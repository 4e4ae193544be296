"""Judging of kernels: launches, stages, limits and messages, with fake counters and faults."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpulab import session
from gpulab_course.teach.judge import (
    Advice,
    Budget,
    Case,
    DataGenerator,
    KernelExercise,
    MeasuredLaunch,
    NotYet,
    advice,
    draw,
)
from gpulab_course.teach.judge.budget import Costs
from gpulab_course.teach.judge.exercise import Mistake, UnwrittenAnswerError
from gpulab_course.teach.judge.kernel import bench, costs, stages
from gpulab_course.teach.judge.kernel.bench import Bench, KernelFault, LaunchOutcome
from gpulab_course.teach.judge.kernel.trial import CountedLaunch, Trial, make_labelled_case
from virtualgpu.errors import ArgumentWarning
from virtualgpu.records import KernelSource

CODE = 'extern "C" __global__ void twice(const float* x, float* y, int n) {}'
SOURCE = KernelSource("twice", CODE)
BLOCKS = ((64, 1, 1), (33, 1, 1), (8, 4, 1))
SIZES = (1, 40, 900, 5000, 5001, 20_000)


def twice(data: DataGenerator, n: int, block: Any) -> Case:
    x = data.floats(n)
    return Case(draw.count_blocks(n, prod(block)), {"x": x, "n": n}, {"y": 2 * x})


class Shipped(KernelExercise):
    def source(self, file: str) -> str:
        return f"{CODE} // {file}"


EXERCISE = Shipped(
    "demo",
    "Demo",
    "twice",
    "const float* x, float* y, int n",
    twice,
    "good.cu",
    sizes=lambda rng, at_once: SIZES,
    blocks=lambda rng: BLOCKS,
    measured_launch=MeasuredLaunch(4096, (256, 1, 1)),
)


# Forms of an answer

PASS_IT = 'pass the kernel itself: cp.RawKernel(code, "twice"), or its CUDA C++ text'


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("void other()", f"this source has no kernel `twice`. To answer, {PASS_IT}."),
        (3, f"a value of type int is not a kernel. To answer, {PASS_IT}."),
        (len, "the function `len` is not a kernel. To answer, pass"),
        (KernelSource("other", CODE), "this kernel is called `other`, but the exercise needs `twice`."),
        (KernelSource("twice2", CODE), "this kernel is called `twice2`"),
        (KernelSource("_Z5other", CODE), "this kernel is called `_Z5other`"),
        (f"\n{CODE} // \udc80", "line 2 contains the invalid character U+DC80. Type it again."),
        (KernelSource("twice", "// \ud800"), "line 1 contains the invalid character U+D800. Type it again."),
    ],
)
def test_an_answer_that_is_not_the_kernel_is_refused(answer: Any, says: str) -> None:
    if isinstance(answer, KernelSource):
        answer = SimpleNamespace(name=answer.name, code=answer.code, options=())
    with pytest.raises(NotYet) as error:
        bench.read_kernel_answer(EXERCISE, answer)
    assert str(error.value).startswith(says)


def says_of(error: Exception, code: str = CODE) -> str:
    def stats(source: KernelSource) -> Any:
        raise error

    place: Any = SimpleNamespace(stats=stats)
    with pytest.raises(NotYet) as error_:
        bench.check_compiles(place, EXERCISE, KernelSource("twice", code))
    return str(error_.value)


class Logged(Exception):
    def __init__(self, log: Any) -> None:
        super().__init__("CUDA_ERROR_INVALID: kernel 'twice': it   fails\n here")
        self.log = log


LONG = "float a = 1;" + " " * 9 + "x" * 70


@pytest.mark.parametrize(
    ("log", "says"),
    [
        ("\na.cu(1): warning: w\na.cu(2): error: no x.\na.cu(1): error: y", f"line 2 `{'y' * 70}`: no x."),
        ("a.cu(3): catastrophic error: no more\n", f"line 3 `float a = 1;{' ' * 9}{'x' * 48}…`: no more."),
        ("a.cu(9): error: behind it", "line 9: behind it."),
        ("ld: an error of another kind", "ld: an error of another kind."),
        ("something else\nmore", "something else."),
        ("", "no reason given."),
    ],
)
def test_the_first_compiler_error_is_quoted_with_its_line(log: str, says: str) -> None:
    code = "\n".join([CODE, f"  {'y' * 70}", f" {LONG}", "  "])
    assert says_of(Logged(log), code) == f"it does not compile: {says}"


# Faults that stop a launch


class Stopped(RuntimeError):
    def __init__(
        self,
        message: str,
        kind: str = "out of bounds",
        line: int = 3,
        text: str = "y[9] = 1;",
        **changes: Any,
    ):
        super().__init__(message)
        self.kind, self.array, self.space = kind, changes.get("array", ""), changes.get("space", "")
        if changes.get("site", True):
            self.site = SimpleNamespace(
                line=line, source_text=text, block=(1, 0, 0), thread=(2, 0, 0), address=255
            )


BOUNDS = "out of bounds"
BLOCK = "the block has 1,024 bytes of shared memory"
NEAR = "at address 0xff, which is not near any array. Check the pointer."
TIME = "processor time"
NO_END = "Look for an infinite loop, or a wait for a value that is never written."
TURNS = "Look for a loop with too many iterations."
WHERE = "line 3 `y[9] = 1;`, block (1, 0, 0), thread (2, 0, 0)"


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (Stopped("wrote far", array="y (parameter y)"), BOUNDS, f"{WHERE}, writes outside `y`."),
        (Stopped("read far", array="y (parameter y)"), BOUNDS, f"{WHERE}, reads outside `y`."),
        (Stopped("added", array="x (parameter x)"), BOUNDS, f"{WHERE}, changes an element outside `x`."),
        (Stopped("wrote 4 bytes `y[9] = 1;` there"), BOUNDS, "wrote 4 bytes `y[9] = 1;` there"),
        (Stopped("read 4 bytes", space="shared"), BOUNDS, f"{WHERE}, reads outside shared memory."),
        (
            Stopped(f"read 4 bytes: {BLOCK}, no more", space="shared"),
            BOUNDS,
            f"{WHERE}, reads outside shared memory: {BLOCK}.",
        ),
        (Stopped("added: No allocation is near"), BOUNDS, f"{WHERE}, changes an element {NEAR}"),
        (Stopped("wrote to a null pointer"), BOUNDS, f"{WHERE}, writes {NEAR}"),
        (Stopped("x", "endless"), "endless", f"it does not end ({WHERE}). {NO_END}"),
        (Stopped("x", "too long"), "too long", f"it takes longer than 2.5 s of {TIME} ({WHERE}). {TURNS}"),
        (Stopped("x", "endless", line=0), "endless", "it does not end (block (1, 0, 0), thread (2, 0, 0))."),
        (Stopped("cudaErrorLaunchFailure: trap  here", "trap"), "trap", "trap here"),
        (Stopped("CUDA_ERROR_X: kernel 'twice' refuses", "", site=False), "refused", "refuses"),
        (Stopped("no site", "lanes missing", site=False), "lanes missing", "no site"),
    ],
)
def test_a_stopped_kernel_is_explained(error: Any, kind: str, says: str) -> None:
    side = SimpleNamespace(
        observe=lambda launch, what: raising(error),
        machine=SimpleNamespace(current_device=SimpleNamespace(watchdog_s=2.5)),
    )
    case = make_labelled_case(EXERCISE, DataGenerator(1), 4, (64, 1, 1))
    with pytest.raises(KernelFault) as stop:
        Bench(side, None)._observe(EXERCISE, case, None, None)  # type: ignore[arg-type]
    assert stop.value.kind == kind
    assert stop.value.message.startswith(says)
    assert str(stop.value) == stop.value.message
    assert stop.value.array == ({"y": "y", "x": "x"}.get(error.array[:1], ""))


def raising(error: Exception) -> Any:
    raise error


def test_an_access_to_an_empty_array_is_explained() -> None:
    side = SimpleNamespace(
        observe=lambda launch, kind: raising(Stopped("wrote to a null pointer")),
        machine=SimpleNamespace(current_device=SimpleNamespace(watchdog_s=2.5)),
    )
    with pytest.raises(KernelFault, match="writes an element of an array that has no elements"):
        Bench(side, None)._observe(
            EXERCISE, make_labelled_case(EXERCISE, DataGenerator(1), 0, (64, 1, 1)), None, None
        )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (TypeError("argument 2 ('y') is a float"), "parameter 2, `y`, must be `float* y`"),
        (ArgumentWarning("argument 3 ('m') is cut"), "parameter 3, `m`, must be `int n`"),
        (TypeError("argument 4 ('m') is cut"), "its parameters are not those of the exercise"),
        (TypeError("takes 2 arguments but 3 were given"), "it has 2 parameters instead of 3"),
        (TypeError("takes 1 argument but 3 were given"), "it has 1 parameter instead of 3"),
        (TypeError("else"), "its parameters are not those of the exercise"),
    ],
)
def test_wrong_kernel_parameters_are_refused_with_the_right_list(error: Exception, says: str) -> None:
    place = Bench(SimpleNamespace(observe=lambda launch, kind: raising(error)), None)
    with pytest.raises(KernelFault) as stop:
        place._observe(EXERCISE, make_labelled_case(EXERCISE, DataGenerator(1), 4, (64, 1, 1)), None, None)  # type: ignore[arg-type]
    assert stop.value.kind == "parameters"
    assert stop.value.message == f"{says}; keep the given list: twice(const float* x, float* y, int n)."


# The launches of a trial


class Place:
    """A fake `Bench`: the test sets the results and costs of launches."""

    threads_at_once = 2048

    def __init__(self, run: Callable[[Case, int], Any] | None = None, **costs_of: tuple[int, int]) -> None:
        self._run = run
        self.costs_of = costs_of
        self.launched: list[tuple[Case, int]] = []
        self.orders: list[tuple[str, int]] = []
        self.reports: list[Any] = []
        self.patient = 0
        self.side = SimpleNamespace(device_info=lambda: SimpleNamespace(name="A100"))

    def stats(self, source: KernelSource) -> Any:
        return SimpleNamespace(local_bytes=0)

    def run(
        self, exercise: Any, source: Any, case: Case, seed: int = 0, counting: Any = None
    ) -> LaunchOutcome:
        file = source.code.partition("// ")[2]
        if file not in ("", "TODO"):
            return run_of(case, *self.costs_of.get(file.removesuffix(".cu"), (100, 10)))
        self.launched.append((case, seed))
        run_ = self._run(case, seed) if self._run else None
        return run_ or run_of(case)

    @contextlib.contextmanager
    def order(self, order: str, seed: int = 0) -> Iterator[None]:
        self.orders.append((order, seed))
        yield

    def be_patient(self) -> None:
        self.patient += 1

    def sanitize(self, exercise: Any, source: Any, case: Case) -> Any:
        self.launched.append((case, 0))
        report = self.reports.pop(0) if self.reports else clean()
        if isinstance(report, Exception):
            raise report
        return report, {name: wanted + self.off for name, wanted in case.expected_outputs.items()}

    off = 0.0


def counters(total: int = 100, longest: int = 10, lanes: float = 1.0) -> Any:
    return SimpleNamespace(
        warp_instructions=total, longest_warp_instructions=longest, lane_efficiency=lanes, shared_bytes=total
    )


def run_of(case: Case, total: int = 100, longest: int = 10, **changes: Any) -> LaunchOutcome:
    results: Any = {name: np.array(wanted) for name, wanted in case.expected_outputs.items()}
    fields: dict[str, Any] = {
        "outputs": results,
        "initial_contents": {n: np.full_like(v, -7) for n, v in results.items()},
        "overwritten_inputs": (),
    }
    return LaunchOutcome(**(fields | changes), counters=counters(total, longest))


def clean(*hazards: Any, complete: bool = True, blocks: int | None = None) -> Any:
    return SimpleNamespace(hazards=hazards, complete=complete, blocks_checked=blocks)


def trial(place: Any = None, exercise: KernelExercise = EXERCISE, **changes: Any) -> Any:
    return Trial(exercise, changes.pop("source", SOURCE), place or Place(), 3, **changes)


def test_each_launch_has_its_own_random_data() -> None:
    one = trial()
    first = one.case(40, BLOCKS[0])
    second = one.case(40, BLOCKS[1])
    again = one.case(40, BLOCKS[0])
    assert first.values["x"].tolist() == again.values["x"].tolist()
    assert first.values["x"].tolist() != second.values["x"].tolist()
    assert one.case(41, BLOCKS[0]).values["x"][:40].tolist() != first.values["x"].tolist()


def test_every_kind_of_data_is_tried_in_two_launches() -> None:
    cases = trial().make_data_cases()
    kinds = [case.label.partition("data with ")[2] for case in cases]
    assert kinds == [kind for kind in draw.DATA_KINDS[1:] for _ in range(2)]
    assert {case.size for case in cases[::2]} == {900}
    assert {(case.size, case.block) for case in cases[1::2]} == {(5000, (64, 1, 1))}

    def whole(data: DataGenerator, n: int, block: Any) -> Case:
        x = data.integer_floats(n)
        return Case(1, {"x": x, "n": n}, {"y": x})

    numbers = trial(exercise=replace(EXERCISE, case=whole)).make_data_cases()
    assert {case.label.partition("data with ")[2] for case in numbers} == {
        draw.DUPLICATE_VALUES,
        draw.EXTREME_VALUES,
    }


# Messages about a launch


def message(one: Trial, case: Case, seed: int = 0) -> str:
    try:
        one.run(case, "results", seed)
    except NotYet as reason:
        return str(reason).removeprefix(case.label)
    return ""


def test_a_wrong_launch_is_explained() -> None:
    hints = (Advice(advice.is_unchanged, "Write it."), Advice(advice.is_fault("endless"), "End it."))
    advised = replace(EXERCISE, advice=hints)

    def of(run: Any, seed: int = 0, **changes: Any) -> str:
        one = trial(Place(run), advised, **changes)
        return message(one, one.case(4, BLOCKS[0]), seed)

    assert of(None) == of(None, 3) == ""
    wrong = of(lambda case, seed: run_of(case, outputs={"y": case.expected_outputs["y"] + 1}))
    assert re.fullmatch(r": y\[0\] is .*, but it should be .* \(4 of 4 elements differ\)\.", wrong)
    same = {"y": np.zeros(4, np.float32)}
    untouched = lambda case, seed: run_of(case, outputs=same, initial_contents=same)  # noqa: E731
    assert of(untouched).endswith("differ). Write it.")
    assert (
        of(untouched, source=KernelSource("twice", CODE + "// TODO")) == bench.make_unwritten_error().args[0]
    )
    done = lambda case, seed: run_of(case, outputs=same)  # noqa: E731
    assert of(done, source=KernelSource("twice", CODE + "// TODO")).endswith("elements differ).")
    assert (
        of(lambda case, seed: run_of(case, overwritten_inputs=("x",)))
        == ": it writes to `x`, which it may only read."
    )
    assert (
        of(lambda case, seed: raising(KernelFault("endless", "it does not end.")))
        == ": it does not end. End it."
    )
    assert of(lambda case, seed: raising(KernelFault("parameters", "all other."))) == "all other."


def test_a_result_that_depends_on_the_initial_output_is_reported() -> None:
    def by_seed(case: Case, seed: int) -> Any:
        return run_of(case, outputs={"y": case.expected_outputs["y"] + 1}) if seed else None

    one = trial(Place(by_seed))
    assert ": the result depends on the old contents of the output" in message(one, one.case(4, BLOCKS[0]), 2)


# The stages


def judged(*steps: tuple[str, Any], **changes: Any) -> tuple[list[Any], int]:
    starts: list[int] = []
    results = stages._judge_stages(trial(**changes), steps, lambda: starts.append(1))  # type: ignore[arg-type]
    return [(stage.state, stage.said) for stage in results], len(starts)


def fails(_: Any) -> str:
    raise NotYet("bad.")


def says(text: str) -> Any:
    return lambda _: text


LEFT = ("not reached", "")


def test_judging_stops_at_the_first_failure_except_a_budget() -> None:
    passed = [("passed", "a. b."), ("passed", "c."), LEFT, LEFT, LEFT]
    assert judged(("results", says("a.")), ("orders", says("c.")), ("results", says("b."))) == (passed, 3)
    later = ("hazards", says("never"))
    failed = judged(("results", says("a.")), ("results", fails), later, later)
    assert failed == ([("failed", "bad."), *[LEFT] * 4], 3)
    report = judged(("budget", fails), ("parallelism", fails), ("results", says("never")))
    assert report == ([LEFT] * 3 + [("failed", "bad.")] * 2, 3)
    spent = judged(("budget", fails), ("parallelism", says("even.")), ("results", says("never")))
    assert spent[0] == [LEFT] * 3 + [("failed", "bad."), ("passed", "even.")]
    assert judged(("budget", fails), ("hazards", says("never")))[0] == [LEFT] * 3 + [("failed", "bad."), LEFT]
    with pytest.raises(UnwrittenAnswerError):
        judged(("results", lambda _: raising(bench.make_unwritten_error())))


def test_excessive_work_per_warp_is_detected() -> None:
    one = trial(Place(good=(100, 10)))
    assert stages.check_results(one) == "22 launches with 4 small sizes and 3 block shapes"
    assert [seed for _, seed in one.bench.launched] == list(range(22))
    assert one.hopeless_mistake is None
    assert one.busiest_launch[1].longest_warp_instructions == 10
    # The launch with the most work is compared with the reference, among blocks of more than one warp.
    for most, hopeless in ((4000, False), (4001, True)):
        large = trial(
            Place(lambda case, seed, m=most: run_of(case, m if case.size == 40 else 9), good=(100, 10))
        )
        stages.check_results(large)
        assert (large.hopeless_mistake is not None) == hopeless
    assert large.hopeless_mistake.case.size == 40
    assert prod(large.hopeless_mistake.case.block) > 32
    assert "it executes 4,001 instructions where 100 are enough" in large.hopeless_mistake.message
    narrow = trial(Place(lambda case, seed: run_of(case, 9999 if prod(case.block) == 32 else 9)))
    stages.check_results(narrow)
    assert narrow.hopeless_mistake is None
    busy = trial(Place(lambda case, seed: run_of(case, 9, case.size)))
    stages.check_results(busy)
    assert busy.busiest_launch[0].size == 5000


def test_large_sizes_are_skipped_if_the_work_is_excessive() -> None:
    one = trial()
    assert stages.check_large_results(one) == "and with 5,001 and 20,000."
    assert one.bench.patient == 1
    assert [case.size for case, _ in one.large_launches] == [5001, 20_000]
    assert stages.check_large_results(trial(exercise=replace(EXERCISE, sizes=lambda rng, n: (40,)))) == "."
    lost = trial(hopeless_mistake=Mistake("parallelism", None, "x"))  # type: ignore[arg-type]
    assert stages.check_large_results(lost) == "."
    assert stages.check_counted_results(lost) == ""
    assert lost.bench.launched == []

    def matrix(data: DataGenerator, size: Any, block: Any) -> Case:
        x = data.floats(size)
        return Case(4, {"x": x, "n": size[0]}, {"y": x})

    wide = replace(EXERCISE, case=matrix, sizes=lambda rng, n: ((3, 3), (60, 2000)))
    assert stages.check_large_results(trial(exercise=wide)) == "and with 60 × 2,000."


def test_a_wrong_block_order_is_reported_with_its_cause() -> None:
    one = trial()
    message = stages.check_orders(one)
    assert all(order in message for order in ("the same", "reversed", "random", "interleaved at barriers"))
    assert one.bench.orders == 2 * [("reversed", 0), ("random", 1), ("in turns", 2)]
    assert [seed for _, seed in one.bench.launched] == 2 * [0, 1, 2]

    def error_(order: str, hazards: bool = False) -> str:
        place = Place(lambda case, seed: run_of(case, outputs={"y": case.expected_outputs["y"] + 1}))
        place.reports = [clean(hazard("race", "two write"))] if hazards else []
        run = place._run
        place._run = lambda case, seed: run(case, seed) if place.orders[-1][0] == order else None  # type: ignore[misc]
        with pytest.raises(NotYet) as error:
            stages.check_orders(trial(place))
        return str(error.value)

    assert ", run in reverse order: y[0] is" in error_("reversed")
    assert error_("random").endswith(
        "CUDA does not guarantee an order of blocks. Let blocks work on different elements, or use atomics."
    )
    assert ", run in random order: " in error_("random")
    assert ", run with blocks that are interleaved at barriers: " in error_("in turns")
    assert error_("in turns").endswith("can change the memory that it reads afterwards.")
    assert error_("in turns", hazards=True).endswith("the result is right only by chance: two write")
    assert "CUDA does not guarantee an order" in error_("reversed", hazards=True)


def hazard(kind: str, message: str, severity: str = "error", space: str = "global") -> Any:
    return SimpleNamespace(kind=kind, message=message, severity=severity, space=space)


def test_hazards_are_reported_unless_they_are_harmless() -> None:
    def error_(*reports: Any, off: float = 0.0, **changes: Any) -> str:
        place = Place()
        place.reports = list(reports)
        place.off = off
        one = trial(place, replace(EXERCISE, **changes))
        try:
            return stages.check_hazards(one)
        except NotYet as reason:
            return str(reason).partition("threads: ")[2]

    launches = len(trial().choose_hazard_cases())
    fine = f"no races, no out-of-bounds accesses, no uninitialized reads, valid masks ({launches} launches)."
    assert error_() == fine
    assert (
        error_(clean(), clean(hazard("RAW", "one reads.")))
        == "the result is right only by chance: one reads."
    )
    assert error_(clean(hazard("WAW", "same value", "info"))) == fine
    twice_ = clean(hazard("WAW", "two write x, without synchronisation between them", "info"))
    assert (
        error_(twice_, forbids_double_writes=True)
        == "two write x. Each element must be written by only one thread."
    )
    assert (
        error_(clean(hazard("WAW", "two write s[0] alike", "info", "shared")), forbids_double_writes=True)
        == fine
    )
    assert error_(clean(hazard("RAW", "some", "info")), forbids_double_writes=True) == fine
    absent = clean(hazard("shuffle from an absent lane", "a lane is absent."))
    assert error_(absent) == fine
    assert error_(absent, off=1.0) == "the result is right only by chance: a lane is absent."
    report = clean(hazard("shuffle from an absent lane", "x"), hazard("RAW", "y."))
    assert error_(report).endswith("only by chance: y.")
    assert error_(KernelFault("endless", "it does not end.")) == "it does not end."
    some = error_(clean(complete=False, blocks=1))
    assert re.fullmatch(
        r"it takes so long that only 1 of \d+ blocks could be checked\. Divide .* threads\.", some
    )
    assert "only 0 of" in error_(clean(complete=False))


def test_a_kernel_is_run_on_a_real_gpu_with_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    cases_: list[Case] = []

    def on_gpu(cp: Any, exercise: Any, source: Any, case: Case) -> Any:
        cases_.append(case)
        bad = 1 if case.size == 5001 and cp == "bad" else 0
        return {"y": case.expected_outputs["y"] + bad}, {"y": case.expected_outputs["y"] - 1}

    monkeypatch.setattr(stages, "launch_on_gpu", on_gpu)
    monkeypatch.setattr(session, "which_device", lambda: SimpleNamespace(device="NVIDIA L4"))
    monkeypatch.setattr(session, "real_cp", lambda: "good")
    one = trial()
    assert stages.check_on_real_gpu(one) == "The same on the NVIDIA L4."
    assert len(cases_) == 24
    monkeypatch.setattr(session, "real_cp", lambda: "bad")
    with pytest.raises(NotYet, match=r"threads, on the NVIDIA L4: y\[0\]"):
        stages.check_on_real_gpu(one)


# Costs


def launch(yours: Any, reference: Any = None, naive: Any = None, size: int = 4096) -> CountedLaunch:
    stats: Any = SimpleNamespace(local_bytes=0)
    case = make_labelled_case(EXERCISE, DataGenerator(0), size, (256, 1, 1))
    run_ = [None if c is None else Costs(c, stats) for c in (yours, reference or counters(), naive)]
    return CountedLaunch(case, *run_)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("yours", "reference", "says"),
    [
        (counters(7000, 10), counters(100, 10), ""),  # 6 times, plus 50 per warp
        (
            counters(7001, 10),
            counters(100, 10),
            "it executes 7,001 instructions where 100 are enough: threads repeat",
        ),
        (counters(1000, 300), counters(1000, 100), ""),  # three times the share
        (
            counters(1000, 301),
            counters(1000, 100),
            "its busiest warp executes 301 instructions where 100 are enough",
        ),
        (counters(10, 9), counters(100, 9), ""),  # a larger share of less work
        (counters(20, 13), counters(100, 9), ""),  # less work, slightly busier warp
        (counters(20, 14), counters(100, 9), "its busiest warp executes 14 instructions where 9 are enough"),
        (counters(lanes=0.5), counters(lanes=1.0), ""),
        (
            counters(lanes=0.49),
            counters(lanes=1.0),
            "on average 49% of the lanes are at work (reference 100%): one",
        ),
        (counters(0, 0), counters(0, 0), ""),
    ],
)
def test_uneven_work_between_warps_and_lanes_is_reported(yours: Any, reference: Any, says: str) -> None:
    one = trial(counted_launches=[launch(yours, reference)])
    if not says:
        assert (
            f"{yours.longest_warp_instructions} instructions in the busiest warp"
            in costs.check_shared_work(one)
        )
        return
    with pytest.raises(NotYet) as error:
        costs.check_shared_work(one)
    assert str(error.value).startswith(
        f"n = 4,096, 16 blocks of 256 threads: the results are right, but {says}"
    )


def test_the_busiest_warp_of_a_small_launch_is_checked() -> None:
    case = make_labelled_case(EXERCISE, DataGenerator(0), 40, (64, 1, 1))

    def of(longest: int) -> str:
        one = trial(
            Place(good=(100, 10)),
            counted_launches=[launch(counters(1000, 20, 0.75))],
            busiest_launch=(case, counters(9, longest)),
        )
        return costs.check_shared_work(one)

    assert of(500) == "75% of the lanes at work, 20 instructions in the busiest warp."
    with pytest.raises(
        NotYet, match=r"^n = 40, 1 block of 64 threads: .* executes 501 instructions where 10 are"
    ):
        of(501)


BUDGET = Budget("shared_bytes", "Take less.", max_reference_factor=1)


def test_a_budget_applies_where_the_reference_meets_it() -> None:
    one = trial(
        exercise=replace(EXERCISE, budgets=(BUDGET,)),
        counted_launches=[launch(counters(), naive=counters(300)), launch(counters(90))],
    )
    assert costs.check_budget(one) == (
        "100 bytes of shared memory per block; within the budget in 1 other launches, too."
    )
    assert [(s.yours, s.reference, s.naive) for s in one.scores] == [(100, 100, 300)]
    late = trial(
        exercise=one.exercise, counted_launches=[launch(counters()), launch(counters(101), size=9000)]
    )
    with pytest.raises(
        NotYet, match=r"n = 9,000, .* takes 101 bytes of shared memory per block, and 100 are allowed"
    ):
        costs.check_budget(late)
    assert [score.yours for score in late.scores] == [100]
    for limit in ({"max_count": 99}, {"min_count": 101}):
        unkept = replace(EXERCISE, budgets=(Budget("shared_bytes", **limit),))
        assert costs.check_budget(
            trial(exercise=unkept, counted_launches=[launch(counters(500 if "most" in limit else 1))])
        )
    assert "no budget" in costs.check_budget(trial())


def test_costs_are_counted_for_scored_random_and_large_launches(monkeypatch: Any) -> None:
    calls: list[Any] = []

    def shipped(exercise: Any, file: str, size: Any, block: Any, device: str) -> Costs:
        calls.append((file, size, block, device))
        return Costs(counters(5), SimpleNamespace(local_bytes=0))  # type: ignore[arg-type]

    monkeypatch.setattr(costs, "_count_solution_costs", shipped)
    launches_ = [(700, (64, 1, 1)), (6000, (128, 1, 1))]
    measured = replace(EXERCISE.measured_launch, draw_launches=lambda rng: launches_)
    exercise = replace(EXERCISE, naive="slow.cu", budgets=(BUDGET,), measured_launch=measured)
    case = make_labelled_case(exercise, DataGenerator(1), 20_000, (64, 1, 1))
    one = trial(Place(good=(40, 4)), exercise, large_launches=[(case, counters(77))])
    results = costs.get_counted_launches(one)
    assert [(c.case.size, c.case.block[0]) for c in results] == [
        (4096, 256),
        (700, 64),
        (6000, 128),
        (20_000, 64),
    ]
    assert [c.reference.counters.warp_instructions for c in results] == [5, 40, 40, 40]
    assert [c.naive and c.naive.counters.warp_instructions for c in results] == [5, None, None, None]
    assert [c.yours.counters.warp_instructions for c in results] == [100, 100, 100, 77]
    assert calls == [(file, 4096, (256, 1, 1), "A100") for file in ("good.cu", "slow.cu")]
    assert costs.get_counted_launches(one) is results
    assert len(one.bench.launched) == 3
    assert costs.get_counted_launches(trial(exercise=EXERCISE))[0].naive is None
    assert len(costs.get_counted_launches(trial())) == 3
    # Cache counters, and kernels with few columns, are not judged by large launches.
    cold = replace(exercise, budgets=(Budget("dram_bytes"),))
    assert len(costs.get_counted_launches(trial(Place(), cold, large_launches=[(case, counters())]))) == 3
    for columns, changes in ((31, 0), (32, 1)):
        flat = replace(case, size=(700, columns))
        assert (
            len(costs.get_counted_launches(trial(Place(), exercise, large_launches=[(flat, counters())])))
            == 3 + changes
        )


def test_block_orders_are_checked_only_with_several_blocks() -> None:
    cases = trial().choose_order_cases()
    grids = [prod(case.launch_grid) for case in cases]
    every = sorted(prod(c.launch_grid) for c in trial().small_cases if prod(c.launch_grid) > 1)
    assert grids == [every[len(every) // 2], every[-1]]
    crowded = trial(exercise=replace(EXERCISE, waits_between_blocks=True)).choose_order_cases()
    assert [case.size for case in crowded][2:] == [20_000]
    alone = trial(exercise=replace(EXERCISE, sizes=lambda rng, n: (1,)))
    assert alone.choose_order_cases() == []
