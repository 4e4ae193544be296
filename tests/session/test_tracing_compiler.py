"""The tracing compiler: guarded kernels are recompiled when a guard fails, and results are correct."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.lab.fusion.compiler.jit import MAX_ENTRIES, CompiledFunction, compiled

cp: Any = None
FACTOR: Any = 2.0
HELD: Any = None


@pytest.fixture(autouse=True)
def on_two_virtual_gpus() -> Iterator[None]:
    global cp, FACTOR, HELD
    gl.use_device("virtual:T4", count=2)
    cp = gl.cp
    FACTOR = 2.0
    HELD = None
    yield
    gl.use_device("virtual:T4", count=1)


def scaled(x: Any, w: Any) -> Any:
    return cp.tanh(x * w) * FACTOR


def held(x: Any) -> Any:
    return x * (HELD + 1)


def shifted(x: Any, y: Any) -> Any:
    y += 1
    return x + y


def near(result: Any, expected: Any) -> None:
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    tolerance = 2e-3 if result.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(result.get(), expected.get(), rtol=tolerance)


def why(function: CompiledFunction) -> list[str]:
    return [entry.compile_reason for entry in function.entries]


def test_a_second_call_reuses_the_compiled_kernel() -> None:
    function = compiled(scaled)
    x = cp.linspace(0, 1, 60, dtype=cp.float32).reshape(6, 10)
    w = cp.ones(10, "f")
    function(x, w)
    with gl.timeline() as line:
        near(function(x + 1, w * 3), scaled(x + 1, w * 3))
    assert repr(function) == "scaled: compiled 1 time, 1 hit."
    names = [a.name for a in line.record.activities]
    assert names.count("scaled_0") == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x, w: (x.astype(cp.float16), w), "x.dtype was float32 and is float16"),
        (lambda x, w: (x[:3], w), "x.shape was (6, 10) and is (3, 10)"),
        (lambda x, w: (x.T.copy().T, w), "x.contiguous was True and is False"),
        (lambda x, w: (x, 2.5), "w.dtype was float32 and is None"),
        (lambda x, w: (x, x[0]), "x and w share memory was False and is True"),
    ],
    ids=["dtype", "shape", "layout", "number", "memory"],
)
def test_a_failed_guard_is_reported_and_the_result_is_correct(change: Any, reason: str) -> None:
    function = compiled(scaled)
    x = cp.linspace(0, 1, 60, dtype=cp.float32).reshape(6, 10)
    w = cp.ones(10, "f")
    for args in ((x, w), change(x, w), (x, w), change(x, w)):
        near(function(*args), scaled(*args))
    assert why(function) == ["the first call", reason]
    assert [entry.hit_count for entry in function.entries] == [1, 1]
    assert reason in repr(function.explain())


def test_each_device_has_its_own_compiled_program() -> None:
    function = compiled(scaled)
    for device in (0, 1, 0, 1):
        with cp.cuda.Device(device):
            x = cp.ones((2, 4), dtype=cp.float32)
            near(function(x, x[0] + 1), scaled(x, x[0] + 1))
    assert why(function) == ["the first call", "device was 0 and is 1"]


def test_numbers_are_compiled_as_guarded_constants() -> None:
    global FACTOR
    function = compiled(scaled)
    x = cp.ones(4, dtype=cp.float32)
    function(x, 3)
    FACTOR = 5.0
    near(function(x, 3), scaled(x, 3))
    near(function(x, 4), scaled(x, 4))
    assert why(function)[1:] == ["the outer variable FACTOR is 5.0, and was 2.0", "w was 3 and is 4"]
    assert "5.0f" in function.source


def test_a_global_array_can_be_modified_or_replaced() -> None:
    global HELD
    HELD = cp.ones(4, dtype=cp.float32)
    function = compiled(held)
    x = cp.ones(4, dtype=cp.float32)
    near(function(x), held(x))
    HELD[...] = 7
    near(function(x), held(x))
    HELD = cp.full(4, 3, dtype=cp.float32)
    near(function(x), held(x))
    assert why(function) == ["the first call", "the outer variable HELD is another array"]


def test_aliased_arguments_are_compiled_separately() -> None:
    function = compiled(shifted)
    for _ in range(2):
        x = cp.arange(4.0)
        y = cp.arange(4.0)
        near(function(x, y), cp.arange(4.0) * 2 + 1)
        near(y, cp.arange(4.0) + 1)
        near(function(x, x), cp.arange(4.0) * 2 + 2)
    assert len(function.entries) == 2


def test_a_function_that_reads_a_value_on_the_host_is_not_compiled() -> None:
    def chosen(x: Any) -> Any:
        return x + 1 if float(x.sum()) > 0 else x - 1

    function = compiled(chosen)
    for sign in (1, -1, 1):
        x = cp.full(4, sign, dtype=cp.float32)
        near(function(x), chosen(x))
    assert "as written: float of the result of 'sum'" in repr(function.explain())


def test_operations_run_in_the_stream_where_they_were_traced() -> None:
    side = cp.cuda.Stream(non_blocking=True)

    def aside(x: Any) -> Any:
        y = x + 1
        with side:
            z = y * 2
        return z - 3 if cp.cuda.is_available() else z

    def plain(x: Any) -> Any:
        return (x + 1) * 2 - 3

    function = compiled(aside)
    x = cp.ones(1000, dtype=cp.float32)
    function(x)
    with gl.check_streams() as checked, gl.timeline() as line:
        result = function(x)
    near(result, plain(x))
    assert checked.record.clean
    kernels = [a for a in line.record.activities if a.name.startswith("aside_")]
    assert len({a.stream_id for a in kernels}) == 2
    assert "cuda.is_available() = True" in repr(function.explain())


def test_compilation_stops_after_repeated_guard_failures() -> None:
    function = compiled(scaled)
    for n in range(1, MAX_ENTRIES + 4):
        x = cp.ones(n, dtype=cp.float32)
        near(function(x, 2), scaled(x, 2))
    assert len(function.entries) == MAX_ENTRIES
