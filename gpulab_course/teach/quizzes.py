"""Quizzes: the questions of a topic, the stored answers of the learner, and the form that displays them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpulab.words import count
from gpulab_course.teach import page
from gpulab_course.teach.question import Choice, Question, WhyQuestion
from gpulab_course.teach.store import store
from virtualgpu.errors import GpulabError

if TYPE_CHECKING:
    from gpulab_course.teach.forms import Form

SECTION = "quizzes"
_LETTERS = "abcdefgh"
_WORDS_KEY = "words"
_POINTS_KEY = "points"


class UnknownQuizError(GpulabError, ValueError):
    """Error for an unknown quiz topic. The message lists all topics."""


class Quiz:
    """The quiz questions of a topic and the learner's answers. Only the first answer to a question counts."""

    def __init__(self, topic: str, title: str, questions: tuple[Question | WhyQuestion, ...]) -> None:
        self.topic = topic
        self.title = title
        self.questions = questions
        record = store().get(SECTION, topic)
        answers = record.get("answers") if isinstance(record, dict) else None
        # By the question's text: a question that was changed is asked again.
        self._answers: dict[str, dict[str, Any]] = dict(answers) if isinstance(answers, dict) else {}
        self._seed = _get_learner_seed()

    @property
    def answered(self) -> int:
        """The number of multiple-choice questions that the learner has answered."""
        return sum(self.get_choice(question) is not None for question in self._choice_questions)

    @property
    def score(self) -> int:
        """The number of questions that the learner answered correctly at the first attempt."""
        choices = (self.get_choice(question, "first") for question in self._choice_questions)
        return sum(choice is not None and choice.right for choice in choices)

    @property
    def points(self) -> tuple[int, int]:
        """The number of ticked points in the questions that ask for a sentence, and the total number of these
        points.
        """
        questions = [question for question in self.questions if isinstance(question, WhyQuestion)]
        return sum(len(self.ticked(question)) for question in questions), sum(
            len(item.points) for item in questions
        )

    def options(self, number: int) -> tuple[Choice, ...]:
        """Return the choices of question `number` (from 1) in the order for this learner."""
        question = self.questions[number - 1]
        return question.shuffle_options(self._seed) if isinstance(question, Question) else ()

    def get_choice(self, question: Question, attempt: str = "last") -> Choice | None:
        """Return the learner's ``"first"`` or ``"last"`` choice for a question, or None without an answer."""
        choice_text = self._answers.get(question.text, {}).get(attempt)
        return next((option for option in question.options if option.text == choice_text), None)

    def words(self, question: WhyQuestion) -> str | None:
        """Return the sentence with which the learner answered a question, or None if there is none yet."""
        sentence = self._answers.get(question.text, {}).get(_WORDS_KEY)
        return None if sentence is None else str(sentence)

    def ticked(self, question: WhyQuestion) -> list[int]:
        """Return the indices of the points of a question that the learner has ticked."""
        ticked_texts = self._answers.get(question.text, {}).get(_POINTS_KEY, ())
        return [index for index, point in enumerate(question.points) if point in ticked_texts]

    def answer(self, number: int, choice: int | str) -> str:
        """Answer question `number` (from 1) with a letter or a position (from 1), and return the feedback.

        If the question asks for a reason, pass a sentence; the function then returns the points of a good
        answer.

        Raises
        ------
        ValueError
            If there is no such question or choice.
        """
        question = self._get_question(number)
        if isinstance(question, WhyQuestion):
            self._store_answer(question, {_WORDS_KEY: str(choice)})
            points_text = "\n".join(
                f"  {index}. {point}" for index, point in enumerate(question.points, start=1)
            )
            return (
                f"A good answer says:\n{points_text}\nTick the points that your answer contains: "
                f"q.tick({number}, 1, 2)."
            )
        options = self.options(number)
        position = _find_choice_position(choice)
        if not 0 <= position < len(options):
            raise ValueError(
                f"{choice!r} is not a choice. Use a letter from a to {_LETTERS[len(options) - 1]}."
            )
        option = options[position]
        first_choice = self.get_choice(question, "first") or option
        self._store_answer(question, {"first": first_choice.text, "last": option.text})
        return make_feedback(option)

    def tick(self, number: int, *points: int) -> str:
        """Tick the points (from 1) that your answer to a question contains, and return text with their
        number.

        Raises
        ------
        ValueError
            If there is no such question or point, or the question has choices.
        """
        question = self._get_question(number)
        if not isinstance(question, WhyQuestion):
            raise ValueError(f"Question {number} has choices. Answer it with q.answer({number}, 'a').")
        if unknown_points := [point for point in points if not 1 <= point <= len(question.points)]:
            raise ValueError(
                f"Point {unknown_points[0]} does not exist. The points have the numbers 1 to "
                f"{len(question.points)}."
            )
        self._store_answer(question, {_POINTS_KEY: [question.points[point - 1] for point in points]})
        return f"{len(self.ticked(question))} of {count(len(question.points), 'point')}."

    def describe_score(self) -> str:
        """Return a sentence with the learner's current score in the quiz."""
        question_count = len(self.questions)
        why_questions = [question for question in self.questions if isinstance(question, WhyQuestion)]
        answered_count = self.answered + sum(self.words(question) is not None for question in why_questions)
        if not answered_count:
            own_words_text = f", {len(why_questions)} of them in your own words" if why_questions else ""
            return f"{count(question_count, 'question')}{own_words_text}, none answered yet."
        score_texts = [f"{self.score} of {self.answered} right first time"] if self.answered else []
        ticked_count, point_count = self.points
        if ticked_count:
            score_texts.append(f"{ticked_count} of {count(point_count, 'point')} in your own words")
        return f"{'; '.join([f'{answered_count} of {question_count} answered', *score_texts])}."

    @property
    def _choice_questions(self) -> list[Question]:
        return [question for question in self.questions if isinstance(question, Question)]

    def _get_question(self, number: int) -> Question | WhyQuestion:
        if not 1 <= number <= len(self.questions):
            raise ValueError(
                f"Question {number} does not exist. The quiz has questions 1 to {len(self.questions)}."
            )
        return self.questions[number - 1]

    def _store_answer(self, question: Question | WhyQuestion, answer: dict[str, Any]) -> None:
        self._answers[question.text] = self._answers.get(question.text, {}) | answer
        store().put(SECTION, self.topic, {"answers": self._answers})

    def __str__(self) -> str:
        lines = [self.title]
        for question_number, question in enumerate(self.questions, start=1):
            lines.append(f"{question_number}. {question.text}")
            lines += [
                f"   {letter}) {option.text}"
                for letter, option in zip(_LETTERS, self.options(question_number), strict=False)
            ]
        lines.append("Answer with q.answer(number, 'a').")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"Quiz '{self.topic}': {self.describe_score()}"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        # For readers without a kernel, in an order that is not a learner's.
        questions_html = "".join(
            f'<li>{page.render_prose(question.text)}<ol type="a">'
            + "".join(f"<li>{page.render_prose(option.text)}</li>" for option in _order_options(question))
            + "</ol></li>"
            for question in self.questions
        )
        quiz_html = f"<b>{page.render_prose(self.title)}</b><ol>{questions_html}</ol>"
        is_live = page.is_in_jupyter()
        plain_text = f"{self.title}." if is_live else str(self)
        return page.make_bundle(make_quiz_form(self) if is_live else None, plain_text, quiz_html)


