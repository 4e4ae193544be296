"""Exercises, budgets, comparisons and verdicts: parsing, counters, texts and stored scores."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpulab_course.teach.judge import Budget, Case, PythonExercise, scores
from gpulab_course.teach.judge import check as checking
from gpulab_course.teach.judge.budget import (
    COUNTERS,
    Costs,
    Score,
    choose_counters,
    is_within_budget,
    make_score,
)
from gpulab_course.teach.judge.exercise import KernelExercise, Mistake, Parameter
from gpulab_course.teach.judge.verdict import StageResult, Verdict
from gpulab_course.teach.store import store
from virtualgpu.protocol import Counters
from virtualgpu.records import KernelCounters, Provenance
from virtualgpu.records.counters import AccessCounters, BranchCounters, CacheCounters

F32 = np.float32

# Parameters and launches


@pytest.mark.parametrize(
    ("text", "name", "kind", "pointer", "read_only"),
    [
        ("const float* x", "x", "float", True, True),
        (" float *__restrict__ y ", "y", "float", True, False),
        ("const unsigned char* __restrict__ bytes", "bytes", "unsigned char", True, True),
        ("unsigned int n", "n", "unsigned int", False, False),
        ("size_t n", "n", "size_t", False, False),
    ],
)
def test_a_parameter_is_parsed_from_its_declaration(
    text: str, name: str, kind: str, pointer: bool, read_only: bool
) -> None:
    assert Parameter.read(text) == Parameter(name, kind, pointer, read_only)


def test_a_number_has_the_type_of_its_parameter() -> None:
    kinds = ("float", "double", "int", "unsigned", "unsigned int", "long long", "size_t", "unsigned char")
    result = [Parameter.read(f"{kind} n").scalar(3).dtype.name for kind in kinds]
    assert result == ["float32", "float64", "int32", "uint32", "uint32", "int64", "uint64", "uint8"]


def test_a_grid_has_three_dimensions() -> None:
    grids = (7, (7,), (7, 5), (7, 5, 3))
    cases = [Case(grid, {}, {}, block=(32, 2, 1)) for grid in grids]
    assert [case.launch_grid for case in cases] == [(7, 1, 1), (7, 1, 1), (7, 5, 1), (7, 5, 3)]
    assert [case.threads for case in cases] == [448, 448, 2240, 6720]


def test_wrong_elements_are_those_outside_the_tolerance() -> None:
    expected = np.array([1, np.nan, 0, 1e-31, 100], F32)
    result = np.array([1 + 9e-5, np.nan, 2e-30, 0, 101], F32)
    mistake = Mistake("results", Case(1, {}, {}), "said", "y", result, expected, result)
    assert mistake.wrong_elements.tolist() == [False, False, True, False, True]


# Budgets


@pytest.mark.parametrize(
    ("limits", "limit", "floor"),
    [
        ({}, 125, None),
        ({"max_reference_factor": 2.0}, 200, None),
        ({"max_reference_factor": 0.5, "extra_count": 7}, 57, None),
        ({"extra_count": 7}, 132, None),
        ({"max_count": 3}, 3, None),
        ({"max_count": 0, "max_reference_factor": 2.0, "extra_count": 7}, 0, None),
        ({"min_count": 3}, None, 3),
        ({"min_reference_share": 0.5}, None, 50),
        ({"min_count": 3, "min_reference_share": 0.5}, None, 50),
        ({"min_count": 3, "max_reference_factor": 2.0}, 200, 3),
        ({"min_count": 3, "max_count": 9}, 9, 3),
    ],
)
def test_a_budget_has_a_limit_a_floor_or_both(limits: Any, limit: Any, floor: Any) -> None:
    item = Budget("sectors", **limits)
    assert (item.find_max_count(100), item.find_min_count(100)) == (limit, floor)

    def passes_with(yours: int) -> bool:
        return is_within_budget(item, Score("sectors", "", yours, 100))

    if limit is not None:
        assert (passes_with(limit), passes_with(limit + 1)) == (True, False)
    if floor is not None:
        assert (passes_with(floor), passes_with(floor - 1)) == (True, False)


def access(space: Any, kind: Any, **counts: int) -> AccessCounters:
    names = ("requests", "sectors", "wavefronts", "ideal_wavefronts", "bytes_requested")
    counts_: Any = dict.fromkeys(names, 0) | {"size_bytes": 4} | counts
    return AccessCounters(pc=0, line=1, text="", space=space, kind=kind, **counts_)


COUNTED = KernelCounters(
    provenance=Provenance("simulated", "A100"),
    kernel_name="k",
    grid=(1, 1, 1),
    block=(32, 1, 1),
    shared_bytes=101,
    warp_instructions=102,
    thread_instructions=0,
    longest_warp_instructions=103,
    accesses=(
        access("global", "load", sectors=1, requests=10),
        access("global", "store", sectors=2, requests=20),
        access("global", "atomic", sectors=4, requests=40, bytes_requested=4000, size_bytes=8),
        access("shared", "load", wavefronts=100, ideal_wavefronts=40, sectors=9, requests=80),
        access("shared", "atomic", wavefronts=301, ideal_wavefronts=100, requests=160, bytes_requested=640),
        access("shared", "store", wavefronts=5, ideal_wavefronts=0),
        access("local", "load", requests=320, sectors=9),
    ),
    branches=(BranchCounters(0, 1, "", 9, 3), BranchCounters(8, 2, "", 9, 4)),
    opcode_warp_instructions={
        "shfl": 1,
        "vote": 2,
        "activemask": 4,
        "match": 8,
        "redux": 16,
        "bar": 32,
        "barrier": 64,
        "add": 128,
        "cp": 256,
        "cp.async.wait_all": 512,
    },
    tensor_operations={"f16 to f32": 1000, "bf16 to f32": 30},
    caches=CacheCounters(start="cold", l2_sectors=11, dram_read_bytes=13, dram_write_bytes=17),
)


def test_every_counter_is_read_from_a_launch() -> None:
    stats: Any = SimpleNamespace(local_bytes=104)
    found = {name: read_off(Costs(COUNTED, stats)) for name, (_, read_off) in COUNTERS.items()}
    assert found == {
        "sectors": 7,
        "load_sectors": 1,
        "store_sectors": 2,
        "requests": 70,
        "local_requests": 320,
        "l2_sectors": 11,
        "dram_bytes": 30,
        "shared_bytes": 101,
        "shared_wavefronts": 406,
        "conflict_ways": 4,
        "local_bytes": 104,
        "bank_conflicts": 266,
        "atomics": 200,
        "atomic_lanes": 660,
        "global_atomic_lanes": 500,
        "divergent_branches": 7,
        "warp_instructions": 102,
        "longest_warp": 103,
        "shuffles": 1,
        "votes": 6,
        "matches": 8,
        "warp_reductions": 16,
        "warp_exchanges": 31,
        "barriers": 96,
        "tensor_operations": 1030,
        "async_copies": 256,
        "full_waits": 512,
        "pending_groups": 0,
    }
    none = COUNTERS["conflict_ways"][1](Costs(replace(COUNTED, accesses=()), stats))
    assert none == 0
    naive = Costs(replace(COUNTED, warp_instructions=900), stats)
    result = make_score(Budget("warp_instructions"), Costs(COUNTED, stats), naive, naive)
    assert (result.yours, result.reference, result.naive) == (102, 900, 900)


def test_caches_are_counted_cold_if_a_budget_needs_them() -> None:
    cold = (("sectors", "dram_bytes"), ("l2_sectors",))
    for names, caches in (*((names, "cold") for names in cold), (("sectors",), ""), ((), "")):
        assert choose_counters(tuple(Budget(name) for name in names)) == Counters(caches)  # type: ignore[arg-type]


# Comparison


# Verdicts

STAGES = (
    StageResult("results", "passed", "a < b"),
    StageResult("budget", "failed", "too `much`."),
    StageResult("hazards", "not reached"),
    StageResult("counts", "not reached"),
)
FIGURES = (Score("sectors", "<n sector|sectors>", 2, 3, best=1), Score("votes", "votes", 9, 9, golf=False))


def test_a_verdict_is_formatted_as_text() -> None:
    failed = Verdict("demo", False, "too `much`.", STAGES, FIGURES)
    assert str(failed).splitlines() == [
        "demo: not yet: too `much`.",
        "  ✓ results      a < b",
        "  ✗ budget       see above",
        "  – not reached  hazards, counts",
        "  score: 2 sectors; reference 3; your best 1",
    ]
    assert (bool(failed), failed.failed_stage) == (False, "budget")
    passed = Verdict("demo", True, "well done.")
    assert {str(passed), repr(passed)} == {"demo: passed: well done."}


def test_a_verdict_is_formatted_as_html() -> None:
    page = Verdict("demo", False, "too `much`.", STAGES, FIGURES)._repr_html_()
    for text in (
        "✗ demo: not yet:",
        "<code>much</code>",
        "✓ results",
        "a &lt; b",
        "✗ budget",
        "hazards, counts",
    ):
        assert text in page
    assert page.count("<tr>") == 4
    assert "9 votes" not in page
    passed = Verdict("demo", True, "well done.")._repr_html_()
    assert "✓ demo: passed:" in passed
    assert "<table" not in passed


# Stored scores

EXERCISE = PythonExercise("demo-kept", "Demo", str)


def keep(passed: bool, *figures: int, exercise: Any = EXERCISE, golf: bool = True) -> Verdict:
    result = tuple(Score(name, "w", n, 1, golf=golf) for name, n in zip("ab", figures, strict=False))
    return checking._store_verdict(exercise, Verdict(exercise.exercise_id, passed, "m", (), result))


def test_the_best_passing_score_is_stored_and_shown() -> None:
    def best(verdict: Verdict) -> list[int | None]:
        return [score_.best for score_ in verdict.scores]

    assert best(keep(False, 5, 5)) == [None, None]
    assert store().get("exercises", "demo-kept") is False
    assert best(keep(True, 5, 7)) == [5, 7]
    assert best(keep(True, 6, 3)) == [5, 3]
    assert best(keep(False, 1, 1)) == [5, 3]
    assert best(keep(True, 1, 1, golf=False)) == [5, 3]
    assert scores.read_best_scores(EXERCISE) == {"a": 5, "b": 3}
    assert store().get("exercises", "demo-kept") is True
    assert store().get("scores", "demo-kept") == {"rules": 0, "best": {"a": 5, "b": 3}}


def test_scores_of_old_rules_or_invalid_format_are_dropped() -> None:
    ruled: Any = SimpleNamespace(exercise_id="demo-ruled", rules=2)
    for record in ({"rules": 1, "best": {"a": 1}}, {"rules": 2, "best": 3}, {"rules": 2}, [1], "x"):
        store().put("scores", "demo-ruled", record)
        assert scores.read_best_scores(ruled) == {}
        assert store().get("scores", "demo-ruled") is None
    scores.store_best_scores(ruled, {"a": 4})
    assert scores.read_best_scores(ruled) == {"a": 4}
    assert scores.read_best_scores(SimpleNamespace(exercise_id="demo-none")) == {}  # type: ignore[arg-type]


def test_ctrl_c_during_a_kernel_check_returns_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> Verdict:
        raise KeyboardInterrupt

    monkeypatch.setattr(checking, "judge_kernel", stopped)
    kernel = KernelExercise("demo", "Demo", "k", "int n", lambda *_: None, "-")  # type: ignore[arg-type,return-value]
    assert repr(checking.judge(kernel, "code")) == "demo: not yet: you stopped the check."
