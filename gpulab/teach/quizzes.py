"""A quiz: the questions of a topic, answered one by one with feedback."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from gpulab.teach import page
from gpulab.teach.folders import quizzes
from gpulab.teach.question import Question
from gpulab.teach.store import store
from virtualgpu.errors import GpulabError, did_you_mean

if TYPE_CHECKING:
    from gpulab.teach.forms import Form

_SECTION = "quizzes"
_LETTERS = "abcdefgh"


class UnknownQuizError(GpulabError, ValueError):
    """A quiz topic that does not exist; the message lists those that do."""


def quiz(topic: str) -> Quiz:
    """The questions of one topic: a form in JupyterLab, a numbered text elsewhere.

    Without the form, answer with ``q = gl.quiz("grid")`` and ``q.answer(1, "b")``.

    Raises
    ------
    UnknownQuizError
        If there is no such topic; the message names the nearest.
    """
    known = quizzes()
    if topic not in known:
        raise UnknownQuizError(
            f"There is no quiz {topic!r}.{did_you_mean(topic, known)} Topics: {', '.join(known)}."
        )
    title, questions = known[topic]
    return Quiz(topic, title, questions)


class Quiz:
    """The questions of a topic and the answers given so far. The first answer counts."""

    def __init__(self, topic: str, title: str, questions: tuple[Question, ...]) -> None:
        self.topic = topic
        self.title = title
        self.questions = questions
        self._first_answers: dict[int, bool] = {}

    @property
    def answered(self) -> int:
        return len(self._first_answers)

    @property
    def score(self) -> int:
        """Questions answered right the first time."""
        return sum(self._first_answers.values())

    def answer(self, number: int, choice: int | str) -> str:
        """Answer question `number` (from 1) with a letter or a position (from 1); returns feedback.

        Raises
        ------
        ValueError
            If there is no such question or choice.
        """
        if not 1 <= number <= len(self.questions):
            raise ValueError(f"Question {number} does not exist; there are 1 to {len(self.questions)}.")
        question = self.questions[number - 1]
        position = _position(choice)
        if not 0 <= position < len(question.options):
            raise ValueError(f"{choice!r} is no choice; use a to {_LETTERS[len(question.options) - 1]}.")
        option = question.options[position]
        self._first_answers.setdefault(number, option.right)
        if self.answered == len(self.questions):
            store().put(_SECTION, self.topic, {"right": self.score, "questions": len(self.questions)})
        return f"{'Right' if option.right else 'Not quite'}. {option.why}"

    def __str__(self) -> str:
        lines = [self.title]
        for number, question in enumerate(self.questions, start=1):
            lines.append(f"{number}. {question.text}")
            lines += [
                f"   {letter}) {text}" for letter, text in zip(_LETTERS, question.choices, strict=False)
            ]
        lines.append("Answer with q.answer(number, 'a').")
        return "\n".join(lines)

    def score_words(self) -> str:
        """How far the learner is."""
        count = len(self.questions)
        if not self.answered:
            return f"{count} questions, none answered yet."
        return f"{self.answered} of {count} answered, {self.score} right first time."

    def __repr__(self) -> str:
        return f"Quiz '{self.topic}': {self.score_words()}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        questions = "".join(
            f'<li>{html.escape(question.text)}<ol type="a">'
            + "".join(f"<li>{html.escape(choice)}</li>" for choice in question.choices)
            + "</ol></li>"
            for question in self.questions
        )
        content = f"<b>{html.escape(self.title)}</b><ol>{questions}</ol>"
        return page.bundle_of(quiz_form(self) if page.in_jupyter() else None, str(self), content)


def _position(choice: int | str) -> int:
    if isinstance(choice, int):
        return choice - 1
    text = choice.strip().lower()
    return _LETTERS.find(text) if len(text) == 1 else -1


def quiz_form(quiz: Quiz) -> Form:
    """All questions of a quiz; every choice answers with its reason."""
    from gpulab.teach.forms import Form

    answers: dict[str, dict[str, object]] = {}

    def heard(message: dict[str, Any]) -> None:
        number, choice = int(message["number"]), int(message["choice"])
        text = quiz.answer(number, choice)
        right = quiz.questions[number - 1].options[choice - 1].right
        answers[str(number)] = {"choice": choice, "right": right, "text": text}
        form.state = {"answers": dict(answers), "score": quiz.score_words()}

    facts = {
        "title": quiz.title,
        "questions": [
            {"text": question.text, "choices": list(question.choices)} for question in quiz.questions
        ],
    }
    form = Form("quiz", facts, {"answers": {}, "score": quiz.score_words()}, heard)
    return form
