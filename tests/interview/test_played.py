"""Every card, played: its model answer and another right one count, two wrong ones do not, on four devices.

What is expected is computed here, from data sheets and by the rule that the card's model sentence states.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

import gpulab as gl
from gpulab.views.tables.diagnosis import CAUSE_NAMES
from gpulab_course.api import list_all_cards
from gpulab_course.content.n17_interview.cards import (
    bugs,
    diagnoses,
    estimates,
    judged,
    laboratory,
    ladders,
    napkins,
    refutations,
)
from gpulab_course.content.n17_interview.cards.hidden import flawed, laid_out
from gpulab_course.teach.interview import Card, CardQuestion, DrawnCard
from tests.interview import whiteboards
from tools import sample

CARDS = {card.key: card for card in list_all_cards()}


@dataclass(frozen=True)
class Sheet:
    """A data sheet: SMs, warps and blocks and KiB of shared memory of an SM, KiB that a block costs more, GB/s,
    TFLOPS of FP32 and of FP16 on tensor cores, GB/s of the bus."""

    sms: int
    warps: int
    blocks: int
    shared: int
    block_kib: int
    gbps: float
    fp32: float
    tensor: float
    bus: float


SHEETS = {
    "T4": Sheet(40, 32, 16, 64, 0, 320, 8.1, 65, 16),
    "RTX 4090": Sheet(128, 48, 24, 100, 1, 1008, 82.6, 165, 32),
    "H100": Sheet(132, 64, 32, 228, 1, 3350, 67, 989, 64),
    "A100": Sheet(108, 64, 32, 164, 1, 2039, 19.5, 312, 32),
}
PAIRS = {
    "T4": ("T4", "RTX 4090"),
    "RTX 4090": ("RTX 4090", "H100"),
    "H100": ("H100", "A100"),
    "A100": ("A100", "T4"),
}


@pytest.fixture(params=list(SHEETS))
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A device that cards draw, or its partner."""
    for module in (laboratory, estimates, napkins, ladders, flawed, laid_out):
        if hasattr(module, "DEVICES"):
            monkeypatch.setattr(module, "DEVICES", PAIRS[request.param])
    return str(request.param)


def devices_of(draw: DrawnCard) -> list[str]:
    """The devices that its questions name, the first one first."""
    names = (draw.parameters.get(name) for name in ("device", "then", "old", "new"))
    return [name for name in names if isinstance(name, str)]


def drawn_on(card: Card, device: str) -> DrawnCard:
    """The card's first draw whose first device is this one, and that has only devices of `SHEETS`."""
    several = []
    for seed in range(200):
        draw = card.draw_card(seed)
        names = devices_of(draw)
        if all(name in SHEETS for name in names):
            several.append(draw)
            if not names or names[0] == device:
                return draw
    return several[0]


def measured(part: CardQuestion) -> CardQuestion:
    """The part, measured once."""
    assert part.measure is not None
    outcome = part.measure()
    return replace(part, measure=lambda: outcome)


def right(part: CardQuestion, answer: Any) -> bool:
    return part.judge_answer(part.check_answer(answer)).is_right


