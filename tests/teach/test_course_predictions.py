"""The course's predictions: keys, words and fields that fit together."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from string import Formatter

import pytest

from gpulab_course import folders
from gpulab_course.teach.predictions import Prediction, asking
from gpulab_course.teach.predictions.asking import filled
from gpulab_course.teach.predictions.numbers import read_number
from gpulab_course.teach.question import PredictionQuestion
from gpulab_course.teach.store import store

ALL = tuple(folders.predictions().values())

each = pytest.mark.parametrize("asked", ALL, ids=lambda asked: asked.key)


def test_keys_belong_to_their_notebook() -> None:
    for folder in folders.folders():
        assert all(re.fullmatch(rf"{folder.number}-[a-z0-9][a-z0-9-]*", key) for key in folder.predictions)


@each
def test_question_and_reason_are_sentences(asked: PredictionQuestion) -> None:
    assert asked.question.endswith(("?", "…"))
    assert asked.because.endswith(".")
    for text in (asked.question, asked.because):
        fields = {name: 1 for _, name, _, _ in Formatter().parse(text) if name}
        assert "{" not in filled(text, fields, asked.key)
        assert text.count("`") % 2 == 0


def test_the_order_of_choices_follows_from_the_key_and_keeps_stored_answers() -> None:
    for asked in (question for question in ALL if question.choices):
        shown = asking._with_fields(asked, {})
        turned = asking._with_fields(replace(asked, choices=asked.choices[::-1]), {})
        assert shown.choices == turned.choices, "not from the position at which a choice is written"
        assert sorted(map(str, shown.choices)) == sorted(map(str, asked.choices))
        store().put("predictions", asked.key, {"value": asked.choices[0], "sure": True})
        prediction = Prediction(asked.key)
        prediction.ask(shown, asked.question)
        assert (prediction.value, prediction.sure) == (asked.choices[0], True)


def test_a_scale_stays_a_scale_upwards_or_downwards() -> None:
    scale = ("less than 2 times", "2 to 10 times", "more than 10 times")
    shown = {asking._ordered(f"00-{n}", (scale[1], scale[2], scale[0])) for n in range(20)}
    assert shown == {scale, scale[::-1]}


def test_tempting_answers_stand_at_every_position() -> None:
    asked = [asking._with_fields(question, {}) for question in ALL if len(question.choices) == 3]
    places = Counter(
        question.choices.index(question.comparison)
        for question in asked
        if question.comparison in question.choices
    )
    assert all(0.2 < places[place] / places.total() < 0.47 for place in range(3)), places


@each
def test_the_answer_for_comparison_is_an_answer(asked: PredictionQuestion) -> None:
    if asked.choices:
        assert len(set(asked.choices)) == len(asked.choices) >= 2
        assert asked.comparison in (None, *asked.choices)
    else:
        given = re.fullmatch(r"\{(\w+)\}", str(asked.comparison))
        assert asked.comparison is None or given or read_number(str(asked.comparison)) == asked.comparison
    assert asked.comparison is None or asked.misconception, "instructors need to know what it comes from"
