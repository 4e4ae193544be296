"""The virtual GPU's counters against Nsight Compute's on an H200: kernels in three sizes each.

What is compared here is the kernel as its PTX is written. Where ptxas changes that (loads merged,
short branches predicated), the kernel is named below with the reason, and `test_as_run` compares
what the machine code does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.counters.cases import CASES, case
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.launch.compiled import compile_module
from virtualgpu.records import KernelCounters

LAUNCHES = [(c.kernel, size) for c in CASES for size in c.sizes]
KINDS = (("load", ("ld",)), ("store", ("st",)), ("atomic", ("red", "atom")))

# Four loads of neighbouring floats become one of 16 bytes.
MERGED = {"matmul_tiled"}
# Bodies of a few instructions are predicated and the branch is gone. Where no lane is left, such an
# instruction still counts as executed, though it makes no request.
PREDICATED = {
    "bitonic_sort",
    "block_sum",
    "bytes_reversed",
    "inclusive_scan",
    "odd_even_sort",
    "stencil",
    "warp_sum",
}
# ptxas copies the loop's body, and each copy has its own branch out of the loop.
UNROLLED = {"mandelbrot"}

Counted = Callable[[str, int], KernelCounters]
Nsight = Callable[[str, int], dict[str, int]]


def metric(values: dict[str, int], name: str, operations: tuple[str, ...]) -> int:
    return sum(values[name.format(op)] for op in operations)


def test_the_recording_covers_every_case(recording: dict[str, Any]) -> None:
    assert set(recording["kernels"]) - {"metrics"} == {c.kernel for c in CASES}
    for c in CASES:
        assert set(recording["kernels"][c.kernel]) == {str(size) for size in c.sizes}
        assert len(set(c.sizes)) == 3
    assert len({c.kernel for c in CASES} - MERGED - PREDICATED - UNROLLED) >= 40


@pytest.mark.parametrize(("kernel", "size"), LAUNCHES)
def test_global_memory_accesses_equal_nsight_compute(
    kernel: str, size: int, counted: Counted, nsight_of: Nsight
) -> None:
    counters = counted(kernel, size)
    hardware = nsight_of(kernel, size)
    for kind, operations in KINDS:
        requests = metric(hardware, "t_requests_pipe_lsu_mem_global_op_{}", operations)
        assert counters.total("requests", "global", kind) == requests, kind
        sectors = metric(hardware, "t_sectors_pipe_lsu_mem_global_op_{}", operations)
        # Where lines of the cache collide, an atomic of an H200 takes a sector twice.
        least = 0.98 * sectors if kind == "atomic" else sectors
        assert least <= counters.total("sectors", "global", kind) <= sectors, kind


@pytest.mark.parametrize(("kernel", "size"), LAUNCHES)
def test_shared_memory_accesses_equal_nsight_compute(
    kernel: str, size: int, counted: Counted, nsight_of: Nsight
) -> None:
    counters = counted(kernel, size)
    hardware = nsight_of(kernel, size)
    for kind, operation in (("load", "ld"), ("store", "st"), ("atomic", "atom")):
        conflicts = hardware[f"data_bank_conflicts_pipe_lsu_mem_shared_op_{operation}"]
        assert counters.total("bank_conflicts", "shared", kind) == pytest.approx(conflicts, rel=0.001), kind
        if kernel not in MERGED:
            wavefronts = hardware[f"data_pipe_lsu_wavefronts_mem_shared_op_{operation}"]
            assert counters.total("wavefronts", "shared", kind) == wavefronts, kind
        if kernel not in MERGED | PREDICATED:
            requests = hardware[f"inst_executed_op_shared_{operation}"]
            assert counters.total("requests", "shared", kind) == requests, kind


@pytest.mark.parametrize(("kernel", "size"), [x for x in LAUNCHES if x[0] not in PREDICATED | UNROLLED])
def test_divergent_branches_equal_nsight_compute(
    kernel: str, size: int, counted: Counted, nsight_of: Nsight
) -> None:
    expected = nsight_of(kernel, size)["sass_branch_targets_threads_divergent"]
    assert divergent(counted(kernel, size)) == expected


def test_enough_launches_have_nonzero_counters(nsight_of: Nsight) -> None:
    """Comparisons of counters that are all zero would prove little."""
    compared = [nsight_of(*launch) for launch in LAUNCHES]
    conflicts = "data_bank_conflicts_pipe_lsu_mem_shared_op_{}"
    assert sum(values[conflicts.format("ld")] > 0 for values in compared) >= 15
    assert sum(values[conflicts.format("st")] > 0 for values in compared) >= 3
    branching = [k for k in LAUNCHES if k[0] not in PREDICATED | UNROLLED]
    assert sum(nsight_of(*k)["sass_branch_targets_threads_divergent"] > 0 for k in branching) >= 25
    assert sum(values["t_requests_pipe_lsu_mem_global_op_red"] > 0 for values in compared) >= 9


def divergent(counters: KernelCounters) -> int:
    """Count divergent branches except those to a bare ``ret``, where machine code has a predicated EXIT."""
    functions = parse(compile_module(case(counters.kernel_name).code, (), (), (9, 0)).ptx).functions
    exits = {
        (i.text, i.line)
        for f in functions.values()
        for i in f.instructions
        if i.root == "bra" and f.is_entry and f.instructions[i.target].root == "ret"
    }
    return sum(b.divergent for b in counters.branches if (b.text, b.line) not in exits)
