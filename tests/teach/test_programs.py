"""Judging of device programs by waits, time, overlap and stream order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import gpulab as gl
from gpulab_course.teach.judge import Budget, DataGenerator, ProgramCase, ProgramExercise
from gpulab_course.teach.judge.check import judge


def pieces(streams: int, wait: Callable[[Any], object]) -> Callable[..., Any]:
    """Return a program that halves an array in two pieces: copy in, compute, copy out."""

    def halve(x: Any, y: Any) -> Any:
        cp = gl.cp
        streams_ = [cp.cuda.Stream(non_blocking=True) for _ in range(streams)]
        pieces_ = []
        for number in range(2):
            part = slice(number * x.size // 2, (number + 1) * x.size // 2)
            with streams_[number % streams] as stream:
                piece = cp.empty(x[part].shape, dtype=x.dtype)
                piece.set(x[part])
                for _ in range(8):
                    cp.multiply(piece, 1, out=piece)
                cp.multiply(piece, 0.5, out=piece)
                piece.get(out=y[part], blocking=False)
                pieces_.append(piece)
        for stream in streams_:
            wait(stream)
        return y

    return halve


def halved_on_pinned(bench: Any, program: Any, x: Any) -> Any:
    y = bench.copy_to_pinned(0 * x)
    bench.keep_host_busy(1000)
    program(bench.copy_to_pinned(x), y)
    return bench.read(y)


def halved(data: DataGenerator, n: int) -> ProgramCase:
    x = data.integer_floats(n) * np.float32(2)
    return ProgramCase((x,), x / 2)


def own_stream(stream: Any) -> None:
    stream.synchronize()


def whole_device(stream: Any) -> None:
    gl.cp.cuda.Device().synchronize()


def nothing(stream: Any) -> None:
    pass


HALVE = ProgramExercise(
    "demo",
    "Demo",
    "halve",
    halved,
    pieces(2, own_stream),
    pieces(1, own_stream),
    sizes=(640, 1 << 18),
    checks_stream_order=True,
    call_program=halved_on_pinned,
    budgets=(
        Budget("device_waits", "Only your own.", max_count=0),
        Budget("hidden_percent", "In pieces.", min_reference_share=0.9),
        Budget("microseconds", max_reference_factor=1.0),
    ),
)


def test_waits_time_and_overlap_are_counted() -> None:
    verdict = judge(HALVE, pieces(2, own_stream))
    assert verdict, str(verdict)
    yours = {score.counter: score.yours for score in verdict.scores}
    assert yours["device_waits"] == 0
    assert 10 < yours["hidden_percent"] <= 100
    assert yours["microseconds"] < 1000  # what the host did before the call does not count
    assert "1 wait for the whole device, and none" in judge(HALVE, pieces(1, whole_device)).message
    assert "it has 0 % of the possible overlap" in judge(HALVE, pieces(1, own_stream)).message


def test_missing_synchronization_between_streams_fails() -> None:
    stages = [stage.name for stage in judge(HALVE, pieces(2, own_stream)).stages]
    assert stages == ["results", "hazards", "orders", "counts"]
    verdict = judge(HALVE, pieces(2, nothing))
    assert verdict.failed_stage == "hazards"
    assert "The host reads after the call" in verdict.message
    assert "synchronize()" in verdict.message
    assert judge(replace(HALVE, checks_stream_order=False, budgets=()), pieces(2, nothing))


def test_order_dependent_results_fail_even_without_a_hazard() -> None:
    """Host reads of pinned memory cannot be observed, but a read that comes too early changes the result."""

    def last_of(x: Any) -> float:
        cp = gl.cp
        stream = cp.cuda.Stream(non_blocking=True)
        buffer = np.frombuffer(cp.cuda.alloc_pinned_memory(4), np.float32, 1)
        with stream:
            y = cp.asarray(x)
            y[-1:].get(out=buffer, blocking=False)
        last = float(buffer[0])
        stream.synchronize()
        return last

    def case(data: DataGenerator, n: int) -> ProgramCase:
        x = data.integer_floats(n)
        return ProgramCase((x,), x[-1])

    exercise = ProgramExercise(
        "demo", "Demo", "last_of", case, last_of, sizes=(64,), checks_stream_order=True
    )
    verdict = judge(exercise, last_of)
    assert verdict.failed_stage == "orders"
    assert "In another order that its streams allow, last_of(array of (64,)): the result" in verdict.message


def doubled(data: DataGenerator, n: int) -> ProgramCase:
    x = data.floats(n)
    return ProgramCase((x,), 2 * x, True, required_place="device", keeps_arguments=True)


DOUBLE = ProgramExercise(
    "demo", "Demo", "double", doubled, lambda x: 2 * x, sizes=(7, 100), checks_stream_order=True
)


def test_arguments_may_still_be_written_by_the_current_stream() -> None:
    def elsewhere(x: Any) -> Any:
        with gl.cp.cuda.Stream(non_blocking=True):
            return 2 * x

    def behind_it(x: Any) -> Any:
        current = gl.cp.cuda.get_current_stream()
        stream = gl.cp.cuda.Stream(non_blocking=True)
        stream.wait_event(current.record())
        with stream:
            y = 2 * x
        current.wait_event(stream.record())
        return y

    verdict = judge(DOUBLE, elsewhere)
    assert verdict.failed_stage == "hazards"
    assert "current may still be writing it" in verdict.message
    lines = {int(line) for line in re.findall(r"line (\d+)", verdict.message)}
    assert lines == {elsewhere.__code__.co_firstlineno + 2}, "no line of the judge"
    assert judge(DOUBLE, behind_it)


def test_streams_and_graphs_count_only_if_the_result_needs_them() -> None:
    def works(x: Any, needed: bool) -> Any:
        cp = gl.cp
        current = cp.cuda.get_current_stream()
        stream = cp.cuda.Stream(non_blocking=True)
        result = 2 * x
        stream.wait_event(current.record())
        with stream:
            copy_ = result + 0
        current.wait_event(stream.record())
        return copy_ if needed else result

    def replayed(x: Any, needed: bool) -> Any:
        cp = gl.cp
        stream = gl.cp.cuda.get_current_stream()
        y = cp.empty_like(x)
        stream.begin_capture()
        cp.multiply(x, 2, out=y)
        graph = stream.end_capture()
        graph.launch()
        return y if needed else 2 * x

    for program, item in (
        (works, Budget("streams", min_count=2)),
        (replayed, Budget("working_graph_launches", min_count=1)),
        (replayed, Budget("graph_kernels", min_count=1)),
    ):
        exercise = replace(DOUBLE, budgets=(item,))
        assert judge(exercise, lambda x, program=program: program(x, True))
        assert judge(exercise, lambda x, program=program: program(x, False)).failed_stage == "counts"


def test_polling_an_event_counts_as_a_wait() -> None:
    def asks(x: Any) -> Any:
        y = 2 * x
        end = gl.cp.cuda.get_current_stream().record()
        while not end.done:
            pass
        return y

    exercise = replace(DOUBLE, budgets=(Budget("waits", max_count=0),))
    assert judge(exercise, lambda x: 2 * x)
    assert "1 wait of the host" in judge(exercise, asks).message
