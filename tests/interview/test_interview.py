"""Interviews: locked answers are measured, misses come back, what is damaged is put aside."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from random import Random

import pytest

import gpulab as gl
from gpulab.views.tables import Table
from gpulab_course.content.n17_interview import figures
from gpulab_course.teach.interview import again
from gpulab_course.teach.interview.cards import KINDS, Card, CardQuestion, DrawnCard, Outcome, TrueValue
from gpulab_course.teach.interview.talk import Interview
from gpulab_course.teach.store import store

MONDAY = date(2026, 3, 2)


def small(rng: Random) -> DrawnCard:
    n = rng.choice([20, 40])
    table = Table("seen", ("what", "value"), (("n", str(n)),))

    def judged(code: str) -> Outcome:
        return Outcome(float("right" in code), "right" in code, "read", "judged here")

    return DrawnCard(
        questions=(
            CardQuestion(
                question=f"Twice {n}?",
                unit="blocks",
                max_error_factor=1.0,
                table=table,
                measure=lambda: TrueValue(2 * n, "arithmetic", "So it is."),
            ),
            CardQuestion(
                question="And red?", measure=lambda: TrueValue("red", "seen"), choices=("red", "blue")
            ),
            CardQuestion(question="A kernel?", judge=judged, code="start"),
        ),
        rubric_points=("doubled it", "said the unit"),
        strong_answer="Twice as many.",
        parameters={"n": n},
    )


CARD = Card("small-twice", "estimate", "L3", "Twice", small, ("02",))


def talk(chair: str = "candidate", today: date = MONDAY, seed: int = 1) -> Interview:
    return Interview([CARD, CARD], seed, chair, lambda: today)  # type: ignore[arg-type]


def answered(interview_: Interview, right: bool = True, sure: bool = True) -> Interview:
    n = interview_.drawn_card.parameters["n"]
    interview_.answer(2 * n if right else n, sure=sure)
    interview_.answer("red", sure=sure)
    interview_.answer("right", sure=sure)
    interview_.tick(1, 2)
    return interview_


class TestTalk:
    def test_cards_are_reproducible_from_their_seed(self) -> None:
        numbers = [CARD.draw_card(seed).parameters["n"] for seed in range(20)]
        assert numbers == [CARD.draw_card(seed).parameters["n"] for seed in range(20)]
        assert len(set(numbers)) == 2

    def test_a_guessed_answer_is_due_again(self) -> None:
        answered(talk(), sure=False)
        assert again.load_history(CARD.key).due_day == MONDAY + timedelta(days=1)

    def test_a_scorecard_is_saved_as_json(self, tmp_path: Path) -> None:
        interview_ = answered(talk())
        record = json.loads(interview_.save(tmp_path / "card.json").read_text(encoding="utf-8"))
        assert record["format"] == "gpulab-interview"
        assert record["cards"][0]["parts"][0]["origin"] == "arithmetic"
        assert record["cards"][0]["parameters"] == interview_.drawn_card.parameters
        assert record["score"] == pytest.approx(interview_.scorecard.score)
        assert interview_.save(tmp_path / "card.html").read_text(encoding="utf-8").count("<tr>") == 3


class TestAgain:
    def test_missed_cards_are_due_after_one_three_and_seven_days(self) -> None:
        day = MONDAY
        waits = []
        answered(talk(today=day), right=False)
        while (due := again.load_history(CARD.key).due_day) is not None:
            waits.append((due - day).days)
            assert again.list_due_keys([CARD.key], due - timedelta(days=1)) == []
            assert again.list_due_keys([CARD.key], due) == [CARD.key]
            day = due
            answered(talk(today=day))
        assert waits == [1, 3, 7]
        assert again.load_history(CARD.key).answer_count == 4

    def test_a_second_miss_restarts_the_schedule(self) -> None:
        answered(talk(), right=False)
        answered(talk(today=MONDAY + timedelta(days=1)))
        answered(talk(today=MONDAY + timedelta(days=4)), right=False)
        assert again.load_history(CARD.key).due_day == MONDAY + timedelta(days=5)

    @pytest.mark.parametrize(
        "damaged",
        [
            7,
            {},
            {"met": -1, "score": 0, "box": None, "due": None, "last": {}},
            {"met": True, "score": 0, "box": None, "due": None, "last": {}},
            {"met": 1, "score": 0, "box": 5, "due": "2026-03-02", "last": {}},
            {"met": 1, "score": 0, "box": 0, "due": "tomorrow", "last": {}},
            {"met": "1", "score": 0, "box": None, "due": None, "last": {}},
            {"met": 1, "score": 0, "box": 0, "due": None, "last": {}},
        ],
    )
    def test_damaged_records_are_put_aside(self, damaged: object) -> None:
        store().put(again.SECTION, CARD.key, damaged)
        assert again.load_history(CARD.key).answer_count == 0
        answered(talk())
        assert again.load_history(CARD.key).answer_count == 1
        assert store().get(again.DAMAGED_SECTION, CARD.key) == [damaged]


class TestOpening:
    def test_equal_seeds_draw_equal_cards_of_all_kinds(self) -> None:
        first_interview, second_interview = (gl.interview(seed=3, cards=12) for _ in range(2))
        assert [card.key for card in first_interview.cards] == [card.key for card in second_interview.cards]
        assert Counter(card.kind for card in first_interview.cards) == dict.fromkeys(KINDS, 2)
        assert [card.key for card in first_interview.cards] != [
            card.key for card in gl.interview(seed=4, cards=12).cards
        ]


def test_a_sheet_has_numbers_of_the_device_and_of_the_learner(tmp_path: Path) -> None:
    gl.use_device("virtual:T4")
    before = figures.sheet()
    assert len(before.tables) == 1
    assert "published for T4" in repr(before)
    assert "modelled on virtual T4" in repr(before)
    interview_ = answered(talk())
    after = figures.sheet()
    questions = [row[0] for row in after.tables[1].rows]
    assert questions == [part.question for part in interview_.drawn_card.questions]
    assert after.save(tmp_path / "sheet.html").read_text(encoding="utf-8").count("<table") == 2


def test_a_capstone_is_compared_with_a_naive_and_a_good_kernel() -> None:
    one_block = figures.attend("attend.cu").replace("#define SPLITS 8", "")
    costs = figures.scored(one_block, heads=2, tokens=40, device="T4")
    assert costs.loads["yours"] < costs.loads["good"] < costs.loads["naive"]
    assert costs.provenance.source == "modelled"
    assert [row[1] for row in costs.table.rows] == ["2", "16", "2"]  # blocks: the text chooses them
    assert costs.table.rows[2][-1] == "too few blocks"
    assert figures.scored(figures.attend("attend.cu"), tokens=256).table.rows[2][-1] != "too few blocks"