def make_feedback(option: Choice) -> str:
    """Return feedback on a quiz choice, which says whether the choice is right and why."""
    return f"{'Right' if option.right else 'Not quite'}. {option.why}"


def _order_options(question: Question | WhyQuestion) -> Sequence[Choice]:
    return question.shuffle_options("") if isinstance(question, Question) else ()


def _get_learner_seed() -> str:
    """Return the seed of this learner's order of choices, which is drawn once and stored."""
    seed = store().get("learner", "seed")
    if not isinstance(seed, str):
        seed = f"{random.SystemRandom().getrandbits(32):08x}"
        store().put("learner", "seed", seed)
    return seed


def _find_choice_position(choice: int | str) -> int:
    if isinstance(choice, int):
        return choice - 1
    text = choice.strip().lower()
    return _LETTERS.find(text) if len(text) == 1 else -1


def make_quiz_form(quiz: Quiz) -> Form:
    """Return the form that shows all questions of a quiz in JupyterLab."""
    from gpulab_course.teach.forms import Form

    def make_question_state(question_number: int, question: Question | WhyQuestion) -> dict[str, object]:
        if isinstance(question, WhyQuestion):
            sentence = quiz.words(question)
            is_answered = sentence is not None
            shown_points = list(question.points) if is_answered else []
            return {
                "words": sentence or "",
                "points": shown_points,
                "ticked": quiz.ticked(question) if is_answered else [],
            }
        choice = quiz.get_choice(question)
        options = quiz.options(question_number)
        if choice is None:
            return {}
        return {"choice": options.index(choice) + 1, "right": choice.right, "text": make_feedback(choice)}

    def make_state() -> dict[str, object]:
        answers = [
            make_question_state(question_number, question)
            for question_number, question in enumerate(quiz.questions, start=1)
        ]
        return {"answers": answers, "score": quiz.describe_score()}

    def handle_message(message: dict[str, Any]) -> None:
        question_number = int(message["number"])
        if "ticked" in message:
            quiz.tick(question_number, *(int(point) + 1 for point in message["ticked"]))
        else:
            quiz.answer(question_number, message["answer"])
        form.refresh()

    form_facts = {
        "title": quiz.title,
        "questions": [
            {"text": question.text, "choices": [option.text for option in quiz.options(question_number)]}
            for question_number, question in enumerate(quiz.questions, start=1)
        ],
    }
    form = Form("quiz", form_facts, make_state, handle_message)
    return form
