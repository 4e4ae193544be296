"""Counts of the machine code against Nsight Compute's on an H200."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from tests.counters.cases import CASES, case
from tests.counters.test_nsight import MERGED, PREDICATED, UNROLLED, divergent
from virtualgpu.compile import nvrtc, sass
from virtualgpu.compile.as_run import convert_counts
from virtualgpu.records import KernelCounters
from virtualgpu.records.as_run import AsRun

pytestmark = pytest.mark.skipif(not sass.is_available(), reason="needs nvidia-cuda-nvdisasm")

LAUNCHES = [(c.kernel, size) for c in CASES for size in c.sizes]
TARGET = 90
KINDS = (("load", ("ld",)), ("store", ("st",)), ("atomic", ("red", "atom")))

Counted = Callable[[str, int], KernelCounters]
Nsight = Callable[[str, int], dict[str, int]]
Anchored = Callable[[str, int], AsRun]


@pytest.fixture(autouse=True, scope="module")
def same_compiler(recording: dict[str, Any]) -> None:
    version = ".".join(map(str, nvrtc.read_version()))
    if version != recording["versions"]["NVRTC"]:
        pytest.skip(
            f"NVRTC {version} may make other machine code than {recording['versions']['NVRTC']}, recorded"
        )


@functools.cache
def images(file: str, code: str) -> tuple[str, dict[str, tuple[sass.SassInstruction, ...]]]:
    ptx = nvrtc.compile_ptx(code, target=TARGET, options=nvrtc.CUPY_OPTIONS).ptx
    cubin = nvrtc.compile_cubin(code, target=TARGET, options=("-lineinfo", *nvrtc.CUPY_OPTIONS)).cubin
    return ptx, sass.disassemble(cubin)


@pytest.fixture(scope="session")
def anchored(counted: Counted) -> Anchored:
    @functools.cache
    def run(kernel: str, size: int) -> AsRun:
        ptx, machine = images(case(kernel).file, case(kernel).code)
        return convert_counts(counted(kernel, size), ptx, machine, TARGET)

    return run


@pytest.mark.parametrize(("kernel", "size"), LAUNCHES)
def test_instruction_counts_equal_an_h200s(
    kernel: str, size: int, anchored: Anchored, nsight_of: Nsight
) -> None:
    as_run = anchored(kernel, size)
    hardware = nsight_of(kernel, size)
    for kind, operation in (("load", "ld"), ("store", "st"), ("atomic", "atom")):
        # The first counts instructions, the second leaves out those with no lane on.
        executed = hardware[f"inst_executed_op_shared_{operation}"]
        assert as_run.total("executions", "shared", kind) == executed, kind
        requests = hardware[f"sass_inst_executed_op_shared_{operation}"]
        assert as_run.total("requests", "shared", kind) == requests, kind
    for kind, operations in KINDS:
        requests = sum(hardware[f"sass_inst_executed_op_global_{op}"] for op in operations)
        assert as_run.total("requests", "global", kind) == requests, kind
    if kernel not in UNROLLED:
        assert as_run.divergent_branches == hardware["sass_branch_targets_threads_divergent"]


@pytest.mark.parametrize("kernel", sorted(UNROLLED))
def test_divergent_branches_of_unrolled_loops_are_not_estimated(kernel: str, anchored: Anchored) -> None:
    for size in case(kernel).sizes:
        as_run = anchored(kernel, size)
        assert as_run.divergent_branches is None
        assert as_run.extra


@pytest.mark.parametrize("kernel", sorted(MERGED | PREDICATED))
def test_differences_between_ptx_and_sass_are_explained(
    kernel: str, counted: Counted, anchored: Anchored, nsight_of: Nsight
) -> None:
    """If the plain counts of a kernel become equal, remove it from the exceptions in `test_nsight`."""
    differ = False
    for size in case(kernel).sizes:
        plain = counted(kernel, size)
        hardware = nsight_of(kernel, size)
        as_run = anchored(kernel, size)
        differ |= divergent(plain) != hardware["sass_branch_targets_threads_divergent"]
        for kind, operation in (("load", "ld"), ("store", "st")):
            executed = hardware[f"inst_executed_op_shared_{operation}"]
            differ |= plain.total("requests", "shared", kind) != executed
        reason = "run as one LDS.128" if kernel in MERGED else "its body is predicated"
        assert any(reason in sentence for sentence in as_run.differences)
    assert differ


def test_shared_loads_of_a_tiled_matmul_are_merged_into_lds_128(anchored: Anchored) -> None:
    as_run = anchored("matmul_tiled", 256)
    loads = [a for a in as_run.accesses if a.space == "shared" and a.kind == "load"]
    assert sum(a.written for a in loads) == 1_048_576
    assert as_run.total("executions", "shared", "load") == 655_360
    owners = [a for a in loads if a.size_bytes == 16 and a.opcode]
    assert [a.opcode for a in owners] == ["LDS.128"] * 4
    for owner in owners:
        assert sum(a.merged_into == owner.pc for a in loads) == 3
