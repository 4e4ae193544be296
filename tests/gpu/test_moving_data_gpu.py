"""Notebook 08 on a GPU: its programs, its map, managed memory and IPC."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab_course.content.n08_copies import elsewhere, exercises, where
from gpulab_course.content.n08_copies.memory import managed, mapped
from gpulab_course.teach.judge.check import judge
from virtualgpu.errors import GpulabError

pytestmark = pytest.mark.gpu

N = 4 << 20


@pytest.mark.hardware("the process that judges takes the computer's own CuPy")
@pytest.mark.parametrize("exercise", exercises.EXERCISES, ids=lambda found: found.exercise_id)
def test_the_reference_solution_passes_on_the_gpu(cp: Any, exercise: Any) -> None:
    verdict = judge(exercise, exercise.reference)
    assert verdict, str(verdict)
    assert "The same on the " in verdict.stages[0].said


def test_kinds_of_transfers_are_distinguished(cp: Any) -> None:
    pageable = np.ones(N, np.float32)
    pinned = gl.cupyx.zeros_pinned(N, np.float32)
    x = cp.zeros(N, cp.float32)
    m = managed(N)
    np.from_dlpack(m)[...] = 1
    y = cp.empty_like(x)
    lent = mapped(pinned)
    for array in (x, lent):
        cp.multiply(array, 2, out=y)
    x.set(pinned), x.set(pageable)
    cp.cuda.Device().synchronize()
    with gl.timeline() as t:
        x.set(pageable)
        x.set(pinned)
        x.get(out=pinned, blocking=False)
        cp.multiply(lent, 2, out=y)
        cp.multiply(m, 2, out=y)
        cp.multiply(m, 2, out=y)
    view = where.where(t, reads=(lent, m, m))
    found = [move.way for move in view.record]
    assert found == ["pageable", "pinned", "pinned", "zero-copy", "managed", "at home"], view.describe()
    rates = [move.gbps for move in view.record]
    assert rates[1] > 1.5 * rates[0]
    assert rates[5] > 5 * rates[4]
    assert "measured" in repr(view)


def test_copy_calls_block_the_host_as_the_notebook_states(cp: Any) -> None:
    pageable = np.ones(N, np.float32)
    pinned = gl.cupyx.zeros_pinned(N, np.float32)
    x = cp.zeros(N, cp.float32)

    def held(call: Any) -> float:
        """For what part of its copy's time a call holds the host up."""
        begun = time.perf_counter()
        call()
        returned = time.perf_counter()
        cp.cuda.Device().synchronize()
        return (returned - begun) / (time.perf_counter() - begun)

    for call in (lambda: x.set(pinned), lambda: x.set(pageable)):
        held(call)
    assert held(lambda: x.set(pinned)) < 0.5
    # The last piece may still be on its way from the driver's buffer.
    assert held(lambda: x.set(pageable)) > 0.5
    assert held(lambda: x.get(out=pageable, blocking=False)) > 0.9
    assert held(lambda: x.get(out=pinned, blocking=False)) < 0.5


def test_managed_memory_is_shared_and_limited_to_device_memory(cp: Any) -> None:
    with pytest.raises(GpulabError, match="can hang a"):
        managed(cp.cuda.runtime.memGetInfo()[1])
    x = managed(4)
    x.fill(1)
    cp.cuda.Device().synchronize()
    np.from_dlpack(x)[0] = 7
    assert float(x[0]) == 7


@pytest.mark.hardware("no other process can open what a virtual GPU has")
def test_two_processes_share_an_array(cp: Any) -> None:
    shown = elsewhere.two_processes()
    assert shown.provenance.source == "measured"
    assert shown.record["sum here"] == 2 * shown.record["sum there"]
