"""The virtual GPU compared with an H200: recorded results, counters and active masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpulab import session
from gpulab.lab.recorded import load_record
from tests.recordings.masks import lane_visits, visits
from tools.corpus import CASES, Case, find_case
from tools.recordings import Recording, compute_digest
from tools.recordings.record import WARP_TRACES, compute_inputs_digest, copy_arguments, run_case
from virtualgpu.compile.ptx.parser import parse
from virtualgpu.engine import TraceRequest
from virtualgpu.launch.compiled import compile_module
from virtualgpu.launch.prepare import PreparedLaunch
from virtualgpu.protocol import Counters, Launch
from virtualgpu.records import KernelCounters, WarpTrace

EXACT = [c.name for c in CASES if c.exact and not c.stdout_lines]
APPROXIMATE = [c.name for c in CASES if not c.exact]
QUIET = [c.name for c in CASES if not c.stdout_lines]

# Nsight Compute's metrics of loads and stores, and the engine's counters of the same.
GLOBAL = (
    ("requests", "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"),
    ("sectors", "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"),
)
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
DIVERGENT = "smsp__sass_branch_targets_threads_divergent.sum"
KINDS = (("load", "ld"), ("store", "st"))

# Kernels whose branches ptxas changes. "Predicated": short bodies become predicated instructions and
# the branch is gone. "Unrolled": a loop's branch is there several times. "Slow path": the machine code
# of division, square root or an atomic has branches of its own.
OTHER_BRANCHES = {
    "bitonic_sort": "predicated",
    "block_sum": "predicated",
    "ieee": "slow path",
    "inclusive_scan": "predicated",
    "library_functions": "predicated",
    "mandelbrot": "unrolled",
    "maze": "predicated",
    "median_of_nine": "predicated",
    "odd_even_sort": "predicated",
    "softmax": "predicated",
    "stencil": "predicated",
    "totals": "slow path",
    "vote": "predicated",
    "warp_sum": "predicated",
}
# The NVRTC of the recording kept sinf's table for large angles in global memory; newer ones do not.
OTHER_ACCESSES = {"library_functions"}
# With probes in it the H200 lets the four arms take turns and its lanes store one arm at a time;
# without them (see the counters) they meet again before the store, as on the virtual GPU.
MEET_LATER = {"four_ways"}
Prepare = Callable[[Case, str, Sequence[Any]], PreparedLaunch]


def kernel_of(c: Case) -> Any:
    return session.cp().RawKernel(c.code, c.kernel, options=c.options)


def counters_of(c: Case, seed: int) -> KernelCounters:
    values = copy_arguments(c.make_args(seed), session.cp())
    launch = Launch.of(kernel_of(c), c.grid, c.block, values, c.shared_bytes)
    return session.backend().observe(launch, Counters())


def test_recording_covers_all_cases(h200: Recording) -> None:
    assert set(h200.cases) == {c.name for c in CASES}
    assert len(EXACT) >= 30


@pytest.mark.parametrize("name", [c.name for c in CASES])
def test_inputs_equal_the_recorded_inputs(h200: Recording, name: str) -> None:
    assert compute_inputs_digest(find_case(name).make_args(h200.seed)) == h200.cases[name].inputs_sha256


@pytest.mark.parametrize("name", [c.name for c in CASES if c.reference])
def test_results_agree_with_the_reference(h200: Recording, name: str) -> None:
    """Results of NumPy and plain Python."""
    c = find_case(name)
    assert c.reference is not None
    arguments = c.make_args(h200.seed)
    expected = c.reference(arguments.values)
    outputs, _ = run_case(c, arguments, kernel_of(c))
    for output, array in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(output.ravel(), np.ravel(array), rtol=c.rtol, atol=c.rtol)


@pytest.mark.parametrize("name", EXACT)
def test_results_are_bit_identical_with_the_h200(h200: Recording, name: str) -> None:
    c = find_case(name)
    outputs, _ = run_case(c, c.make_args(h200.seed), kernel_of(c))
    recorded = h200.cases[name].outputs
    assert [compute_digest(array) for array in outputs] == [output.sha256 for output in recorded]


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximate_functions_are_within_their_ulps(h200: Recording, name: str) -> None:
    c = find_case(name)
    (output,), _ = run_case(c, c.make_args(h200.seed), kernel_of(c))
    recorded = h200.cases[name].outputs[0].values
    assert recorded is not None
    units = np.abs(ordered(output) - ordered(recorded))
    with np.errstate(invalid="ignore"):  # infinity minus itself
        near = (units <= c.ulp) | (np.abs(output.astype(np.float64) - recorded) <= c.atol)
    assert near.all(), f"{int((~near).sum())} too far, by up to {int(units[~near].max())} ulp"


def ordered(floats: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Floats as integers in the same order, so that neighbours differ by 1."""
    bits = floats.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def test_printf_prints_the_same_lines(h200: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    c = find_case("hello")
    kernel_of(c)(c.grid, c.block, ())
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines) == sorted(h200.cases["hello"].stdout.splitlines()) == sorted(c.stdout_lines)


