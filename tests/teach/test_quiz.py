"""Quizzes: every topic is valid, the right choice is not revealed, answers get feedback and are stored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gpulab_course import folders
from gpulab_course.api import progress, quiz
from gpulab_course.teach.question import Choice, Question, WhyQuestion
from gpulab_course.teach.quizzes import Quiz, UnknownQuizError
from gpulab_course.teach.store import store

TOPICS = tuple(folders.list_quizzes())
ALL = [question for _, questions in folders.list_quizzes().values() for question in questions]
WITH_CHOICES = [question for question in ALL if isinstance(question, Question)]
SMALL = (
    Question(
        "Which?", (Choice("red", "It is not.", right=True), Choice("blue", "No."), Choice("sea", "No."))
    ),
    WhyQuestion("Why?", ("Because of this.", "Because of that.", "And yet.")),
    Question("And now?", (Choice("a day", "So.", right=True), Choice("an hour", "No."), Choice("no", "No."))),
)


def small() -> Quiz:
    return Quiz("small", "A small quiz", SMALL)


def right_place(quiz: Quiz, number: int) -> int:
    return [option.right for option in quiz.options(number)].index(True) + 1


def wrong_place(quiz: Quiz, number: int) -> int:
    return [option.right for option in quiz.options(number)].index(False) + 1


@pytest.mark.parametrize("topic", TOPICS)
def test_each_question_has_one_right_choice_and_a_reason_for_each(topic: str) -> None:
    questions = quiz(topic).questions
    assert len({question.text for question in questions}) == len(questions), "answers are kept by the text"
    for question in questions:
        if isinstance(question, WhyQuestion):
            assert len(question.points) >= 2, question.text
            continue
        assert sum(option.right for option in question.options) == 1, question.text
        assert all(option.why.endswith(".") for option in question.options), question.text
        assert len({option.text for option in question.options}) == len(question.options) >= 3


def test_the_right_choice_is_evenly_distributed_over_positions() -> None:
    """Over many learners, each position has the right choice equally often."""
    learners = 1000
    for question in WITH_CHOICES:
        places = Counter(
            [option.right for option in question.shuffle_options(str(learner))].index(True)
            for learner in range(learners)
        )
        fair = learners / len(question.options)
        assert all(0.7 * fair < places[position] < 1.3 * fair for position in range(len(question.options))), (
            question.text
        )


@pytest.mark.parametrize(("extreme_name", "extreme"), [("longest", max), ("shortest", min)])
def test_the_right_choice_is_not_revealed_by_its_length(extreme_name: str, extreme: object) -> None:
    """The right choice is the longest (or the shortest) no more often than by chance."""
    chance = hits = 0.0
    for question in WITH_CHOICES:
        lengths = [len(option.text) for option in question.options]
        edge = extreme(lengths)  # type: ignore[operator]
        (right,) = [len(option.text) for option in question.options if option.right]
        chance += 1 / len(lengths)
        hits += (right == edge) / lengths.count(edge)
    assert hits <= chance, f"the right choice is the {extreme_name} in {hits:.1f} of {len(WITH_CHOICES)}"


def test_each_learner_has_a_fixed_order_of_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = set()
    for learner in range(12):
        monkeypatch.setenv("GPULAB_HOME", str(tmp_path / str(learner)))
        first = quiz("start")
        again = quiz("start")
        assert str(first) == str(again)
        orders.add(str(first))
    assert len(orders) > 6


def test_answers_are_restored_in_the_next_session() -> None:
    quiz_ = small()
    quiz_.answer(1, right_place(quiz_, 1))
    quiz_.answer(2, "Because.")
    quiz_.tick(2, 3, 1)
    later = small()
    assert (
        repr(later)
        == repr(quiz_)
        == ("Quiz 'small': 2 of 3 answered; 1 of 1 right first time; 2 of 3 points in your own words.")
    )
    assert later.words(SMALL[1]) == "Because."  # type: ignore[arg-type]
    changed = Quiz("small", "A small quiz", (Question("Which one?", SMALL[0].options),))  # type: ignore[union-attr]
    assert changed.answered == 0, "another question is asked anew"


def test_a_reason_is_compared_with_the_points_of_a_good_answer() -> None:
    quiz_ = small()
    hits = quiz_.answer(2, "I think so.")
    assert all(point in hits for point in SMALL[1].points)  # type: ignore[union-attr]
    assert quiz_.tick(2, 1, 2) == "2 of 3 points."
    assert quiz_.tick(2) == "0 of 3 points.", "a tick can be taken back"
    with pytest.raises(ValueError, match=r"Point 4 does not exist\. The points have the numbers 1 to 3"):
        quiz_.tick(2, 4)
    with pytest.raises(ValueError, match="Question 1 has choices"):
        quiz_.tick(1, 1)


def test_a_choice_is_a_letter_or_a_number() -> None:
    quiz_ = small()
    position = right_place(quiz_, 1)
    for choice in (position, "abc"[position - 1], f" {'ABC'[position - 1]} "):
        assert quiz_.answer(1, choice) == "Right. It is not."
    assert quiz_.describe_score() == "1 of 3 answered; 1 of 1 right first time."
    for choice in ("d", "ab", "", 4, "1"):
        with pytest.raises(ValueError, match=f"^{choice!r} is not a choice\\. Use a letter from a to c\\.$"):
            quiz_.answer(1, choice)
    for number in (0, 4):
        with pytest.raises(
            ValueError, match=f"^Question {number} does not exist\\. The quiz has questions 1 to 3\\.$"
        ):
            quiz_.answer(number, "a")
    with pytest.raises(ValueError, match="Point 0 does not exist"):
        quiz_.tick(2, 0)
    assert quiz_.options(2) == ()


def test_the_first_answer_counts_and_the_last_is_shown() -> None:
    quiz_ = small()
    quiz_.answer(1, wrong_place(quiz_, 1))
    quiz_.answer(1, right_place(quiz_, 1))
    first, last = (quiz_.get_choice(SMALL[0], turn) for turn in ("first", "last"))  # type: ignore[arg-type]
    assert first is not None
    assert last is not None
    assert (first.right, last.right) == (False, True)
    assert (quiz_.answered, quiz_.score) == (1, 0)
    assert quiz_.get_choice(SMALL[2]) is None  # type: ignore[arg-type]


def test_the_html_page_does_not_depend_on_the_learner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quiz_ = Quiz("small", "A `small` quiz", SMALL)
    pages = set()
    for learner in range(4):
        monkeypatch.setenv("GPULAB_HOME", str(tmp_path / str(learner)))
        pages.add(str(Quiz("small", "A `small` quiz", SMALL)._repr_mimebundle_()["text/html"]))
    (page,) = pages
    assert "<b>A <code>small</code> quiz</b>" in page
    assert page.count("<li>") == 9
    assert quiz_._repr_mimebundle_()["text/plain"] == str(quiz_)
    assert str(quiz_).splitlines()[-1] == "Answer with q.answer(number, 'a')."


def test_invalid_stored_records_are_ignored() -> None:
    for record in (3, {"answers": [1]}, {}):
        store().put("quizzes", "small", record)
        assert small().answered == 0


def test_unknown_topic_suggests_the_nearest() -> None:
    with pytest.raises(UnknownQuizError, match="Did you mean 'devices'"):
        quiz("device")
    with pytest.raises(UnknownQuizError, match=", ".join(TOPICS)):
        quiz("nothing at all")


def test_progress_counts_first_answers() -> None:
    start = quiz("start")
    numbers = [n for n, q in enumerate(start.questions, start=1) if isinstance(q, Question)]
    start.answer(numbers[0], wrong_place(start, numbers[0]))
    start.answer(numbers[0], right_place(start, numbers[0]))
    start.answer(numbers[1], right_place(start, numbers[1]))
    (mine,) = [notebook for notebook in progress().notebooks if notebook.topic == "start"]
    assert [answer.right for answer in mine.quiz][:2] == [False, True]
    assert sum(bool(answer.right) for answer in mine.quiz) == 1
    assert {folder.number for folder in folders.list_folders()} == {n.number for n in progress().notebooks}
