"""Device programs are judged by waits, time, overlap, and the order of their streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import gpulab as gl
from gpulab.teach.judge import Budget, Draw, ProgramCase, ProgramExercise
from gpulab.teach.judge.check import judge


def pieces(streams: int, wait: Callable[[Any], object]) -> Callable[..., Any]:
    """Halve an array, in two pieces that are copied in, worked on and copied out."""

    def halve(x: Any, y: Any) -> Any:
        cp = gl.cp
        made = [cp.cuda.Stream(non_blocking=True) for _ in range(streams)]
        kept = []
        for number in range(2):
            part = slice(number * x.size // 2, (number + 1) * x.size // 2)
            with made[number % streams] as stream:
                piece = cp.empty(x[part].shape, dtype=x.dtype)
                piece.set(x[part])
                for _ in range(8):
                    cp.multiply(piece, 1, out=piece)
                cp.multiply(piece, 0.5, out=piece)
                piece.get(out=y[part], blocking=False)
                kept.append(piece)
        for stream in made:
            wait(stream)
        return y

    return halve


def halved_on_pinned(bench: Any, program: Any, x: Any) -> Any:
    y = bench.pinned(0 * x)
    bench.compute(1000)
    program(bench.pinned(x), y)
    return bench.read(y)


def halved(data: Draw, n: int) -> ProgramCase:
    x = data.whole(n) * np.float32(2)
    return ProgramCase((x,), x / 2)


def one(stream: Any) -> None:
    stream.synchronize()


def whole_device(stream: Any) -> None:
    gl.cp.cuda.Device().synchronize()


def nothing(stream: Any) -> None:
    pass


HALVE = ProgramExercise(
    "demo", "Demo", "halve", halved, pieces(2, one), pieces(1, one),
    sizes=(640, 1 << 18), checked=True, calls=halved_on_pinned,
    budgets=(
        Budget("device_waits", "Only your own.", most=0),
        Budget("hidden_percent", "In pieces.", least_share=0.9),
        Budget("microseconds", allowance=1.0),
    ),
)  # fmt: skip


def test_waits_time_and_overlap_are_counted() -> None:
    verdict = judge(HALVE, pieces(2, one))
    assert verdict, str(verdict)
    yours = {score.counter: score.yours for score in verdict.scores}
    assert yours["device_waits"] == 0
    assert 10 < yours["hidden_percent"] <= 100
    assert yours["microseconds"] < 1000  # what the host did before the call does not count
    assert "1 waits for the whole device, and none" in judge(HALVE, pieces(1, whole_device)).message
    assert "it has 0 % of what can be hidden" in judge(HALVE, pieces(1, one)).message


def test_the_order_of_streams_is_checked() -> None:
    stages = [stage.name for stage in judge(HALVE, pieces(2, one)).stages]
    assert stages == ["results", "hazards", "orders", "counts"]
    verdict = judge(HALVE, pieces(2, nothing))
    assert verdict.failed_stage == "hazards"
    assert "The host reads after the call" in verdict.message
    assert "synchronize()" in verdict.message
    assert judge(replace(HALVE, checked=False, budgets=()), pieces(2, nothing))


def test_results_that_depend_on_the_order_are_found_where_no_hazard_shows() -> None:
    """What the host reads of page-locked memory cannot be seen, only that it comes too early."""

    def last_of(x: Any) -> float:
        cp = gl.cp
        stream = cp.cuda.Stream(non_blocking=True)
        buffer = np.frombuffer(cp.cuda.alloc_pinned_memory(4), np.float32, 1)
        with stream:
            y = cp.asarray(x)
            y[-1:].get(out=buffer, blocking=False)
        seen = float(buffer[0])
        stream.synchronize()
        return seen

    def case(data: Draw, n: int) -> ProgramCase:
        x = data.whole(n)
        return ProgramCase((x,), x[-1])

    exercise = ProgramExercise("demo", "Demo", "last_of", case, last_of, sizes=(64,), checked=True)
    verdict = judge(exercise, last_of)
    assert verdict.failed_stage == "orders"
    assert "In another order that its streams allow, last_of(array of (64,)): the result" in verdict.message
