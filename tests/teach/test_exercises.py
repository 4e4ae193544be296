"""What exercises, budgets, comparisons and verdicts say by themselves, beside what is written out here."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpulab.words import filled
from gpulab_course.teach.judge import (
    Budget,
    Case,
    Near,
    ProgramCase,
    ProgramExercise,
    PythonExercise,
    advice,
    draw,
    scores,
)
from gpulab_course.teach.judge import check as checking
from gpulab_course.teach.judge.budget import COUNTERS, Costs, Score, complaint, counting, passes, score
from gpulab_course.teach.judge.compare import first_wrong, shown, values_of, wrong_elements
from gpulab_course.teach.judge.draw import Draw
from gpulab_course.teach.judge.exercise import KernelExercise, Measured, Mistake, Parameter
from gpulab_course.teach.judge.verdict import StageResult, Verdict
from gpulab_course.teach.store import store
from tests.answers import kernel_text
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
def test_a_parameter_is_read_off_its_text(
    text: str, name: str, kind: str, pointer: bool, read_only: bool
) -> None:
    assert Parameter.read(text) == Parameter(name, kind, pointer, read_only)


def test_a_number_goes_to_a_kernel_as_its_parameter_says() -> None:
    kinds = ("float", "double", "int", "unsigned", "unsigned int", "long long", "size_t", "unsigned char")
    made = [Parameter.read(f"{kind} n").scalar(3).dtype.name for kind in kinds]
    assert made == ["float32", "float64", "int32", "uint32", "uint32", "int64", "uint64", "uint8"]


def test_a_grid_has_three_dimensions() -> None:
    grids = (7, (7,), (7, 5), (7, 5, 3))
    cases = [Case(grid, {}, {}, block=(32, 2, 1)) for grid in grids]
    assert [case.launch_grid for case in cases] == [(7, 1, 1), (7, 1, 1), (7, 5, 1), (7, 5, 3)]
    assert [case.threads for case in cases] == [448, 448, 2240, 6720]


def test_an_exercise_says_its_signature_and_reads_its_kernels() -> None:
    exercise = KernelExercise("demo", "Demo", "twice", "const float* x, int n", lambda *_: None, "-")  # type: ignore[arg-type,return-value]
    assert exercise.signature == "twice(const float* x, int n)"
    assert [parameter.name for parameter in exercise.arguments] == ["x", "n"]
    from gpulab_course import folders

    saxpy: Any = folders.exercises()["00-saxpy"]
    assert "__global__" in saxpy.source(saxpy.reference)
    assert kernel_text("k(int* x)")("x[0] = 1;", "// first") == (
        '// first\nextern "C" __global__ void k(int* x) {\nx[0] = 1;\n}\n'
    )


def test_what_an_exercise_does_not_say() -> None:
    kernel = KernelExercise("demo", "Demo", "k", "int n", lambda *_: None, "-")  # type: ignore[arg-type,return-value]
    assert kernel.measured == Measured(16_384, (256, 1, 1), 6.0, 3.0, 0.5, None)
    assert (kernel.rules, kernel.once, kernel.crowded) == (3, False, False)
    program = ProgramExercise("demo", "Demo", "f", lambda *_: None, print)  # type: ignore[arg-type,return-value]
    assert (program.sizes, program.rules, program.limit_s) == ((1, 33, 10_000), 3, 10.0)
    assert (program.checked, program.returns) == (False, True)
    assert program.calls(None, lambda *given: given, 1, 2) == (1, 2)
    case = ProgramCase((1,), 2)
    assert (case.on_device, case.unchanged, case.place, case.label) == (False, False, "", "")
    assert PythonExercise("demo", "Demo", str).limit_s == 4.0
    mistake = Mistake("results", Case(1, {"x": 3}, {}), "said")
    assert (mistake["x"], mistake.fault, mistake.hazard) == (3, "", "")


def test_wrong_elements_of_a_mistake_are_those_that_differ() -> None:
    wanted = np.array([1, np.nan, 0, 1e-31, 100], F32)
    found = np.array([1 + 9e-5, np.nan, 2e-30, 0, 101], F32)
    mistake = Mistake("results", Case(1, {}, {}), "said", "y", found, wanted, found)
    assert mistake.wrong.tolist() == [False, False, True, False, True]


# Budgets


@pytest.mark.parametrize(
    ("limits", "limit", "floor"),
    [
        ({}, 125, None),
        ({"allowance": 2.0}, 200, None),
        ({"allowance": 0.5, "spare": 7}, 57, None),
        ({"spare": 7}, 132, None),
        ({"most": 3}, 3, None),
        ({"most": 0, "allowance": 2.0, "spare": 7}, 0, None),
        ({"least": 3}, None, 3),
        ({"least_share": 0.5}, None, 50),
        ({"least": 3, "least_share": 0.5}, None, 50),
        ({"least": 3, "allowance": 2.0}, 200, 3),
        ({"least": 3, "most": 9}, 9, 3),
    ],
)
def test_a_budget_has_a_limit_a_floor_or_both(limits: Any, limit: Any, floor: Any) -> None:
    item = Budget("sectors", **limits)
    assert (item.limit(100), item.floor(100)) == (limit, floor)

    def of(yours: int) -> bool:
        return passes(item, Score("sectors", "", yours, 100))

    if limit is not None:
        assert (of(limit), of(limit + 1)) == (True, False)
    if floor is not None:
        assert (of(floor), of(floor - 1)) == (True, False)


def test_what_has_too_little_is_told_how_much_there_should_be() -> None:
    of = Score("votes", COUNTERS["votes"][0], 1000, 5000)
    says = "the results are right, but it has 1,000 votes, not 2,500 or more (reference 5,000). Vote."
    assert complaint(Budget("votes", "Vote.", least_share=0.5), of) == says
    assert complaint(Budget("votes", least_share=0.5), of) == says.removesuffix(" Vote.")


def access(space: Any, kind: Any, **counts: int) -> AccessCounters:
    names = ("requests", "sectors", "wavefronts", "ideal_wavefronts", "bytes_requested")
    given: Any = dict.fromkeys(names, 0) | {"size_bytes": 4} | counts
    return AccessCounters(pc=0, line=1, text="", space=space, kind=kind, **given)


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
    },
    caches=CacheCounters(start="cold", l2_sectors=11, dram_read_bytes=13, dram_write_bytes=17),
)


def test_every_counter_is_read_off_a_launch() -> None:
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
    }
    none = COUNTERS["conflict_ways"][1](Costs(replace(COUNTED, accesses=()), stats))
    assert none == 0
    naive = Costs(replace(COUNTED, warp_instructions=900), stats)
    made = score(Budget("warp_instructions"), Costs(COUNTED, stats), naive, naive)
    assert (made.yours, made.reference, made.naive) == (102, 900, 900)


@pytest.mark.parametrize("name", COUNTERS)
def test_every_counter_has_words_for_one_and_for_many(name: str) -> None:
    words = COUNTERS[name][0]
    one, many = (filled(words, {"n": n}) for n in (1, 2))
    assert (one != many) == ("<" in words)


def test_caches_are_counted_cold_where_a_budget_names_them() -> None:
    cold = (("sectors", "dram_bytes"), ("l2_sectors",))
    for names, caches in (*((names, "cold") for names in cold), (("sectors",), ""), ((), "")):
        assert counting(tuple(Budget(name) for name in names)) == Counters(caches)  # type: ignore[arg-type]


def test_a_score_is_said_with_what_is_known() -> None:
    one = Score("sectors", COUNTERS["sectors"][0], 2048, 512)
    assert one.said == "2,048 sectors of global memory; reference 512"
    assert replace(one, yours=1, naive=4096, best=563).said == (
        "1 sector of global memory; naive 4,096, reference 512; your best 563"
    )


# Comparison


def test_floats_are_right_within_two_units_of_their_scale() -> None:
    eps = float(np.finfo(F32).eps)
    wanted = np.array([1.0, 1.0, 1.0, -1.0, 0.0, 0.0], F32)
    found = np.array([1 + 2 * eps, 1 + 3 * eps, 1 - 2 * eps, -1 - 3 * eps, 2e-45, 5e-45], F32)
    assert wrong_elements(found, wanted).tolist() == [False, True, False, True, False, True]
    near = Near(wanted, 4.0, ulps=1)
    assert wrong_elements(np.array([1 + 4 * eps, 1 + 5 * eps, 1, -1, 0, 1e-6], F32), near).tolist() == [
        False,
        True,
        False,
        False,
        False,
        True,
    ]
    assert values_of(near) is wanted
    assert values_of(wanted) is wanted


def test_halves_have_roundings_of_their_own_and_integers_none() -> None:
    half = np.array([1.0], np.float16)
    assert not wrong_elements(half + np.float16(2**-9), half).any()
    assert wrong_elements(half + np.float16(2**-8), half).all()
    assert wrong_elements(np.array([1, 2]), np.array([1, 3])).tolist() == [False, True]
    assert not wrong_elements(np.array([True]), np.array([1.0], F32)).any()
    signalling = np.array([0x7FA00000], np.uint32).view(F32)
    assert not wrong_elements(signalling, np.array([np.nan], F32)).any()
    found = np.array([np.inf, -np.inf, 3e38, np.inf], F32)
    wanted = np.array([np.inf, np.inf, np.inf, 3e38], F32)
    assert wrong_elements(found, wanted).tolist() == [False, True, True, True]


@pytest.mark.parametrize(
    ("found", "wanted", "says"),
    [
        ([1, 2, 9], [1, 2, 3], "y[2] is 9, it should be 3 (1 of 3 elements differ)"),
        ([[1, 2], [8, 9]], [[1, 2], [3, 4]], "y[1, 0] is 8, it should be 3 (2 of 4 elements differ)"),
        ([9], [3], "y[0] is 9, it should be 3"),
        (9, 3, "y is 9, it should be 3"),
        ([1 / 3], [1e9], "y[0] is 0.333333, it should be 1e+09"),
        ([0.1], [np.nextafter(0.1, 1)], "y[0] is 0.1, it should be 0.10000000000000002"),
        ([True], [False], "y[0] is 1, it should be 0"),
        ([0] * 2000, [1] * 2000, "y[0] is 0, it should be 1 (2,000 of 2,000 elements differ)"),
    ],
)
def test_the_first_wrong_element_is_named(found: Any, wanted: Any, says: str) -> None:
    one = np.asarray(found)
    other = np.asarray(wanted)
    assert first_wrong("y", one, other, np.asarray(one != other)) == says
    assert shown(np.uint8(200)) == "200"


def test_a_nan_of_other_bits_is_told_by_them() -> None:
    nan = np.array([0x7FC00001], np.uint32).view(F32)
    wanted = Near(np.array([np.nan], F32), 1.0, zero_bits=1)
    wrong = wrong_elements(nan, wanted)
    assert wrong.tolist() == [True]
    assert first_wrong("y", nan, wanted.values, wrong) == "y[0] is NaN with the bits 0x7fc00001"
    assert first_wrong("y", np.ones(1, F32), wanted.values, wrong) == "y[0] is 1, it should be nan"


# Verdicts

STAGES = (
    StageResult("results", "passed", "a < b"),
    StageResult("budget", "failed", "too `much`."),
    StageResult("hazards", "not reached"),
    StageResult("counts", "not reached"),
)
FIGURES = (Score("sectors", "<n sector|sectors>", 2, 3, best=1), Score("votes", "votes", 9, 9, golf=False))


def test_a_verdict_as_text() -> None:
    failed = Verdict("demo", False, "too `much`.", STAGES, FIGURES)
    assert str(failed).splitlines() == [
        "demo: not yet: too `much`.",
        "  ✓ results      a < b",
        "  ✗ budget       see above",
        "  – not reached  hazards, counts",
        "  score: 2 sectors; reference 3; your best 1",
    ]
    assert (bool(failed), failed.failed_stage) == (False, "budget")
    twice = replace(failed, stages=(*STAGES, StageResult("parallelism", "failed", "x")))
    assert twice.failed_stage == "parallelism"
    passed = Verdict("demo", True, "well done.")
    assert {str(passed), repr(passed)} == {"demo: passed: well done."}
    assert passed.failed_stage == ""
    assert "not reached" not in str(replace(failed, stages=STAGES[:2]))


def test_a_verdict_as_a_page() -> None:
    page = Verdict("demo", False, "too `much`.", STAGES, FIGURES)._repr_html_()
    words = re.sub(r"<[^>]+>", "|", page)
    cells = ["✗ demo: not yet:", "too |much|.", "Stage", "Found", "✓ results", "a &lt; b", "✗ budget"]
    for cell in (
        *cells,
        "see above",
        "– not reached",
        "hazards, counts",
        " 2 sectors; reference 3; your best",
    ):
        assert f"|{cell}" in words or f" {cell}" in words, cell
    assert page.count("<tr>") == 4
    assert "9 votes" not in page
    assert "<table" not in Verdict("demo", True, "well done.")._repr_html_()
    assert "✓ demo: passed:" in Verdict("demo", True, "well done.")._repr_html_()


# What is kept

EXERCISE = PythonExercise("demo-kept", "Demo", str)


def kept(passed: bool, *figures: int, exercise: Any = EXERCISE, golf: bool = True) -> Verdict:
    made = tuple(Score(name, "w", n, 1, golf=golf) for name, n in zip("ab", figures, strict=False))
    return checking._kept(exercise, Verdict(exercise.exercise_id, passed, "m", (), made))


def test_the_least_that_passed_is_kept_and_shown() -> None:
    def best(verdict: Verdict) -> list[int | None]:
        return [one.best for one in verdict.scores]

    assert best(kept(False, 5, 5)) == [None, None]
    assert store().get("exercises", "demo-kept") is False
    assert best(kept(True, 5, 7)) == [5, 7]
    assert best(kept(True, 6, 3)) == [5, 3]
    assert best(kept(False, 1, 1)) == [5, 3]
    assert best(kept(True, 1, 1, golf=False)) == [5, 3]
    assert scores.best(EXERCISE) == {"a": 5, "b": 3}
    assert store().get("exercises", "demo-kept") is True
    assert store().get("scores", "demo-kept") == {"rules": 0, "best": {"a": 5, "b": 3}}


def test_scores_of_other_rules_or_another_form_are_dropped() -> None:
    ruled: Any = SimpleNamespace(exercise_id="demo-ruled", rules=2)
    for held in ({"rules": 1, "best": {"a": 1}}, {"rules": 2, "best": 3}, {"rules": 2}, [1], "x"):
        store().put("scores", "demo-ruled", held)
        assert scores.best(ruled) == {}
        assert store().get("scores", "demo-ruled") is None
    scores.keep(ruled, {"a": 4})
    assert scores.best(ruled) == {"a": 4}
    assert scores.best(SimpleNamespace(exercise_id="demo-none")) == {}  # type: ignore[arg-type]


def test_nothing_to_check_is_told_and_ctrl_c_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    for nothing in (None, ...):
        verdict = checking.judge(EXERCISE, nothing)
        assert repr(verdict) == "demo-kept: not yet: nothing to check; replace the TODO with your answer."

    def stopped(*_: Any) -> Verdict:
        raise KeyboardInterrupt

    monkeypatch.setattr(checking, "judge_kernel", stopped)
    kernel = KernelExercise("demo", "Demo", "k", "int n", lambda *_: None, "-")  # type: ignore[arg-type,return-value]
    assert repr(checking.judge(kernel, "code")) == "demo: not yet: you stopped the check."


# What is drawn


def test_numbers_are_of_their_kind() -> None:
    def floats(kind: str, **more: Any) -> Any:
        return Draw(3, kind).floats((4000,), **more)

    plain = floats(draw.RANDOM)
    assert plain.dtype == F32
    assert abs(plain.mean()) < 0.1
    assert abs(plain.std() - 1) < 0.1
    assert set(floats(draw.DUPLICATES).tolist()) <= set(range(-6, 7))
    extreme = set(np.array((3e-15, -3e-15, 16777215.0, -3e9, 1e37, -1e37), F32).tolist())
    for kind, values in ((draw.ZEROS, {0.0}), (draw.INFINITE, {np.inf, -np.inf}), (draw.EXTREME, extreme)):
        found = floats(kind)
        special = [n for n in found.tolist() if n in values]
        assert set(special) == values
        assert 0.17 < len(special) / 4000 < 0.23
    assert np.signbit(floats(draw.ZEROS)[floats(draw.ZEROS) == 0]).any()
    assert 0.17 < np.isnan(floats(draw.NAN)).mean() < 0.23
    assert draw.KINDS == ("", "few values", "extreme values", "0 and -0", "infinities", "NaN")
    drawn = Draw(1)
    assert (drawn.special, drawn.whole(4).size, drawn.special) == (False, 4, False)
    assert drawn.floats((2, 2), np.float64).dtype == np.float64
    assert drawn.special


def test_whole_numbers_are_of_their_kind() -> None:
    whole = Draw(3).whole(4000)
    assert (whole.dtype, whole.min(), whole.max()) == (F32, -8, 8)
    numbers = Draw(3).integers(60_000)
    assert (numbers.dtype, numbers.min(), numbers.max()) == (np.int32, -1000, 999)
    assert len(np.unique(Draw(3, draw.DUPLICATES).integers(400))) == 3
    extreme = Draw(3, draw.EXTREME).integers(4000, 0, 50)
    ends = np.isin(extreme, (0, 49)).mean()
    assert 0.47 < ends < 0.58
    assert {0, 49} < set(extreme.tolist())
    small = Draw(3).any_integers(4000)
    assert 0.4 < ((small >= 0) & (small < 9)).mean() < 0.6


def test_garbage_differs_from_launch_to_launch() -> None:
    floats = [draw.garbage(seed, (500,), F32) for seed in range(6)]
    assert [bool(np.isnan(one).all()) for one in floats] == [False, False, True] * 2
    assert 800 < floats[0].std() < 1200
    assert floats[0].tolist() != floats[1].tolist()
    whole = draw.garbage(2, (5000,), np.int64)
    assert (whole.dtype, whole.min(), whole.max()) == (np.int64, 1, 99)


def test_every_size_is_tried_with_blocks_that_suit_it() -> None:
    blocks = [(n, 1, 1) for n in (256, 128, 96, 64, 32, 1)]
    sizes = [draw.four_blocks, 0, 33, 34, 5000, 5001, 9000]
    plan = draw.tried(sizes, blocks)

    def of(size: int) -> list[int]:
        return [block[0] for n, block in plan if n == size]

    assert plan[:6] == [(4 * block[0], block) for block in blocks]
    assert of(0) == of(33) == [256, 128, 96, 64, 32, 1]  # the smallest with each, in turn from the first
    assert of(34) == [64, 32, 1, 256]
    assert of(5000) == [32, 256, 128, 96]  # a block of one thread would need more than 600
    assert of(5001) == [256]
    assert of(9000) == [128]
    assert [size for size, _ in draw.tried([(70, 70), (80, 70)], blocks[:2])] == [(70, 70)] * 2 + [(80, 70)]
    assert draw.tried([600, 601], [(1, 1, 1), (64, 1, 1)])[0] == (600, (1, 1, 1))
    assert [block for size, block in draw.tried([601], [(1, 1, 1), (64, 1, 1)])] == [(64, 1, 1)]
    assert [block for size, block in draw.tried([601], [(1, 1, 1)])] == [(1, 1, 1)]  # where none suits it
    assert [size for size, _ in draw.tried([11, 10], blocks[:2], many=10)] == [11, 10, 10]
    assert draw.six_tiles((32, 8, 1)) == (16, 96)
    assert [draw.blocks_for(n, 32) for n in (0, 1, 32, 33, 64)] == [1, 1, 1, 2, 2]


@pytest.mark.parametrize("seed", range(12))
def test_shapes_of_blocks_and_costly_launches_are_within_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one, two, short, odd, few, single, most = (block[0] for block in draw.lines(rng))
    assert (odd, single, most) == (33, 1, 1024)
    assert 65 <= one < 240 < two < 640
    assert short % 32 == 31
    assert 63 <= short <= 191
    assert 2 <= few < 31
    warps = [block[0] // 32 for block in draw.whole_warps(rng)]
    assert {1, 2, 32} < set(warps)
    for n, low, high in zip(warps, (3, 6, 12), (6, 12, 25), strict=False):
        assert low <= n < high
    assert {block[0] % 128 for block in draw.whole_warps(rng, 4)} == {0}
    assert min(block[0] for block in draw.whole_warps(rng, 4)) == 128
    blocks = [*draw.planes(rng), (32, 2, 1), (19, 3, 1), (47, 1, 1), (20, 3, 1)]
    (small, first), (large, second) = draw.cost_launches(10_000, blocks, np.random.default_rng(seed))
    assert 1500 <= small <= 4001
    assert 11_000 <= large <= 15_001
    assert small % 2 == large % 2 == 1
    for block in (first, second):
        assert block[0] >= 20
        assert prod(block) >= 48
    assert prod(first) % 32
    assert first != second
    (sides, _), (wide, _) = draw.cost_launches((100, 200), blocks, np.random.default_rng(seed))
    assert 40 <= sides[0] <= 81
    assert 80 <= sides[1] <= 161
    assert 110 <= wide[0] <= 151
    assert 220 <= wide[1] <= 301
    only = draw.cost_launches(100, [(8, 1, 1)], np.random.default_rng(seed))
    assert [block for _, block in only] == [(8, 1, 1)] * 2


def test_advice_that_fits_no_array_is_not_given() -> None:
    case = Case(1, {}, {})
    one = Mistake("results", case, "said", "y", np.ones(1, F32), np.zeros(1, F32), np.ones(1, F32))
    assert not advice.tail_wrong(one)
    assert not advice.only_first(one)
    stopped = Mistake("results", case, "said", fault="endless")
    for matcher in (
        advice.unchanged,
        advice.partly_unwritten,
        advice.not_finite,
        advice.tail_wrong,
        advice.transposed,
        advice.times(2),
        advice.holds(lambda m: 1),
    ):
        assert not matcher(stopped)
    assert advice.endless(stopped)
    wide = np.arange(6, dtype=F32).reshape(2, 3)
    turned = Mistake("results", case, "said", "y", wide.T.copy().reshape(2, 3), wide, wide)
    assert advice.transposed(turned)
    flat = replace(turned, found=wide.ravel(), wanted=wide.ravel())
    assert not advice.transposed(flat)
    off = replace(turned, found=2 * wide + F32(1e-3))
    assert not advice.times(2)(off)
    assert advice.times(2)(replace(turned, found=2 * wide * F32(1 + 5e-5)))
