"""The teaching kernels as a GPU gets them, with what was fastest, and the ladder that is measured with it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import gpulab as gl
from gpulab_course.content import kernels
from tests.teach.test_course_kernels import ODD, check

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.hardware("a virtual GPU gets kernels that compile quickly instead"),
]


@pytest.mark.parametrize("ladder", kernels.KERNEL_SERIES, ids=lambda ladder: ladder.name)
def test_every_kernel_version_is_right_at_odd_sizes(cp: Any, ladder: kernels.KernelSeries) -> None:
    for size, rung in itertools.product(ODD[ladder.name], ladder.rungs):
        check(ladder.name, rung.name, size)


def test_the_fastest_kernel_versions_do_not_spill_registers(cp: Any) -> None:
    for ladder in kernels.KERNEL_SERIES:
        example = kernels.example(ladder.name)
        assert kernels.launch(ladder.best.name, *example.arrays).step.kernel.local_size_bytes == 0, (
            ladder.name
        )


def test_the_memory_hierarchy_is_measured(cp: Any) -> None:
    ladder = gl.memory_hierarchy().record
    assert ladder.provenance.source == "measured"
    sizes = {c.level: c.size_bytes for c in ladder.capacities}
    within_l1, within_l2 = (ladder.latency_at(sizes[level] / 4) for level in ("L1", "L2"))
    beyond = float(ladder.latency_ns[-1])
    assert 2 * within_l1 < within_l2 < beyond
    rates = [ladder.bandwidth(level) or 0 for level in ("registers", "L1", "L2", "memory, read")]
    assert rates == sorted(rates, reverse=True)
    for level in ladder.bandwidths:
        if level.gbps and level.published_gbps:
            assert level.gbps < 1.1 * level.published_gbps, level.level