@pytest.mark.parametrize("name", QUIET)
def test_counters_equal_nsight_computes(h200: Recording, name: str) -> None:
    counters = counters_of(find_case(name), h200.seed)
    recorded = h200.cases[name].counters
    for kind, short in KINDS:
        if name not in OTHER_ACCESSES:
            for counter, metric in GLOBAL:
                assert counters.total(counter, "global", kind) == recorded[metric.format(short)], (
                    counter,
                    kind,
                )
        conflicts = recorded[CONFLICTS.format(short)]
        difference = abs(counters.total("bank_conflicts", "shared", kind) - conflicts)
        assert difference <= 0.001 * conflicts, kind


@pytest.mark.parametrize("name", [name for name in QUIET if name not in OTHER_BRANCHES])
def test_divergent_branches_equal_nsight_computes(h200: Recording, name: str) -> None:
    assert branches_that_split(find_case(name), h200.seed) == h200.cases[name].counters[DIVERGENT]


def test_enough_kernels_have_divergent_branches(h200: Recording) -> None:
    """Without these kernels, the comparison above would only compare zeros."""
    compared = [name for name in QUIET if name not in OTHER_BRANCHES]
    assert len(compared) >= 25
    assert sum(h200.cases[name].counters[DIVERGENT] > 0 for name in compared) >= 6


@pytest.mark.parametrize("name", sorted(OTHER_BRANCHES))
def test_listed_exceptions_still_differ_in_their_branches(h200: Recording, name: str) -> None:
    """Remove a kernel from the list when its branch counts have become equal."""
    assert branches_that_split(find_case(name), h200.seed) != h200.cases[name].counters[DIVERGENT]


def branches_that_split(c: Case, seed: int) -> int:
    """Divergent branches but for those to a bare ``ret``: machine code has a predicated EXIT there."""
    capability = session.backend().device_info().compute_capability
    functions = parse(compile_module(c.code, c.options, (), capability).ptx).functions.values()
    exits = {
        i.text
        for f in functions
        for i in f.instructions
        if i.root == "bra" and f.is_entry and f.instructions[i.target].root == "ret"
    }
    return sum(b.divergent for b in counters_of(c, seed).branches if b.text not in exits)


@pytest.mark.parametrize("name", WARP_TRACES)
def test_active_masks_equal_the_h200s(h200: Recording, name: str, prepare_ptx: Prepare) -> None:
    """Compare the PTX that ran on the H200, by basic block."""
    recorded = load_record(f"h200_{name}_warp")
    assert isinstance(recorded, WarpTrace)
    trace = trace_of(recorded, find_case(name), h200, prepare_ptx)
    starts = set(recorded.pc.tolist())
    assert lane_visits(trace.pc, trace.active_mask, starts) == lane_visits(recorded.pc, recorded.active_mask)
    if name not in MEET_LATER:
        assert visits(trace.pc, trace.active_mask, starts) == visits(recorded.pc, recorded.active_mask)


def trace_of(recorded: WarpTrace, c: Case, h200: Recording, prepare_ptx: Prepare) -> WarpTrace:
    values = copy_arguments(c.make_args(h200.seed), session.cp())
    request = TraceRequest(recorded.block_index, recorded.warp_index, 100_000)
    launch = prepare_ptx(c, h200.ptx[c.name], values)
    trace = launch.run(replace(launch.options, trace=request)).result.trace
    assert trace is not None
    return trace
