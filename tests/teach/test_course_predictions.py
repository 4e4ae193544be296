"""The course's predictions: keys, words and fields that fit together."""

from __future__ import annotations

import re
from string import Formatter

import pytest

from gpulab.teach import folders
from gpulab.teach.predictions.asking import filled
from gpulab.teach.predictions.numbers import read_number
from gpulab.teach.question import PredictionQuestion

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


@each
def test_the_answer_for_comparison_is_an_answer(asked: PredictionQuestion) -> None:
    if asked.choices:
        assert len(set(asked.choices)) == len(asked.choices) >= 2
        assert asked.comparison in (None, *asked.choices)
    else:
        given = re.fullmatch(r"\{(\w+)\}", str(asked.comparison))
        assert asked.comparison is None or given or read_number(str(asked.comparison)) == asked.comparison
    assert asked.comparison is None or asked.misconception, "instructors need to know what it comes from"
