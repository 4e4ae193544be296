"""Predictions of the course: keys, texts and fields are consistent."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from string import Formatter

from gpulab_course import folders
from gpulab_course.teach.predictions import Prediction, asking
from gpulab_course.teach.predictions.asking import fill_fields
from gpulab_course.teach.predictions.numbers import read_number
from gpulab_course.teach.store import store

ALL = tuple(folders.list_predictions().values())


def test_keys_belong_to_their_notebook() -> None:
    for folder in folders.list_folders():
        assert all(re.fullmatch(rf"{folder.number}-[a-z0-9][a-z0-9-]*", key) for key in folder.predictions)


def test_questions_and_explanations_are_complete_sentences() -> None:
    for question in ALL:
        assert question.question.endswith(("?", "…")), question.key
        assert question.because.endswith("."), question.key
        for text in (question.question, question.because):
            fields = {name: 1 for _, name, _, _ in Formatter().parse(text) if name}
            assert "{" not in fill_fields(text, fields, question.key)
            assert text.count("`") % 2 == 0, question.key


def test_the_order_of_choices_follows_from_the_key_and_keeps_stored_answers() -> None:
    for asked in (question for question in ALL if question.choices):
        displayed = asking._fill_question(asked, {})
        reversed_ = asking._fill_question(replace(asked, choices=asked.choices[::-1]), {})
        assert displayed.choices == reversed_.choices, "not from the position at which a choice is written"
        assert sorted(map(str, displayed.choices)) == sorted(map(str, asked.choices))
        store().put("predictions", asked.key, {"value": asked.choices[0], "sure": True})
        prediction = Prediction(asked.key)
        prediction.ask(displayed, asked.question)
        assert (prediction.value, prediction.sure) == (asked.choices[0], True)


def test_ordered_choices_are_shown_ascending_or_descending() -> None:
    scale = ("less than 2 times", "2 to 10 times", "more than 10 times")
    displayed = {asking._order_choices(f"00-{n}", (scale[1], scale[2], scale[0])) for n in range(20)}
    assert displayed == {scale, scale[::-1]}


def test_usual_wrong_answers_occur_at_every_position() -> None:
    asked = [asking._fill_question(question, {}) for question in ALL if len(question.choices) == 3]
    places = Counter(
        question.choices.index(question.comparison)
        for question in asked
        if question.comparison in question.choices
    )
    assert all(0.2 < places[place] / places.total() < 0.47 for place in range(3)), places


def test_the_usual_wrong_answer_is_a_valid_answer() -> None:
    for question in ALL:
        answer = question.comparison
        if question.choices:
            assert len(set(question.choices)) == len(question.choices) >= 2, question.key
            assert answer in (None, *question.choices), question.key
        else:
            is_field = re.fullmatch(r"\{(\w+)\}", str(answer))
            assert answer is None or is_field or read_number(str(answer)) == answer, question.key
        # Instructors need to know the misconception behind a wrong answer.
        assert answer is None or question.misconception, question.key
