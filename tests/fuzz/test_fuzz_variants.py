"""One generated kernel, one answer: whatever the target, the order of blocks, or what is watched."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from gpulab import session
from tests.fuzz import generator, virtual_run
from virtualgpu.compile import nvrtc
from virtualgpu.engine import TraceRequest
from virtualgpu.launch.compiled import compile_module
from virtualgpu.launch.prepare import prepare_launch
from virtualgpu.model import machine
from virtualgpu.protocol import Hazards, Launch
from virtualgpu.records import KernelSource, SanitizerReport
from virtualgpu.sanitizer import sanitize

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")

FIRST = 200
SEEDS = range(FIRST, FIRST + generator.PACK // 2)  # what a machine does in some seconds
OTHER_TARGETS = (75, 100)


def answers(target: int = 90, **options: Any) -> dict[int, str]:
    program, kernels = virtual_run.compiled(FIRST, target)
    return {seed: generator.digest(virtual_run.run(program, kernels[seed], **options)) for seed in SEEDS}


@lru_cache
def expected() -> dict[int, str]:
    """Answers for 9.0, blocks in order, nothing watched."""
    return answers()


@pytest.mark.parametrize("target", OTHER_TARGETS)
def test_results_do_not_depend_on_the_target(target: int) -> None:
    assert answers(target) == expected()


def test_the_order_of_blocks_does_not_matter() -> None:
    program, kernels = virtual_run.compiled(FIRST, 90)
    several = [kernels[seed] for seed in SEEDS if np.prod(kernels[seed].grid) > 1]
    assert len(several) >= 5
    for k in several:
        blocks = int(np.prod(k.grid))
        shuffled = np.random.default_rng(k.seed).permutation(blocks).astype(np.int64)
        for order in (np.arange(blocks)[::-1].astype(np.int64).copy(), shuffled):
            results = virtual_run.run(program, k, block_order=order)
            assert generator.digest(results) == expected()[k.seed], k.seed


def test_counting_does_not_change_results() -> None:
    assert answers(instrument="counters") == expected()


@pytest.mark.slow
def test_tracing_does_not_change_results() -> None:
    results = {}
    program, kernels = virtual_run.compiled(FIRST, 90)
    for seed in SEEDS:
        k = kernels[seed]
        last = tuple(n - 1 for n in k.grid)
        request = TraceRequest(block_index=last, warp_index=0, max_steps=2000)  # type: ignore[arg-type]
        results[seed] = generator.digest(virtual_run.run(program, k, trace=request))
    assert results == expected()


def checked(module: Any, k: generator.Kernel) -> tuple[SanitizerReport, str]:
    """What the checks of races, unwritten memory and synchronisation say of a kernel."""
    device = machine.current().current_device
    cp = session.cp()
    data = generator.data(k)
    outputs = [cp.asarray(array) for array in data.outputs]
    arguments = (*(cp.asarray(a) for a in data.inputs), *outputs, np.int32(data.n), data.scale)
    kernel = KernelSource(k.name, module.code, generator.OPTIONS)
    launch = Launch.of(kernel, k.grid, k.block, arguments, k.dynamic_shared_bytes)
    report = sanitize(prepare_launch(device, module.kernel(k.name, device), launch), Hazards())
    return report, generator.digest([cp.asnumpy(array) for array in outputs])


@pytest.mark.slow
def test_generated_kernels_have_no_false_hazards() -> None:
    """The kernels' shuffles deliberately read inactive lanes and discard the values."""
    session.use_device("virtual:H200")
    try:
        source, kernels = generator.program(SEEDS)
        module = compile_module(source, generator.OPTIONS, (), (9, 0))
        for k in kernels:
            report, digest = checked(module, k)
            kinds = {hazard.kind for hazard in report.hazards}
            assert kinds <= {"shuffle from an absent lane"}, k.seed
            assert digest == expected()[k.seed], k.seed
    finally:
        session.use_device("auto")
