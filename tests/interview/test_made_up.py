"""What an interview says, shows and keeps, with cards that are made up for that."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date, timedelta
from random import Random
from typing import Any

import pytest
from ipywidgets import Widget

from gpulab.views.tables import Table
from gpulab_course import api, folders
from gpulab_course.teach import page
from gpulab_course.teach.interview import again, form, opening
from gpulab_course.teach.interview.cards import (
    Card,
    CardQuestion,
    DrawnCard,
    Outcome,
    TrueValue,
    rate_answer,
)
from gpulab_course.teach.interview.numbers import read_answer
from gpulab_course.teach.interview.scorecard import CardResult, PartResult, Scorecard, compute_calibration
from gpulab_course.teach.interview.talk import Interview
from gpulab_course.teach.store import store
from virtualgpu.errors import GpulabError
from virtualgpu.records import Provenance

MONDAY = date(2026, 3, 2)
SEEN = Table("seen", ("what",), (("a row",),))
TRUTH = Table("truth", ("what",), (("found row",),))


def judged(code: str) -> Outcome:
    if "nowhere" in code:
        raise GpulabError("It cannot be measured <here>.")
    return Outcome(float("right" in code), "right" in code, "read", "judged here")


def drawn(rng: Random) -> DrawnCard:
    def interview_() -> TrueValue:
        return TrueValue(40, Provenance("modelled", "virtual T4"), "So `it` is.", TRUTH, "the <code>")

    return DrawnCard(
        questions=(
            CardQuestion(
                question="How `many`?",
                measure=interview_,
                unit="blocks",
                max_error_factor=1.5,
                table=SEEN,
                code="int x;",
            ),
            CardQuestion(
                question="Which?", measure=lambda: TrueValue("red", "seen"), choices=("red", "blue")
            ),
            CardQuestion(question="A kernel?", judge=judged, code="start"),
        ),
        rubric_points=("one <thing>", "another", "a third"),
        strong_answer="Forty & no more.",
        parameters={"n": 40},
    )


CARD = Card("made-up", "estimate", "L3", "Made up", drawn, ("02", "03"))


def talk(chair: Any = "candidate", cards: int = 2, today: date = MONDAY) -> Interview:
    cards_ = [replace(CARD, key=f"made-up-{n}") for n in range(cards)]
    return Interview(cards_, 7, chair, lambda: today)


def answered(interview_: Interview, *values: Any, sure: bool = True) -> Interview:
    for value in values or (40, "red", "right"):
        interview_.answer(value, sure=sure)
    return interview_


# Answers


@pytest.mark.parametrize(
    ("answer", "interview_", "near", "worth", "right"),
    [
        (10, 10, 1.0, 1.0, True),
        (12.5, 10, 1.25, 1.0, True),
        (8, 10, 1.25, 1.0, True),
        (100, 10, 1.25, 0.0, False),
        (31.622776601683793, 10, 1.0, 0.5, False),
        (0, 10, 1.25, 0.0, False),
        (10, 0, 1.25, 0.0, False),
        (0, 0, 1.25, 1.0, True),
        (-10, 10, 1.25, 0.0, False),
        (-10, -10.0, 1.25, 1.0, True),
        ("a", "b", 1.25, 0.0, False),
    ],
)
def test_the_score_of_a_number_falls_with_its_error_factor(
    answer: Any, interview_: Any, near: float, worth: float, right: bool
) -> None:
    assert rate_answer(answer, interview_, near) == (pytest.approx(worth), right)


def test_answers_are_validated_by_the_kind_of_part() -> None:
    part = CardQuestion(question="?", choices=("red", "blue"))
    assert [part.check_answer(value) for value in (1, 2, "blue")] == ["red", "blue", "blue"]
    for wrong in (0, 3, True, "green", None, 1.0):
        with pytest.raises(ValueError, match=r"is not one of the choices: red, blue\.$"):
            part.check_answer(wrong)
    number = CardQuestion(question="?", unit="blocks")
    assert [number.check_answer(value) for value in (3, 2.5, "1,5", "4 blocks")] == [3, 2.5, 1.5, 4]
    for wrong in (True, None, float("inf"), [1]):
        with pytest.raises(ValueError, match=r"is not a number, but this part needs one\.$"):
            number.check_answer(wrong)
    kernel = CardQuestion(question="?", judge=judged)
    assert kernel.check_answer("code") == "code"
    for wrong in (7, " \n"):
        with pytest.raises(ValueError, match=r"^This part needs the source of a kernel: answer\(code\)\.$"):
            kernel.check_answer(wrong)


def test_an_outcome_shows_the_right_value_and_the_error() -> None:
    part = drawn(Random(1)).questions[0]
    right, near, far = (part.judge_answer(value) for value in (40, 50, 400))
    assert right == Outcome(
        1.0, True, "40 blocks. So `it` is.", "modelled on virtual T4", TRUTH, "the <code>"
    )
    assert (near.is_right, far.is_right) == (True, False)
    assert "25 % too high" in near.message
    assert "10 times too high" in far.message
    choice = drawn(Random(1)).questions[1]
    assert (choice.judge_answer("blue").message, choice.judge_answer("blue").label) == (
        "red; you said blue.",
        "seen",
    )
    either = replace(choice, measure=lambda: TrueValue("red", "seen", other_right_choices=("blue",)))
    assert (either.judge_answer("blue").is_right, either.judge_answer("blue").merit) == (True, 1.0)


@pytest.mark.parametrize(
    ("answer", "unit", "means"),
    [
        ("5 ms", "µs", 5000),
        ("0.3 ms", "µs", 300.0),
        ("1/2 ms", "ms", 0.5),
        ("2 KiB", "bytes", 2048),
        ("1.67 TB/s", "GB/s", 1670.0),
        ("1/32", "%", 3.125),
        (0.25, "%", 25.0),
        ("25%", "%", 25),
        ("0.5 %", "%", 0.5),
        (1, "%", 1),
        ("3x", "times", 3),
        ("8-way", "wavefronts", 8),
        ("240/s", "tokens/s", 240),
        ("20 FLOP/byte", "operations", 20),
        ("1,304 µs", "µs", 1304),
        (1.0, "%", 100),
        ("1,000,448", "bytes", 1000448),
    ],
)
def test_numbers_are_parsed_in_common_notations(answer: Any, unit: str, means: float) -> None:
    assert read_answer(answer, unit) == pytest.approx(means, rel=1e-12)


@pytest.mark.parametrize(
    ("answer", "unit"), [("5 GB", "µs"), ("many", "%"), ("1 2", "µs"), ("1.000", "bytes")]
)
def test_ambiguous_numbers_are_refused(answer: str, unit: str) -> None:
    with pytest.raises(ValueError, match=r"not a number|in some countries"):
        read_answer(answer, unit)


# The talk


def test_points_are_ticked_once_all_parts_are_answered() -> None:
    interview_ = talk()
    with pytest.raises(ValueError, match="Answer all questions of this card"):
        interview_.tick(1)
    answered(interview_)
    assert interview_.part is None
    with pytest.raises(ValueError, match="already answered this card"):
        interview_.answer(3)
    for number in (0, 4):
        with pytest.raises(ValueError, match=f"Point {number} does not exist"):
            interview_.tick(number)
    assert interview_.tick(3, 1, 3).startswith("2 of 3 points.")
    assert interview_.ticked_points == (0, 2)
    assert "2. another" in interview_.say("words")
    assert repr(interview_).endswith("1 of 2 cards answered.")
    assert (
        interview_.next().index,
        interview_.ticked_points,
        interview_.explanation,
        interview_.outcomes,
    ) == (
        1,
        (),
        None,
        [],
    )
    assert interview_.next().index == 1, "at the last card it stays"


def test_a_card_shows_the_right_value_only_after_the_answer() -> None:
    interview_ = talk()
    lines = str(interview_).splitlines()
    assert [line for line in lines if line in ("seen", "How `many`?", "int x;")] == [
        "seen",
        "int x;",
        "How `many`?",
    ]
    assert "truth" not in lines
    interview_.answer(400)
    lines = str(interview_).splitlines()
    assert lines.index("truth") < lines.index("the <code>") < lines.index("Which?")
    assert "  2. blue" in lines
    interview_.answer("red")
    assert "truth" not in str(interview_).splitlines(), "it belongs to its part"
    assert "start" in str(interview_).splitlines()
    interview_.answer("right")
    assert "  3. a third" in str(interview_).splitlines()


def test_the_interviewer_sees_each_right_value_measured_once() -> None:
    measured: list[int] = []

    def counted(rng: Random) -> DrawnCard:
        cards_ = drawn(rng)
        expected_parts = cards_.questions[0].measure
        assert expected_parts is not None

        def measure() -> TrueValue:
            measured.append(1)
            return expected_parts()

        return replace(
            cards_, questions=(replace(cards_.questions[0], measure=measure), *cards_.questions[1:])
        )

    interview_ = Interview([replace(CARD, draw=counted)], 7, "interviewer", lambda: MONDAY)
    truths = ["40 blocks, modelled on virtual T4. So `it` is.", "red, seen. ", "The judge tests the answer."]
    assert interview_.list_truths() == interview_.list_truths() == truths
    assert len(measured) == 1
    assert all(f"Truth: {truth}" in str(interview_) for truth in truths)
    assert interview_.tick(2).startswith("1 of 3 points.")
    answered(interview_)
    assert store().get_section(again.SECTION) == {}


def test_an_answer_that_cannot_be_measured_is_not_locked() -> None:
    interview_ = answered(talk(), 40, "red")
    with pytest.raises(GpulabError):
        interview_.answer("nowhere")
    assert len(interview_.outcomes) == 2
    interview_.answer("right\nand more")
    (card, second) = interview_.scorecard.cards
    assert [part.said for part in card.parts] == [40, "red", "2 lines"]
    assert [part.sure for part in card.parts] == [True, True, False]
    assert (card.is_done, second.is_done, second.parts, second.points, second.asked) == (
        True,
        False,
        (),
        (),
        1,
    )


def test_each_part_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("gpulab_course.teach.interview.talk.time.monotonic", lambda: now[0])
    interview_ = talk()
    now[0] = 500.0
    assert interview_.part is not None  # the card is drawn, and shown, now
    for later, value in ((512.34, 40), (515.0, "red"), (520.0, "right")):
        now[0] = later
        interview_.answer(value)
    assert interview_.next().part is not None
    now[0] = 521.0
    interview_.answer(40)
    times = [[part.seconds for part in card.parts] for card in interview_.scorecard.cards]
    assert times == [[12.3, 2.7, 5.0], [1.0]]


# What comes back


def test_a_card_is_saved_when_answered_and_when_ticked() -> None:
    interview_ = answered(talk(), 40, "red")
    assert store().get(again.SECTION, "made-up-0") is None
    interview_.answer("right", sure=True)
    record = store().get(again.SECTION, "made-up-0")
    assert (record["met"], record["box"], record["due"]) == (1, 0, "2026-03-03")  # no point is ticked yet
    interview_.tick(1)
    assert store().get(again.SECTION, "made-up-0")["box"] == 0
    interview_.tick(1, 2)
    record = store().get(again.SECTION, "made-up-0")
    assert (record["met"], record["box"], record["due"]) == (1, None, None)
    assert record["score"] == pytest.approx(interview_.scorecard.cards[0].score)


def test_the_longest_overdue_card_comes_first() -> None:
    for key, days in (("b", 2), ("a", 2), ("c", 1), ("d", 3)):
        again.store_history(key, again.CardHistory(1, 0.0, 0, MONDAY + timedelta(days=days), {}))
    again.store_history("learned", again.CardHistory(2, 1.0, None, None, {}))
    keys = ["a", "b", "c", "d", "learned", "never"]
    assert again.list_due_keys(keys, MONDAY + timedelta(days=2)) == ["c", "a", "b"]
    assert again.list_due_keys(["a"], MONDAY + timedelta(days=1)) == []
    assert list(again.load_histories()) == ["a", "b", "c", "d", "learned"]


# The scorecard


def part(right: bool, sure: bool, merit_: float = 1.0, seconds: float = 2.0) -> PartResult:
    return PartResult("?", 3, sure, right, merit_, "told", "seen", seconds)


def scored(*parts: PartResult, ticked: int = 0, expected_parts: int = 2, key: str = "k") -> CardResult:
    return CardResult(key, "estimate", "L3", {}, parts, ("a", "b", "c"), tuple(range(ticked)), expected_parts)


def test_calibration_is_computed_from_brier_scores() -> None:
    bets = [(True, True), (True, False), (False, True), (False, False)]
    assert [compute_calibration([part(right, sure)]) for right, sure in bets] == pytest.approx(
        [0.99, 0.75, 0.19, 0.75]
    )
    assert compute_calibration([]) == 1.0
    assert compute_calibration([part(True, True), part(False, True)]) == pytest.approx(0.59)


def test_coverage_combines_answer_scores_and_ticked_points() -> None:
    row = scored(part(True, True), part(False, True, 0.5), ticked=2)
    assert row.coverage == pytest.approx(0.75 * (3 + 2 / 3) / 4)
    assert row.score == pytest.approx(0.6875 * 0.59)
    assert (row.is_done, row.is_well_answered) == (True, False)
    assert not scored(part(True, True), part(True, False), ticked=3).is_well_answered, "a guess"
    right = (part(True, True), part(True, True))
    assert [scored(*right, ticked=n).is_well_answered for n in range(4)] == [False, False, True, True]
    assert replace(scored(*right, ticked=2), points=("a", "b", "c", "d")).is_well_answered, (
        "half of the points"
    )
    assert not scored(*right[:1], ticked=3).is_well_answered
    assert scored(*right, part(True, True)).is_done is False


def test_a_scorecard_counts_only_the_cards_that_were_started() -> None:
    cards = (
        scored(part(True, True), part(True, True), ticked=3),
        scored(part(False, False, 0.0)),
        scored(key="z"),
    )
    card = Scorecard(7, "2026-03-02", cards)
    assert card.coverage == pytest.approx((1 + 0 + 0) / 3)
    assert card.calibration == pytest.approx(1 - (0.01 + 0.01 + 0.25) / 3)
    assert "2 of 3 cards answered; coverage 33 % × calibration 91 % = 30 %" in repr(card)
    assert "none answered yet" in repr(Scorecard(7, "d", cards[2:]))
    assert (Scorecard(7, "d").coverage, Scorecard(7, "d").score) == (0.0, 0.0)
    answer = replace(cards[0], words="4 µs")
    assert '"words": "4 µs"' in Scorecard(7, "d", (answer,)).json()
    record = json.loads(card.json())
    assert [row["coverage"] for row in record["cards"]] == [1.0, 0.0, 0.0]
    assert record["cards"][0]["score"] == pytest.approx(0.99)


# On the page


@pytest.fixture(autouse=True)
def no_widgets_left() -> Any:
    yield
    Widget.close_all()


def test_the_page_shows_question_outcome_and_points() -> None:
    interview_ = talk()
    page_ = form.make_interview_page(interview_)
    assert "<p><b>How <code>many</code>?</b></p>" in page_
    assert "int x;</pre>" in page_
    assert "A strong answer says" not in page_
    interview_.answer(400)
    page_ = form.make_interview_page(interview_)
    assert "<b>✗</b> 40 blocks; you said 400 blocks" in page_
    assert "the &lt;code&gt;</pre>" in page_
    interview_.answer("red")
    assert "<b>✓</b> red" in form.make_interview_page(interview_)
    interview_.answer("right")
    page_ = form.make_interview_page(interview_)
    assert "<li>one &lt;thing&gt;</li>" in page_
    assert "Truth" not in page_
    assert form.make_interview_page(talk("interviewer")).count("<p>Truth: ") == 3


def hear(to: Any, **message: Any) -> None:
    to._handle_message(to, message, None)


def answer_in(card: Any, value: str, sure: bool) -> None:
    """Answer the question that the card shows."""
    hear(card, key=card.state["question"]["key"], value=value, sure=sure)


def test_the_form_shows_question_feedback_and_next_part() -> None:
    interview_ = talk()
    card = form.make_interview_form(interview_)
    question = card.state["question"]
    assert (question["question"], question["choices"], question["unit"]) == ("How `many`?", [], "blocks")
    assert card.state["steps"] == []
    answer_in(card, "many", sure=True)
    assert "not a number" in card.state["wrong"]
    answer_in(card, "40", sure=False)
    assert card.state["wrong"] == ""
    assert interview_.scorecard.cards[0].parts[0].sure is False
    (step,) = card.state["steps"]
    assert (step["question"], step["right"], step["said"][:9]) == ("How `many`?", True, "40 blocks")
    assert (card.state["question"]["question"], card.state["question"]["choices"]) == (
        "Which?",
        ["red", "blue"],
    )
    answer_in(card, "red", sure=True)
    question = card.state["question"]
    assert (question["code"], question["html"].count("start")) == ("start", 0), "the code is shown once"
    answer_in(card, "nowhere", sure=True)
    assert "It cannot be measured <here>." in card.state["wrong"]
    assert card.state["rubric"] is None
    answer_in(card, "right", sure=False)
    assert [row.sure for row in interview_.scorecard.cards[0].parts] == [False, True, False]
    assert (card.state["question"], card.state["clock"]["since_s"]) == (None, None)
    assert (card.state["rubric"]["points"], card.state["rubric"]["sentence"]) == ([], "")
    hear(card, number=1, answer="mine")
    hear(card, number=1, ticked=[0, 2])
    rubric = card.state["rubric"]
    assert rubric["points"] == ["one <thing>", "another", "a third"]
    assert (rubric["words"], rubric["ticked"], rubric["score"]) == ("mine", [0, 2], "2 of 3 points")
    hear(card, next=True)
    assert (interview_.index, card.state["next"], card.state["scorecard"]) == (1, "", "")
    answered(interview_)
    card = form.make_interview_form(interview_)
    assert "Scorecard, seed 7" in card.state["scorecard"]
    assert not any(step["truth"] for step in card.state["steps"])


def test_a_second_press_does_not_answer_the_next_question() -> None:
    interview_ = talk()
    card = form.make_interview_form(interview_)
    answer_in(card, "40", sure=True)
    key = card.state["question"]["key"]
    for _ in range(2):
        hear(card, key=key, value="red", sure=True)
    assert len(interview_.outcomes) == 2


def test_the_clock_adds_the_times_of_a_cards_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("gpulab_course.teach.interview.talk.time.monotonic", lambda: now[0])
    monkeypatch.setattr("gpulab_course.teach.interview.talk.time.time", lambda: 5000 + now[0])
    interview_ = talk()
    card = form.make_interview_form(interview_)
    now[0] = 112.0
    answer_in(card, "40", sure=True)
    assert card.state["clock"] == {"elapsed_s": 12.0, "since_s": 5112.0}
    now[0] = 113.0
    answer_in(card, "red", sure=True)
    now[0] = 117.0
    answer_in(card, "right", sure=True)
    assert card.state["clock"] == {"elapsed_s": 17.0, "since_s": None}
    hear(card, number=1, answer="mine")
    hear(card, next=True)
    assert card.state["clock"] == {"elapsed_s": 0, "since_s": 5117.0}


def test_skipping_open_questions_needs_a_second_click() -> None:
    interview_ = talk()
    card = form.make_interview_form(interview_)
    assert (card.state["next"], card.state["warning"]) == ("Next card", "")
    hear(card, next=True)
    assert interview_.index == 0
    assert "3 questions and the rubric" in card.state["warning"]
    assert card.state["next"] == "Skip them"
    hear(card, next=True)
    assert (interview_.index, card.state["warning"]) == (1, "")


def test_the_interviewers_widget_shows_everything_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    interview_ = talk("interviewer", cards=1)
    card = form.make_interview_form(interview_)
    steps = card.state["steps"]
    assert [step["question"] for step in steps] == ["How `many`?", "Which?", "A kernel?"]
    assert all(step["truth"] for step in steps)
    assert card.state["question"]["question"] == "", "the question is above, with its truth"
    rubric = card.state["rubric"]
    assert (rubric["points"], rubric["sentence"]) == (
        ["one <thing>", "another", "a third"],
        "Forty & no more.",
    )
    assert card.state["next"] == ""
    answer_in(card, "400", sure=True)
    assert [step["said"][:9] for step in card.state["steps"]] == ["40 blocks", "", ""]
    assert interview_._repr_mimebundle_()["text/plain"] == str(interview_)
    monkeypatch.setattr(page, "is_in_jupyter", lambda: True)
    assert interview_._repr_mimebundle_()["text/plain"] == repr(interview_)


# Which cards


@pytest.fixture
def course(monkeypatch: pytest.MonkeyPatch) -> list[Card]:
    kinds: tuple[Any, ...] = ("estimate", "bug", "ladder")
    cards = [replace(CARD, key=f"{kind}-{n}", kind=kind) for kind in kinds for n in range(4)]
    folder = type("Folder", (), {"cards": tuple(cards)})()
    monkeypatch.setattr(folders, "list_folders", lambda: [folder])
    return cards


def test_cards_of_different_kinds_alternate(course: list[Card]) -> None:
    interview_ = api.interview(seed=3)
    assert [card.kind for card in interview_.cards] == ["estimate", "bug", "ladder"] * 2
    assert (interview_.seed, interview_.role, interview_.notice_text, len(set(interview_.cards))) == (
        3,
        "candidate",
        "",
        6,
    )
    assert len(api.interview(seed=3, cards=99).cards) == 12
    assert len({tuple(card.key for card in api.interview(seed=seed).cards) for seed in range(9)}) > 3
    bugs = api.interview("bug", seed=3, cards=3)
    assert {card.kind for card in bugs.cards} == {"bug"}
    (card,) = api.interview("ladder-2").cards
    assert card.key == "ladder-2"
    assert api.interview("bug", chair="interviewer").role == "interviewer"


def test_due_cards_come_first_and_once(course: list[Card]) -> None:
    for n, key in enumerate(("bug-1", "ladder-0", "estimate-3")):
        again.store_history(key, again.CardHistory(1, 0.0, 0, MONDAY + timedelta(days=n), {}))

    def opened(**more: Any) -> Interview:
        options: dict[str, Any] = {"kind": None, "seed": None, "card_count": 6, "role": "candidate", **more}
        return opening.open_interview(course, today=lambda: MONDAY + timedelta(days=1), **options)

    interview_ = opened(card_count=12)
    assert [card.key for card in interview_.cards][:2] == ["bug-1", "ladder-0"]
    assert len({card.key for card in interview_.cards}) == 12
    assert "2 cards repeated. 1 other card will be repeated, the next on 2026-03-04." in repr(interview_)
    assert [card.key for card in opened(card_count=1).cards] == ["bug-1"]
    assert (
        opened(card_count=1).notice_text
        == " 1 card repeated. 2 other cards will be repeated, the next today."
    )
    assert opened(kind="ladder", card_count=2).cards[0].key == "ladder-0"
    assert opened(seed=2).notice_text == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chair": "judge"}, "'candidate' or 'interviewer', not 'judge'"),
        ({"cards": 0}, "at least one card"),
        ({"kind": "bugs"}, "Did you mean 'bug'?"),
    ],
)
def test_unknown_chairs_counts_and_kinds_are_refused(
    course: list[Card], arguments: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        api.interview(**arguments)
