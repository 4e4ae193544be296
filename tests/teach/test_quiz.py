"""Quizzes: every topic is sound, answers give feedback, and the first answer counts."""

from __future__ import annotations

import pytest

from gpulab.teach import quiz
from gpulab.teach.progress import progress
from gpulab.teach.quizzes import UnknownQuizError, quizzes

TOPICS = tuple(quizzes())


@pytest.mark.parametrize("topic", TOPICS)
def test_each_question_has_one_right_choice_and_a_reason_for_each(topic: str) -> None:
    for question in quiz(topic).questions:
        assert sum(option.right for option in question.options) == 1, question.text
        assert all(option.why.endswith(".") for option in question.options), question.text
        assert len({option.text for option in question.options}) == len(question.options) >= 3


@pytest.mark.parametrize("topic", TOPICS)
def test_the_right_choice_is_not_always_at_the_same_place(topic: str) -> None:
    places = {[o.right for o in question.options].index(True) for question in quiz(topic).questions}
    assert len(places) > 1


def test_feedback_and_score() -> None:
    start = quiz("start")
    assert repr(start) == "Quiz 'start': 5 questions, none answered yet."
    assert start.answer(1, "a").startswith("Not quite. That would say")
    assert start.answer(1, "b").startswith("Right. ")
    assert start.score == 0, "the first answer counts"
    for number in range(2, 6):
        right = [option.right for option in start.questions[number - 1].options].index(True)
        start.answer(number, right + 1)
    assert repr(start) == "Quiz 'start': 5 of 5 answered, 4 right first time."
    assert progress().quizzes["start"] == (4, 5)


def test_plain_text_lists_all_questions_and_choices() -> None:
    text = str(quiz("devices"))
    for question in quiz("devices").questions:
        assert question.text in text
        assert all(choice in text for choice in question.choices)


def test_wrong_numbers_and_letters_are_named() -> None:
    start = quiz("start")
    with pytest.raises(ValueError, match="Question 9 does not exist"):
        start.answer(9, "a")
    with pytest.raises(ValueError, match="use a to c"):
        start.answer(1, "z")
    with pytest.raises(ValueError, match="use a to c"):
        start.answer(1, 0)


def test_unknown_topic_suggests_the_nearest() -> None:
    with pytest.raises(UnknownQuizError, match="Did you mean 'devices'"):
        quiz("device")
