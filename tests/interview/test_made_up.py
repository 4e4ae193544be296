"""What an interview says, shows and keeps, with cards that are made up for that."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ipywidgets import Widget

from gpulab.views.parts import palette
from gpulab.views.tables import Table
from gpulab_course import api, folders
from gpulab_course.teach import page
from gpulab_course.teach.interview import again, form, opening
from gpulab_course.teach.interview.cards import Card, Drawn, Found, Outcome, Part, merit
from gpulab_course.teach.interview.numbers import read_answer
from gpulab_course.teach.interview.scorecard import Answered, Scorecard, Scored, calibration
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


def drawn(rng: Random) -> Drawn:
    def found() -> Found:
        return Found(40, Provenance("modelled", "virtual T4"), "So `it` is.", TRUTH, "the <code>")

    return Drawn(
        parts=(
            Part(question="How `many`?", measure=found, unit="blocks", near=1.5, table=SEEN, code="int x;"),
            Part(question="Which?", measure=lambda: Found("red", "seen"), choices=("red", "blue")),
            Part(question="A kernel?", judge=judged, code="start"),
        ),
        points=("one <thing>", "another", "a third"),
        sentence="Forty & no more.",
        parameters={"n": 40},
    )


CARD = Card("made-up", "estimate", "L3", "Made up", drawn, ("02", "03"))


def talk(chair: Any = "candidate", cards: int = 2, today: date = MONDAY) -> Interview:
    made = [replace(CARD, key=f"made-up-{n}") for n in range(cards)]
    return Interview(made, 7, chair, lambda: today)


def answered(found: Interview, *values: Any, sure: bool = True) -> Interview:
    for value in values or (40, "red", "right"):
        found.answer(value, sure=sure)
    return found


# Answers


@pytest.mark.parametrize(
    ("said", "found", "near", "worth", "right"),
    [
        (10, 10, 1.0, 1.0, True),
        (12.5, 10, 1.25, 1.0, True),
        (8, 10, 1.25, 1.0, True),
        (100, 10, 1.25, 0.0, False),
        (1000, 10, 1.25, 0.0, False),
        (1, 10, 1.25, 0.0, False),
        (31.622776601683793, 10, 1.0, 0.5, False),
        (0, 10, 1.25, 0.0, False),
        (10, 0, 1.25, 0.0, False),
        (0, 0, 1.25, 1.0, True),
        (-10, 10, 1.25, 0.0, False),
        (-10, -10.0, 1.25, 1.0, True),
        ("a", "b", 1.25, 0.0, False),
        (35.35533905932738, 10, 1.25, 0.5, False),
        ("a", 1, 1.25, 0.0, False),
    ],
)
def test_what_a_number_is_worth(said: Any, found: Any, near: float, worth: float, right: bool) -> None:
    assert merit(said, found, near) == (pytest.approx(worth), right)


def test_a_choice_is_taken_by_its_place_or_its_text() -> None:
    part = Part(question="?", choices=("red", "blue"))
    assert [part.valid(value) for value in (1, 2, "blue")] == ["red", "blue", "blue"]
    for wrong in (0, 3, True, "green", None, 1.0):
        with pytest.raises(ValueError, match=r"is not one of the choices: red, blue\.$"):
            part.valid(wrong)
    number = Part(question="?", unit="blocks")
    assert [number.valid(value) for value in (3, 2.5, "1,5", "4 blocks")] == [3, 2.5, 1.5, 4]
    for wrong in (True, None, float("inf"), [1]):
        with pytest.raises(ValueError, match=r"is not a number; this part takes one\.$"):
            number.valid(wrong)
    kernel = Part(question="?", judge=judged)
    assert kernel.valid("code") == "code"
    for wrong in (7, " \n"):
        with pytest.raises(ValueError, match=r"^This part takes the text of a kernel: answer\(code\)\.$"):
            kernel.valid(wrong)


def test_an_outcome_says_what_was_found_and_how_far_it_is() -> None:
    part = drawn(Random(1)).parts[0]
    right, near, far = (part.outcome(value) for value in (40, 50, 400))
    assert right == Outcome(
        1.0, True, "40 blocks. So `it` is.", "modelled on virtual T4", TRUTH, "the <code>"
    )
    assert near.said == "40 blocks; you said 50 blocks, 25 % too high. So `it` is."
    assert (near.right, far.right) == (True, False)
    assert far.said == "40 blocks; you said 400 blocks, 10 times too high. So `it` is."
    choice = drawn(Random(1)).parts[1]
    assert (choice.outcome("blue").said, choice.outcome("blue").label) == ("red; you said blue.", "seen")
    assert Found(1, "seen").label == "seen"
    either = replace(choice, measure=lambda: Found("red", "seen", also=("blue",)))
    assert either.outcome("blue") == Outcome(1.0, True, "red; you said blue, which is right, too.", "seen")


@pytest.mark.parametrize(
    ("said", "unit", "means"),
    [
        ("5 ms", "µs", 5000),
        ("0.3 ms", "µs", 300.0),
        ("12.5us", "µs", 12.5),
        ("1/2 ms", "ms", 0.5),
        ("2 KiB", "bytes", 2048),
        ("137 GB", "GiB", 137e9 / 2**30),
        ("1.67 TB/s", "GB/s", 1670.0),
        ("1/32", "%", 3.125),
        (0.25, "%", 25.0),
        ("32/32", "%", 100),
        ("25%", "%", 25),
        ("0.5 %", "%", 0.5),
        ("3.125", "%", 3.125),
        (1, "%", 1),
        ("3x", "times", 3),
        ("1.304", "times", 1.304),
        ("8-way", "wavefronts", 8),
        ("240/s", "tokens/s", 240),
        ("240 tokens/s", "tokens/s", 240),
        ("20 FLOP/byte", "operations", 20),
        ("203.125", "operations", 203.125),
        ("3.125 ms", "µs", 3125.0),
        ("1,304 µs", "µs", 1304),
        (1.0, "%", 100),
        ("2^11", "", 2048),
        ("17 blocks", "blocks", 17),
        ("1,000,448", "bytes", 1000448),
    ],
)
def test_numbers_are_read_as_candidates_write_them(said: Any, unit: str, means: float) -> None:
    assert read_answer(said, unit) == pytest.approx(means, rel=1e-12)


@pytest.mark.parametrize(("said", "unit"), [("5 GB", "µs"), ("many", "%"), ("1 2", "µs"), ("1.000", "bytes")])
def test_what_could_be_two_numbers_or_none_is_refused(said: str, unit: str) -> None:
    with pytest.raises(ValueError, match=r"not a number|in some countries"):
        read_answer(said, unit)


# The talk


def test_a_card_is_answered_part_by_part_and_then_ticked() -> None:
    found = talk()
    assert found.heading == "Card 1 of 2 · estimate · L3 · Made up (seed 7; taught in 02, 03)"
    assert repr(found) == "Interview, candidate's chair, seed 7: 0 of 2 cards answered."
    with pytest.raises(ValueError, match=r"^The rubric opens once all parts of the card are answered\.$"):
        found.tick(1)
    answered(found)
    assert found.part is None
    with pytest.raises(ValueError, match="This card is answered: tick"):
        found.answer(3)
    with pytest.raises(ValueError, match=r"^There is no point 4; there are 1 to 3\.$"):
        found.tick(1, 4)
    with pytest.raises(ValueError, match="There is no point 0"):
        found.tick(0)
    assert found.tick(3, 1, 3) == "2 of 3 points. Forty & no more."
    assert found.ticked == (0, 2)
    assert found.say("words") == (
        "A strong answer says:\n  1. one <thing>\n  2. another\n  3. a third\n"
        "Tick what yours says: tick(1, 2)."
    )
    assert found.words == "words"
    assert repr(found).endswith("1 of 2 cards answered.")
    assert (found.next().at, found.ticked, found.words, found.outcomes) == (1, (), None, [])
    assert found.next().at == 1, "at the last card it stays"


def test_as_text_a_card_shows_what_is_asked_and_what_was_found() -> None:
    found = talk()
    first = ["seen", "How `many`?", "Lock an answer: .answer(value, sure=True)."]
    lines = str(found).splitlines()
    assert lines[0] == found.heading
    assert [line for line in lines if line in (*first, "int x;")] == ["seen", "int x;", *first[1:]]
    found.answer(400)
    lines = str(found).splitlines()
    assert (
        lines[1]
        == "✗ 40 blocks; you said 400 blocks, 10 times too high. So `it` is. (modelled on virtual T4)"
    )
    assert lines.index("truth") < lines.index("the <code>") < lines.index("Which?")
    assert lines[-3:] == ["  1. red", "  2. blue", "Lock an answer: .answer(value, sure=True)."]
    found.answer("red")
    assert "✓ red. (seen)" in str(found)
    assert "truth" not in str(found).splitlines(), "what was found belongs to its part"
    assert "start" in str(found).splitlines()
    found.answer("right")
    assert str(found).splitlines()[-5:] == [
        "A strong answer says:",
        "  1. one <thing>",
        "  2. another",
        "  3. a third",
        "In one sentence: Forty & no more.",
    ]


def test_the_interviewer_hears_the_truth_of_every_part_once() -> None:
    measured: list[int] = []

    def counted(rng: Random) -> Drawn:
        made = drawn(rng)
        asked = made.parts[0].measure
        assert asked is not None

        def measure() -> Found:
            measured.append(1)
            return asked()

        return replace(made, parts=(replace(made.parts[0], measure=measure), *made.parts[1:]))

    found = Interview([replace(CARD, draw=counted)], 7, "interviewer", lambda: MONDAY)
    truths = [
        "40 blocks, modelled on virtual T4. So `it` is.",
        "red, seen. ",
        "It is judged.",
    ]
    assert found.truths() == found.truths() == truths
    assert len(measured) == 1
    text = str(found)
    assert all(f"Truth: {truth}" in text for truth in truths)
    assert "Question 2: Which?\nTruth: red, seen." in text
    assert "In one sentence: Forty" in text
    assert "1. one <thing>" in text
    assert found.tick(2) == "1 of 3 points. Forty & no more."
    answered(found)
    assert store().section(again.SECTION) == {}


def test_nothing_is_locked_that_cannot_be_measured() -> None:
    found = answered(talk(), 40, "red")
    with pytest.raises(GpulabError):
        found.answer("nowhere")
    assert len(found.outcomes) == 2
    found.answer("right\nand more")
    (card, other) = found.scorecard.cards
    assert [part.said for part in card.parts] == [40, "red", "2 lines"]
    assert [part.sure for part in card.parts] == [True, True, False]
    assert (card.done, other.done, other.parts, other.points, other.asked) == (True, False, (), (), 1)


def test_time_is_that_of_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("gpulab_course.teach.interview.talk.time.monotonic", lambda: now[0])
    found = talk()
    now[0] = 500.0
    assert found.part is not None  # the card is drawn, and shown, now
    for later, value in ((512.34, 40), (515.0, "red"), (520.0, "right")):
        now[0] = later
        found.answer(value)
    assert found.next().part is not None
    now[0] = 521.0
    found.answer(40)
    times = [[part.seconds for part in card.parts] for card in found.scorecard.cards]
    assert times == [[12.3, 2.7, 5.0], [1.0]]


# What comes back


def test_a_card_is_kept_once_it_is_answered_and_again_with_its_ticks() -> None:
    found = answered(talk(), 40, "red")
    assert store().get(again.SECTION, "made-up-0") is None
    found.answer("right", sure=True)
    kept = store().get(again.SECTION, "made-up-0")
    assert (kept["met"], kept["box"], kept["due"]) == (1, 0, "2026-03-03")  # no point is ticked yet
    found.tick(1)
    assert store().get(again.SECTION, "made-up-0")["box"] == 0
    found.tick(1, 2)
    kept = store().get(again.SECTION, "made-up-0")
    assert (kept["met"], kept["box"], kept["due"]) == (1, None, None)
    assert kept["score"] == pytest.approx(found.scorecard.cards[0].score)


def test_a_box_a_time() -> None:
    kept = again.Kept()
    assert kept.after(0.5, True, MONDAY, {}) == again.Kept(1, 0.5, None, None, {})
    waits = []
    kept = kept.after(0.1, False, MONDAY, {"a": 1})
    while kept.due is not None:
        waits.append((kept.box, (kept.due - MONDAY).days, kept.met))
        kept = kept.after(1.0, True, MONDAY, {})
    assert waits == [(0, 1, 1), (1, 3, 2), (2, 7, 3)]
    assert kept.after(0.0, False, MONDAY, {}).box == 0
    assert again.Kept().as_json() == {"met": 0, "score": 0.0, "box": None, "due": None, "last": {}}


def test_the_longest_overdue_comes_first() -> None:
    for key, days in (("b", 2), ("a", 2), ("c", 1), ("d", 3)):
        again.keep(key, again.Kept(1, 0.0, 0, MONDAY + timedelta(days=days), {}))
    again.keep("learned", again.Kept(2, 1.0, None, None, {}))
    keys = ["a", "b", "c", "d", "learned", "never"]
    assert again.due(keys, MONDAY + timedelta(days=2)) == ["c", "a", "b"]
    assert again.due(["a"], MONDAY + timedelta(days=1)) == []
    assert list(again.everything()) == ["a", "b", "c", "d", "learned"]


@pytest.mark.parametrize(
    "wrong", [{"met": -1}, {"met": True}, {"score": "1"}, {"last": 3}, {"box": 3}, {"box": None}]
)
def test_what_cannot_be_is_put_aside_once(wrong: dict[str, Any]) -> None:
    good = again.Kept(1, 0.5, 2, MONDAY, {"a": 1}).as_json()
    store().put(again.SECTION, "k", good)
    assert again.kept("k") == again.Kept(1, 0.5, 2, MONDAY, {"a": 1})
    store().put(again.SECTION, "k", good | {"met": 0, "score": 1})
    assert again.kept("k") == again.Kept(0, 1.0, 2, MONDAY, {"a": 1})
    store().put(again.SECTION, "k", good | wrong)
    assert again.kept("k") == again.kept("k") == again.Kept()
    assert store().get(again.ASIDE, "k") == [good | wrong]
    store().put(again.SECTION, "k", 3)
    again.keep("k", again.Kept(1))
    assert store().get(again.ASIDE, "k") == [good | wrong, 3]


# The scorecard


def part(right: bool, sure: bool, merit_: float = 1.0, seconds: float = 2.0) -> Answered:
    return Answered("?", 3, sure, right, merit_, "told", "seen", seconds)


def scored(*parts: Answered, ticked: int = 0, asked: int = 2, key: str = "k") -> Scored:
    return Scored(key, "estimate", "L3", {}, parts, ("a", "b", "c"), tuple(range(ticked)), asked)


def test_bets_are_measured_by_brier() -> None:
    bets = [(True, True), (True, False), (False, True), (False, False)]
    assert [calibration([part(right, sure)]) for right, sure in bets] == pytest.approx(
        [0.99, 0.75, 0.19, 0.75]
    )
    assert calibration([]) == 1.0
    assert calibration([part(True, True), part(False, True)]) == pytest.approx(0.59)


def test_coverage_counts_parts_by_merit_and_points_by_ticks() -> None:
    one = scored(part(True, True), part(False, True, 0.5), ticked=2)
    assert one.coverage == pytest.approx(0.75 * (3 + 2 / 3) / 4)
    assert one.score == pytest.approx(0.6875 * 0.59)
    assert (one.done, one.well) == (True, False)
    assert not scored(part(True, True), part(True, False), ticked=3).well, "a guess"
    right = (part(True, True), part(True, True))
    assert [scored(*right, ticked=n).well for n in range(4)] == [False, False, True, True]
    assert replace(scored(*right, ticked=2), points=("a", "b", "c", "d")).well, "half of the points"
    assert not scored(*right[:1], ticked=3).well
    assert scored(*right, part(True, True)).done is False


def test_a_scorecard_is_of_the_cards_that_were_begun() -> None:
    cards = (
        scored(part(True, True), part(True, True), ticked=3),
        scored(part(False, False, 0.0)),
        scored(key="z"),
    )
    card = Scorecard(7, "2026-03-02", cards)
    assert card.coverage == pytest.approx((1 + 0 + 0) / 3)
    assert card.calibration == pytest.approx(1 - (0.01 + 0.01 + 0.25) / 3)
    assert repr(card) == "Scorecard, seed 7: 2 of 3 cards answered; coverage 33 % × calibration 91 % = 30 %."
    assert repr(Scorecard(7, "d", cards[2:])) == "Scorecard, seed 7: 1 card, none answered yet."
    assert (Scorecard(7, "d").coverage, Scorecard(7, "d").score) == (0.0, 0.0)
    rows = [line.split() for line in str(card).splitlines() if "estimate" in line]
    assert rows == [
        ["k", "estimate", "L3", "2", "of", "2", "3", "of", "3", "100", "%", "99", "%", "4", "s"],
        ["k", "estimate", "L3", "0", "of", "2", "0", "of", "3", "0", "%", "75", "%", "2", "s"],
        ["z", "estimate", "L3", "0", "of", "2", "0", "of", "3"],
    ]
    said = replace(cards[0], words="4 µs")
    assert '"words": "4 µs"' in Scorecard(7, "d", (said,)).json()
    kept = json.loads(card.json())
    assert {name: kept[name] for name in ("format", "version", "seed", "day")} == {
        "format": "gpulab-interview",
        "version": 1,
        "seed": 7,
        "day": "2026-03-02",
    }
    assert [one["coverage"] for one in kept["cards"]] == [1.0, 0.0, 0.0]
    assert kept["cards"][0]["score"] == pytest.approx(0.99)


# On the page


@pytest.fixture(autouse=True)
def no_widgets_left() -> Any:
    yield
    Widget.close_all()


def test_the_page_shows_question_outcome_and_what_is_to_be_said() -> None:
    found = talk()
    at_first = form.page_of(found)
    assert "<p>How <code>many</code>?</p>" in at_first
    assert "A strong answer says" not in at_first
    assert "<ol>" not in at_first
    assert "int x;</pre>" in at_first
    found.answer(400)
    told = form.page_of(found)
    assert palette.light("tail") in told
    assert (
        "<b>✗</b> 40 blocks; you said 400 blocks, 10 times too high. So <code>it</code> is. <i>modelled on"
        in told
    )
    assert "the &lt;code&gt;</pre>" in told
    assert "<p>Which?</p><ol><li>red</li><li>blue</li></ol>" in told
    found.answer("red")
    assert "<b>✓</b> red. <i>seen</i>" in form.page_of(found)
    assert palette.light("good") in form.page_of(found)
    found.answer("right")
    done = form.page_of(found)
    assert (
        "<ol><li>one &lt;thing&gt;</li><li>another</li><li>a third</li></ol>"
        "<p><i>Forty &amp; no more.</i></p>" in done
    )
    assert "Truth" not in done
    open_ = form.page_of(talk("interviewer"))
    assert open_.count("<b>Truth:</b>") == 3
    assert "A strong answer says" in open_


def named(box: Any, name: str) -> Any:
    return next(child for child in box.children if getattr(child, "form", "") == name)


def hear(to: Any, **message: Any) -> None:
    to._hear(to, message, None)


def test_the_room_asks_tells_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = talk()
    box = form.room(found)
    asking = named(box, "prediction")
    assert asking.facts == {"question": "How `many`?", "choices": [], "unit": "blocks"}
    assert asking.state == {"value": "", "locked": False, "final": False, "note": "", "wrong": ""}
    assert not [child for child in box.children if getattr(child, "form", "") == "quiz"]
    hear(asking, value="40", sure=False)
    assert found.scorecard.cards[0].parts[0].sure is False
    assert "40 blocks. So" in box.children[0].value
    choosing = named(box, "prediction")
    assert choosing.facts == {"question": "Which?", "choices": ["red", "blue"], "unit": ""}
    hear(choosing, value="red", sure=True)
    _, writing, onward = box.children
    question, code, buttons, problem = writing.children
    assert (code.value, "A kernel?" in question.value, problem.value) == ("start", True, "")
    assert code.layout.width == "100%"
    code.value = "nowhere"
    buttons.children[0].click()
    assert "It cannot be measured &lt;here&gt;." in problem.value
    code.value = "right"
    assert [button.description for button in buttons.children] == ["I am sure", "I guess"]
    buttons.children[1].click()
    assert [one.sure for one in found.scorecard.cards[0].parts] == [False, True, False]
    rubric = named(box, "quiz")
    assert rubric.facts["questions"][0]["choices"] == []
    assert rubric.state == {"answers": [{"words": "", "points": [], "ticked": []}], "score": "0 of 3 points"}
    hear(rubric, number=1, answer="mine")
    hear(rubric, number=1, ticked=[0, 2])
    assert rubric.state == {
        "answers": [{"words": "mine", "points": ["one <thing>", "another", "a third"], "ticked": [0, 2]}],
        "score": "2 of 3 points",
    }
    assert "Forty &amp; no more." in "".join(getattr(child, "value", "") for child in box.children)
    assert onward.disabled is False
    box.children[-1].click()
    assert found.at == 1
    assert box.children[-1].disabled, "there is no next card"
    answered(found)
    assert "Scorecard, seed 7" in form.room(found).children[-1].value
    assert "Truth" not in "".join(getattr(child, "value", "") for child in box.children)


def test_the_interviewers_room_shows_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = talk("interviewer", cards=1)
    box = form.room(found)
    text = "".join(getattr(child, "value", "") for child in box.children)
    assert text.count("<b>Truth:</b>") == 3
    assert "Forty &amp; no more." in text
    assert named(box, "quiz").state["answers"][0]["points"] == ["one <thing>", "another", "a third"]
    assert box.children[-1].disabled
    assert found._repr_mimebundle_()["text/plain"] == str(found)
    monkeypatch.setattr(page, "in_jupyter", lambda: True)
    assert found._repr_mimebundle_()["text/plain"] == repr(found)


# Which cards


@pytest.fixture
def course(monkeypatch: pytest.MonkeyPatch) -> list[Card]:
    kinds: tuple[Any, ...] = ("estimate", "bug", "ladder")
    cards = [replace(CARD, key=f"{kind}-{n}", kind=kind) for kind in kinds for n in range(4)]
    folder = type("Folder", (), {"cards": tuple(cards)})()
    monkeypatch.setattr(folders, "folders", lambda: [folder])
    return cards


def test_cards_are_drawn_kind_after_kind(course: list[Card]) -> None:
    found = api.interview(seed=3)
    assert [card.kind for card in found.cards] == ["estimate", "bug", "ladder"] * 2
    assert (found.seed, found.chair, found.why, len(set(found.cards))) == (3, "candidate", "", 6)
    assert len(api.interview(seed=3, cards=99).cards) == 12
    assert len({tuple(card.key for card in api.interview(seed=seed).cards) for seed in range(9)}) > 3
    bugs = api.interview("bug", seed=3, cards=3)
    assert {card.kind for card in bugs.cards} == {"bug"}
    (alone,) = api.interview("ladder-2").cards
    assert (alone.key, api.interview("ladder-2").seed, api.interview("ladder-2", seed=4).seed) == (
        "ladder-2",
        0,
        4,
    )
    assert api.interview("bug", chair="interviewer").chair == "interviewer"
    assert 0 <= api.interview().seed < 10_000
    assert len(api.interview(cards=1).cards) == 1


def test_what_is_due_comes_first_and_only_once(course: list[Card]) -> None:
    for n, key in enumerate(("bug-1", "ladder-0", "estimate-3")):
        again.keep(key, again.Kept(1, 0.0, 0, MONDAY + timedelta(days=n), {}))

    def opened(**more: Any) -> Interview:
        options: dict[str, Any] = {"kind": None, "seed": None, "cards": 6, "chair": "candidate", **more}
        return opening.interview(course, today=lambda: MONDAY + timedelta(days=1), **options)

    found = opened(cards=12)
    assert [card.key for card in found.cards][:2] == ["bug-1", "ladder-0"]
    assert len({card.key for card in found.cards}) == 12
    assert repr(found).endswith(
        "0 of 12 cards answered. 2 cards came back. 1 other card comes back, the next on 2026-03-04."
    )
    assert [card.key for card in opened(cards=1).cards] == ["bug-1"]
    assert opened(cards=1).why == " 1 card came back. 2 other cards come back, the next today."
    assert opened(kind="ladder", cards=2).cards[0].key == "ladder-0"
    assert opened(seed=2).why == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"chair": "judge"}, "There is no chair 'judge': sit as 'candidate' or as 'interviewer'."),
        ({"cards": 0}, "An interview has at least one card, not 0."),
        (
            {"kind": "bugs"},
            "There is no kind of card and no card 'bugs'. Did you mean 'bug'? Kinds: estimate,",
        ),
    ],
)
def test_what_there_is_not_is_told(course: list[Card], arguments: Any, says: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(says)}"):
        api.interview(**arguments)


def test_a_saved_scorecard_is_what_is_shown(tmp_path: Path) -> None:
    found = answered(talk())
    assert found.save(tmp_path / "a.json").read_text(encoding="utf-8") == f"{found.scorecard.json()}\n"
    assert found.scorecard._repr_html_() in found.save(tmp_path / "a.html").read_text(encoding="utf-8")
