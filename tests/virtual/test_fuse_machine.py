"""Fused functions on the virtual GPU: numbers of launches, and remedies in error messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.virtual.test_fuse import REDUCTIONS, scaled, step
from virtualgpu import cp
from virtualgpu.model.machine import Machine

pytestmark = pytest.mark.usefixtures("machine")


def work(a: Any) -> Any:
    return cp.sqrt(a * a + 2 * a + 1) - 1


def test_a_fused_function_is_one_launch(machine: Machine) -> None:
    x = cp.arange(100_000, dtype="f4")
    launches = machine.kernel_launches
    work(x)
    assert machine.kernel_launches == launches + 6
    cp.fuse(kernel_name="all_at_once")(work)(x)
    assert machine.kernel_launches == launches + 7
    assert machine.devices[0].work_queue.log[-1].name == "all_at_once"


@pytest.mark.parametrize("function", [*REDUCTIONS, lambda x, y: step(x, y, 0.5)])
def test_fused_reductions_and_in_place_updates_are_one_launch(function: Any, machine: Machine) -> None:
    x = cp.ones((7, 33))
    y = cp.ones((7, 33))
    launches = machine.kernel_launches
    cp.fuse(kernel_name="fused")(function)(x, y)
    assert machine.kernel_launches == launches + 1


def test_other_scalar_values_do_not_compile_again() -> None:
    fused = cp.fuse(scaled)
    for by in (2.0, 3.0, 4.5):
        fused(cp.arange(3.0), by)
    assert len(fused._plans) == 1
    fused(cp.arange(3.0, dtype="f4"), 2)
    assert len(fused._plans) == 2
    fused.clear_cache()
    assert not fused._plans


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(cp.cuda.compiler.CompileException, match="kernel_name="):
        cp.fuse(lambda a: a + 1)(cp.arange(3.0))


def test_numpy_arguments_are_refused_with_a_remedy() -> None:
    with pytest.raises(AssertionError, match=r"cp\.asarray"):
        cp.fuse(scaled)(cp.arange(3.0), np.arange(3.0))