# Numbers. For each card: of its parameters, by part, what the model sentence comes to, and what people get
# wrong. A mistake that happens to be near enough for these parameters is left out.
def _blocks(name: str, threads: int, kib: int, block_kib: int | None = None) -> int:
    sheet = SHEETS[name]
    extra = sheet.block_kib if block_kib is None else block_kib
    return min(sheet.warps // (threads // 32), sheet.blocks, sheet.shared // (kib + extra))


def _waves(name: str, threads: int, blocks: int) -> int:
    sheet = SHEETS[name]
    return math.ceil(blocks / (sheet.sms * min(sheet.warps // (threads // 32), sheet.blocks)))


def _warps(registers: int) -> int:
    return 65536 // (math.ceil(registers * 32 / 256) * 256) // 4 * 4


def _sectors(stride: int) -> int:
    return len({4 * stride * lane // 32 for lane in range(32)})


def _matrix_passes(row_bytes: int) -> int:
    vectors = [row_bytes * row // 16 % 8 for row in range(8)]
    return 4 * max(map(vectors.count, vectors))


def _stage_kib(p: Any) -> int:
    return int(2 * p["side"] * p["depth"] * 2 // 1024)


def _stage_blocks(p: Any) -> int:
    return _blocks(p["device"], p["threads"], p["stages"] * _stage_kib(p))


def _key_bytes(p: Any) -> int:
    return int(2 * p["layers"] * p["heads"] * p["dim"] * p["tokens"] * p["batch"] * 2)


Answers = Callable[[Any], list[tuple[float, float]]]
NUMBERS: dict[str, Answers] = {
    "estimate-resident": lambda p: [
        (_blocks(name, p["threads"], p["kib"]), SHEETS[name].shared // p["kib"] + 1)
        for name in (p["device"], p["then"])
    ],
    "estimate-waves": lambda p: [
        (_waves(name, p["threads"], p["blocks"]), math.ceil(p["blocks"] / SHEETS[name].sms))
        for name in (p["device"], p["then"])
    ],
    "estimate-sectors": lambda p: [(_sectors(step), 2 * _sectors(step)) for step in (p["stride"], p["then"])],
    "estimate-banks": lambda p: [
        (math.gcd(step, 32), 2 * math.gcd(step, 32)) for step in (p["stride"], p["then"])
    ],
    "estimate-matrices": lambda p: [
        (_matrix_passes(width), 8 * _matrix_passes(width)) for width in (p["row_bytes"], p["row_bytes"] + 16)
    ],
    "estimate-stages": lambda p: [
        (_stage_blocks(p), _stage_blocks(p) + 1),
        (
            _stage_blocks(p) * (p["stages"] - 1) * _stage_kib(p),
            _stage_blocks(p) * p["stages"] * _stage_kib(p),
        ),
    ],
    "estimate-formats": lambda p: [
        (2 * p["n"] ** 3 / (SHEETS[name].tensor * ratio) / 1e9, 2 * p["n"] ** 3 / SHEETS[name].tensor / 1e9)
        for name, ratio in ((p["device"], 0.5), (p["then"], 2.0))
    ],
    "estimate-scaling": lambda p: [
        (8 * p["n"] / SHEETS[name].gbps / 1e3 + 3, 4 * p["n"] / SHEETS[name].gbps / 1e3 / 2)
        for name in (p["device"], p["then"])
    ],
    "estimate-copy": lambda p: [
        (p["mib"] * 1.048576 / (SHEETS[name].bus if pinned else 8), p["mib"] * 1.048576 / SHEETS[name].gbps)
        for name, pinned in ((p["device"], p["pinned"]), (p["device"], not p["pinned"]), (p["then"], True))
    ],
    "estimate-lanes": lambda p: [(100 / ways, 100) for ways in (p["ways"], p["then"])],
    "estimate-launches": lambda p: [
        (6 * p["launches"], p["launches"] / 10),
        (1.5 * p["launches"], 6 * p["launches"]),
    ],
    "estimate-pool": lambda p: [
        ((p["arrays"] - freed) * math.ceil(4 * p["n"] / 512) * 512, (p["arrays"] - freed) * 4 * p["n"])
        for freed in (1, 0)
    ],
    "estimate-segments": lambda p: [
        (
            math.ceil(p["tensors"] / (2048 // p["kib"])) * 2 if p["kib"] <= 1024 else 20,
            p["tensors"] * p["kib"] / 1024,
        )
    ],
    "estimate-ridge": lambda p: [
        (
            SHEETS[p["device"]].fp32 * 1e3 / SHEETS[p["device"]].gbps,
            SHEETS[p["device"]].fp32 / SHEETS[p["device"]].gbps,
        ),
        (
            SHEETS[p["then"]].fp32 * 1e3 / SHEETS[p["then"]].gbps,
            SHEETS[p["then"]].fp32 * 2e3 / SHEETS[p["then"]].gbps,
        ),
        (
            SHEETS[p["device"]].tensor * 1e3 / SHEETS[p["device"]].gbps,
            SHEETS[p["device"]].fp32 * 1e3 / SHEETS[p["device"]].gbps,
        ),
    ],
    "estimate-product": lambda p: [
        (2 * p["n"] ** 3 / SHEETS[p["device"]].fp32 / 1e9, p["n"] ** 3 / SHEETS[p["device"]].fp32 / 1e9),
        (2 * p["n"] ** 3 / SHEETS[p["then"]].fp32 / 1e9, 12 * p["n"] ** 2 / SHEETS[p["then"]].gbps / 1e6),
        (
            2 * p["n"] ** 3 / SHEETS[p["device"]].tensor / 1e9,
            2 * p["n"] ** 3 / SHEETS[p["device"]].fp32 / 1e9,
        ),
    ],
    "estimate-registers": lambda p: [(256, 64), (_warps(p["registers"]), 65536 // p["registers"])],
    "estimate-flight": lambda p: [
        (
            SHEETS[name].gbps * p["latency_ns"] / 1024 / SHEETS[name].sms,
            SHEETS[name].gbps * p["latency_ns"] / 1024,
        )
        for name in (p["device"], p["then"])
    ],
    "estimate-keys": lambda p: [
        (_key_bytes(p) / 2**30, _key_bytes(p) / 2**31),
        (_key_bytes(p) / SHEETS[p["device"]].gbps / 1e6, _key_bytes(p) / SHEETS[p["device"]].gbps / 1e6 / 2),
    ],
    "estimate-decode": lambda p: [
        (
            SHEETS[p["device"]].gbps / p["billions"] / p["bytes"],
            SHEETS[p["device"]].gbps / p["billions"] / p["bytes"] / 2,
        ),
        (SHEETS[p["then"]].gbps / SHEETS[p["device"]].gbps, 1),
    ],
    "estimate-halves": lambda p: [(2048, p["times"]), (2**24, 2**23)],
    "estimate-ring": lambda p: [
        (2 * (p["gpus"] - 1) / p["gpus"] * p["mib"], p["mib"]),
        ((p["gpus"] - 1) * p["mib"], 2 * p["mib"]),
    ],
    "estimate-amdahl": lambda p: [
        (1 / (1 - p["share"] / 100 + p["share"] / 100 / p["factor"]), p["factor"]),
        (100 / (100 - p["share"]), p["factor"]),
    ],
    "refute-blocks": lambda p: [(_blocks(p["device"], 32, p["kib"]), SHEETS[p["device"]].shared // p["kib"])],
    "refute-naive": lambda p: [((1 + 4) / 2, 32)],
    "refute-registers": lambda p: [(256, 64)],
    "refute-decode": lambda p: [(SHEETS[p["new"]].gbps / SHEETS[p["old"]].gbps, 1)],
    "refute-energy": lambda p: [(p["pj"], p["pj"] / 1000)],
    "refute-stack": lambda p: [(0.85 * 2039, 460)],
    "refute-freed": lambda p: [(p["mib"], 0)],
    "refute-million": lambda p: [(math.ceil(4 * p["n"] / 512) * 512, 4 * p["n"])],
    "refute-graphs": lambda p: [(1.5, 6)],
    "refute-diverging": lambda p: [(100, 50)],
    "refute-full": lambda p: [(1, 2), (2, 1)],
    "refute-asynchronous": lambda p: [(95, 5)],
}
SAID = {
    "estimate-copy": "8 GB/s",
    "estimate-launches": "6 µs",
    "estimate-lanes": "one divided by the number of branches",
}
# The same unit, written in another way: how many of the second are one of the first.
OTHER_UNITS = {
    "µs": ("ms", 1e-3),
    "ms": ("µs", 1e3),
    "KiB": ("bytes", 1024),
    "MiB": ("KiB", 1024),
    "GiB": ("MiB", 1024),
    "bytes": ("KiB", 1 / 1024),
    "GB/s": ("TB/s", 1e-3),
}


def in_another_style(value: float, unit: str) -> str:
    """The same answer as a text: in another unit, as a share, with the unit's other word."""
    if unit in OTHER_UNITS:
        unit_, times = OTHER_UNITS[unit]
        return f"{value * times:.15g} {unit_}" if value * times >= 1 else f"{value * times:.15f} {unit_}"
    if unit == "%":
        return f"{value:.0f}/100"
    return (
        f"~ {value:,} {unit}"
        if isinstance(value, int)
        else f"{value:.2f}x"
        if unit == "times"
        else f"{value:.4e} {unit}"
    )


@pytest.mark.parametrize(
    ("key", "device"),
    sample.draw_sample(
        [
            (key, name)
            for key, card in CARDS.items()
            if card.kind in ("estimate", "refute")
            for name in SHEETS
        ],
        4,
        "-".join,
        lambda pair: pair[0],
    ),
    indirect=["device"],
)
def test_model_answers_and_alternative_numbers_are_right(key: str, device: str) -> None:
    draw = drawn_on(CARDS[key], device)
    parts = list(draw.questions)
    if CARDS[key].kind == "refute":
        choice = measured(parts.pop(0))
        fair = [index for index, text in enumerate(choice.choices, start=1) if right(choice, text)]
        assert len(fair) == 1
        assert sum(right(choice, index) for index in range(1, len(choice.choices) + 1)) == 1
    answers = NUMBERS[key](draw.parameters)
    assert len(answers) == len(parts)
    assert SAID.get(key, "") in draw.strong_answer, (
        "the rate that is used here is the one that the card names"
    )
    for part, (model, mistake) in zip(map(measured, parts), answers, strict=True):
        assert right(part, model), (draw.parameters, part.question, model, part.judge_answer(model))
        restyled = in_another_style(model, part.unit)
        assert right(part, restyled), (part.question, restyled)
        for wrong in (mistake, 3.1 * model):
            near = max(wrong, 1e-9) / model
            if max(near, 1 / near) > part.max_error_factor * 1.25 or part.max_error_factor == 1.0:
                assert not right(part, wrong), (draw.parameters, part.question, wrong)


@pytest.mark.parametrize("ways", [2, 4, 8, 16, 32])
def test_a_fraction_is_compared_without_rounding(ways: int, device: str) -> None:
    part = estimates.make_divergence_card(Random(1)).questions[0]
    outcome = estimates._measure_lanes(device, ways)
    assert right(replace(part, measure=lambda: outcome), f"1/{ways}")


@pytest.mark.parametrize("mib", [32, 96])
def test_pageable_copies_run_at_about_8_gb_per_second(mib: int, device: str) -> None:
    """The host's copy limits transfers from pageable memory, so a faster bus does not help."""
    outcome = estimates._measure_copy(device, mib << 20, is_pinned=False)
    assert outcome.value == pytest.approx(mib * 1.048576 / 8, rel=0.35)


def test_exact_and_rounded_register_limits_of_warps_are_right() -> None:
    for seed in range(12):
        draw = napkins.make_registers_card(Random(seed))
        part = measured(draw.questions[1])
        assert right(part, 65536 // (32 * draw.parameters["registers"])), "divided on a napkin"
        assert right(part, _warps(draw.parameters["registers"]))


def test_every_card_rejects_its_common_mistake() -> None:
    """The tests above skip mistakes that are right by chance, which must not happen on all devices."""
    for key in NUMBERS:
        mistakes = []
        for index in range(6):
            draw = CARDS[key].draw_card(index)
            if all(name in SHEETS for name in devices_of(draw)):
                near = [part.max_error_factor for part in draw.questions if not part.choices]
                mistakes += [
                    max(max(wrong, 1e-9) / model, model / max(wrong, 1e-9)) > allowed
                    for (model, wrong), allowed in zip(NUMBERS[key](draw.parameters), near, strict=True)
                ]
        assert not mistakes or any(mistakes), key


# Choices


def wrong_choices(part: CardQuestion) -> list[str]:
    return [text for text in part.choices if not right(part, text)]


@pytest.mark.parametrize("index", range(len(diagnoses.CARDS)))
def test_the_flaw_of_a_hidden_kernel_is_the_right_answer(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    name = list(SHEETS)[index % len(SHEETS)]
    for module in (flawed, laid_out):
        if hasattr(module, "DEVICES"):
            monkeypatch.setattr(module, "DEVICES", (name,))
    draw = diagnoses.CARDS[index].draw_card(3)
    cause = (*diagnoses.CAUSES, diagnoses.NO_FLAW)[index]
    part = measured(draw.questions[0])
    model = CAUSE_NAMES.get(cause, diagnoses.NOTHING_WORTH_FIXING)  # type: ignore[call-overload]
    assert right(part, model), (name, draw.parameters, model)
    assert right(part, part.choices.index(model) + 1)
    assert len(wrong_choices(part)) >= 2
    for gain in map(measured, draw.questions[1:]):
        value = gain.judge_answer(1).message.split(" times")[0].replace(",", "")
        assert right(gain, f"{1.2 * float(value):.2f} ×")
        assert not right(gain, 3 * float(value))


@pytest.mark.parametrize(
    ("card", "device"),
    sample.draw_sample(
        [(card, name) for card in ladders.CARDS for name in SHEETS],
        4,
        lambda pair: f"{pair[0].key}-{pair[1]}",
        lambda pair: pair[0].key,
    ),
    ids=lambda value: getattr(value, "key", value),
    indirect=["device"],
)
def test_right_answers_agree_with_later_optimization_steps(
    card: Card, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladders, "DEVICES", (device,))
    draw = card.draw_card(1)
    table = draw.questions[-1].table
    assert table is not None
    us = {row[0]: _us(row[3]) for row in table.rows}
    names = list(us)
    assert len(draw.questions) >= 2
    for part in map(measured, draw.questions):
        later = names[names.index(part.question.split("`")[1]) + 1 :]
        faster = any(us[part.question.split("`")[1]] >= 1.26 * us[name] for name in later)
        accepted = [text for text in part.choices if right(part, text)]
        assert accepted
        assert not (faster and diagnoses.NOTHING_WORTH_FIXING in accepted), part.question
        assert len(wrong_choices(part)) >= 2
        assert right(part, part.choices.index(accepted[0]) + 1)
    for old, new in itertools.pairwise(names):
        mistakes = f"`{new}` ("
        after_slower = draw.strong_answer.partition("Slower here")[2]
        assert (mistakes in after_slower) == (us[new] >= 1.25 * us[old]) or abs(
            us[new] / us[old] - 1.25
        ) < 0.02


def _us(text: str) -> float:
    number, unit = text.split()
    return float(number.replace(",", "")) * {"µs": 1, "ms": 1000, "ns": 1e-3}[unit]


# Programs. The judge works on one device for each card here; the devices take turns.


def turn(index: int) -> None:
    gl.use_device(f"virtual:{list(SHEETS)[index % len(SHEETS)]}")


WHITEBOARDS = [card for card in CARDS.values() if card.kind == "whiteboard"]


def sampled(cards: Sequence[Card]) -> list[Any]:
    """The positions of the cards that this run plays."""
    return sample.draw_sample(
        [pytest.param(n, id=card.key) for n, card in enumerate(cards)], 2, lambda case: case.id
    )


@pytest.mark.parametrize("index", sampled(WHITEBOARDS))
def test_a_textbook_kernel_passes_with_its_own_launch(index: int) -> None:
    turn(index)
    (part,) = WHITEBOARDS[index].draw_card(1).questions
    name = WHITEBOARDS[index].key.removeprefix("whiteboard-")
    code, launch = whiteboards.RIGHT[name]
    answers: list[tuple[str, Any]] = [(code, launch)]
    if name not in bugs.BUGS:  # whose model is judged as the repair of a bug
        answers.append((part.model_answer, {}))
    for answer, how in answers:
        outcome = part.judge_answer(part.check_answer(answer), **how)
        assert outcome.is_right, (name, outcome)
    for wrong in whiteboards.wrong(name):
        outcome = part.judge_answer(part.check_answer(wrong), **launch)
        assert not outcome.is_right, (name, outcome, wrong)


@pytest.mark.parametrize("index", sampled(bugs.CARDS))
def test_a_bug_is_named_and_repaired(index: int) -> None:
    turn(index + 1)
    kind, repair = bugs.CARDS[index].draw_card(index).questions
    kind = measured(kind)
    accepted = [text for text in kind.choices if right(kind, text)]
    assert accepted
    assert len(wrong_choices(kind)) >= 2
    assert right(kind, kind.choices.index(accepted[0]) + 1)
    if "barrier" in str(bugs.CARDS[index].draw_card(index).parameters["bug"]):
        assert judged.RACE_FAULT in accepted
    assert repair.judge_answer(repair.check_answer(repair.model_answer)).is_right
    assert not repair.judge_answer(repair.check_answer(f"// I see nothing.\n{repair.code}")).is_right
    with pytest.raises(ValueError, match="still the program"):
        repair.check_answer(repair.code)


class TestLocks:
    """An answer that cannot be run does not use up the only attempt."""

    def talk(self) -> Any:
        return gl.interview("whiteboard-05-transpose")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (("threadIdx.x;", "threadIdx.x"), "does not compile"),
            (("void transpose", "void transposed"), "no kernel 'transpose'"),
            (("TILE_DIM = 32", "TILES = 32"), "undefined"),
            (("int rows, int cols)", "int rows, int cols, int more)"), "keep the given list"),
        ],
    )
    def test_code_that_does_not_compile_is_not_locked(self, change: tuple[str, str], message: str) -> None:
        talk = self.talk()
        code, launch = whiteboards.RIGHT["05-transpose"]
        with pytest.raises(judged.UntriedError, match=message):
            talk.answer(code.replace(*change, 1), sure=True, **launch)
        assert not talk.outcomes
        assert talk.answer(code, sure=True, **launch).is_right

    def test_an_invalid_launch_is_not_locked(self) -> None:
        talk = self.talk()
        code, _ = whiteboards.RIGHT["05-transpose"]
        for launch, message in (
            ({"grid": 3}, "Choose the block as well"),
            ({"block": (64, 32)}, "at most 1,024 threads"),
            ({"block": (16, 16)}, "Choose the grid for this block"),
            ({"block": "32"}, "one to three integers"),
            ({"block": (32, 8), "grid": lambda n: n}, r"grid\(1000, 1001\) fails.*lambda rows, cols"),
            ({"block": (32, 8), "grid": lambda rows, cols: (cols / 32, rows / 32)}, "one to three integers"),
            ({"block": (32, 8), "grid": lambda rows, cols: (cols // 32, 32 // (rows // 8))}, "by zero"),
        ):
            with pytest.raises(ValueError, match=message):
                talk.answer(code, **launch)
        assert not talk.outcomes
        with pytest.raises(ValueError, match="launch of this question is fixed"):
            gl.interview("estimate-lanes").answer(50, block=32)

    def test_a_tried_answer_is_locked(self) -> None:
        """This includes answers whose error message quotes the whole kernel with its parameters."""
        talk = gl.interview("whiteboard-05-copy4")
        head = 'extern "C" __global__ void copy4(const float* x, float* y, int n) '
        body = "{ int i = blockIdx.x * blockDim.x + threadIdx.x; ((float4*)y)[i] = ((const float4*)x)[i]; }"
        assert not talk.answer(head + body, sure=True).is_right
        assert talk.part is None

    def test_the_stub_is_not_an_answer(self) -> None:
        talk = self.talk()
        with pytest.raises(ValueError, match="still the program"):
            talk.answer(talk.part.code)
        assert not talk.outcomes


def test_a_serial_kernel_fails_with_a_custom_launch_shape() -> None:
    code = """
extern "C" __global__ void scale2d(const float* x, float* y, int rows, int cols) {
    for (int k = threadIdx.x; k < rows * cols; k += blockDim.x) y[k] = 2 * x[k];
}"""
    for block in (1, 32):
        outcome = judged.judge_kernel("02-index", code, grid=1, block=block)
        assert not outcome.is_right
        assert "few threads do the work" in outcome.message


def test_parameters_differ_from_seed_to_seed() -> None:
    for card in CARDS.values():
        if card.kind not in ("whiteboard", "diagnose", "ladder", "refute"):
            assert (
                len(
                    {
                        part.question + part.code
                        for seed in range(8)
                        for part in card.draw_card(seed).questions
                    }
                )
                > 2
            ), card.key


def test_unused_shared_memory_lowers_occupancy_and_speed() -> None:
    rng = Random(1)
    for device, unused in refutations._UNUSED_KIB.items():
        times = [refutations._measure_slowdown(device, kib).value for kib in unused]
        assert times[0] < 1.25 < times[1], device  # type: ignore[operator]
    assert refutations._draw_occupancy_claim(rng)[5]["device"] in refutations._UNUSED_KIB
