"""Predictions: locking, valid answers, and the text of comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulab.views.parts import palette
from gpulab_course import folders
from gpulab_course.api import predict, reveal
from gpulab_course.teach.predictions import UnknownPredictionError, asking
from gpulab_course.teach.predictions.verdicts import Scale
from gpulab_course.teach.question import AnswerKind, AnswerValue, PredictionQuestion
from gpulab_course.teach.store import store
from tests.teach import asked
from virtualgpu.records import HOST_CLOCK, Provenance

VIRTUAL = Provenance("modelled", "virtual A100-SXM4-80GB")
BLOCKS = PredictionQuestion(
    "98-blocks", "{n} elements: how many blocks?", "{n} / 256 = {exact}.", unit="blocks", comparison=3
)
WHERE = PredictionQuestion("98-where", "Where does `x` lie?", "Here.", choices=("host", "device"))


@pytest.fixture(autouse=True)
def _asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {question.key: question for question in (BLOCKS, WHERE)}
    monkeypatch.setattr(folders, "find_prediction", asked.get)


def test_predictions_and_comparisons_are_found_by_key() -> None:
    guess = predict("98-blocks", n=1000, answer=3, sure=False)
    assert str(guess) == "Predict: 1,000 elements: how many blocks?"
    assert repr(reveal("98-blocks", 4, "counted by the kernel", n=1000, exact=3.90625)) == (
        "✗ 4 blocks; you guessed 3 blocks, one too few. Counted by the kernel. 1,000 / 256 = 3.906."
    )


def test_a_comparison_is_worded_for_sure_and_missing_answers() -> None:
    predict("98-where", answer="device", sure=True)
    assert repr(reveal("98-where", "device", VIRTUAL)).startswith(
        "✓ device, as you were sure. Modelled on virtual A"
    )
    nobody = reveal("98-blocks", 4, HOST_CLOCK, n=1, exact=1)
    assert repr(nobody).startswith(
        "No prediction. 4 blocks. The usual wrong answer: 3 blocks. Measured on this computer (host clock)."
    )
    assert nobody.right is None


def test_the_usual_wrong_answer_can_be_a_value_of_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = PredictionQuestion("98-sms", "Of {sms} SMs?", "So.", unit="SMs", comparison="{sms}")
    monkeypatch.setattr(folders, "find_prediction", {"98-sms": asked}.get)
    predict("98-sms", sms=40)
    assert "The usual wrong answer: 40 SMs." in repr(reveal("98-sms", 4, VIRTUAL))


def test_a_missing_argument_of_a_question_is_named() -> None:
    with pytest.raises(TypeError, match="'98-blocks' needs the argument n="):
        predict("98-blocks")
    with pytest.raises(TypeError, match="'98-blocks' needs the argument exact="):
        reveal("98-blocks", 4, VIRTUAL, n=1)


def test_an_unknown_key_suggests_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "list_predictions", lambda: {"98-blocks": BLOCKS})
    with pytest.raises(UnknownPredictionError, match="Did you mean '98-blocks'"):
        predict("98-block")


@pytest.mark.parametrize(
    ("answer", "value", "unit", "kind", "words"),
    [
        # Quantities: a ratio, or a percentage if the answer is close.
        (3.4, 2.36, "times", None, "1.4 times too high"),
        (1.0, 2.0, "GB/s", None, "2 times too low"),
        (2.4, 2.36, "times", None, "1.7 % too high"),
        # Shares: percentage points.
        (100, 51.6, "%", None, "48 points too high"),
        # Counts: a difference, or a ratio if the answer is far off.
        (3, 4, "blocks", None, "one too few"),
        (108, 4, "SMs", None, "27 times too high"),
        (0, 5, "lanes", None, "five too few"),
        # Index: a difference, never a ratio.
        (77, 13, "", None, "64 too high"),
        (1, 0, "", None, "one too high"),
        (3, 12, "lane", "index", "nine too low"),
        (4, 4, "", None, ""),
        (0, 2.5, "", "quantity", "2.5 too low"),
        # Limits between the wordings.
        (1.14, 1.0, "times", None, "14 % too high"),
        (1.15, 1.0, "times", None, "1.1 times too high"),
        (9.5, 1.0, "times", None, "9.5 times too high"),
        (9.96, 1.0, "times", None, "10 times too high"),
        (12.34, 1.0, "times", None, "12 times too high"),
        (3, 1, "blocks", None, "two too many"),
        (4, 1, "blocks", None, "4 times too high"),
        (42, 32, "rows", None, "ten too many"),
        (43, 32, "rows", None, "11 too many"),
        (3, -2, "blocks", "quantity", "five too high"),
        (0, 0.5, "%", None, "0.5 points too low"),
        (2.5, 4, "blocks", "count", "1.5 too low"),
        ("a", "b", "", None, ""),
        (1, 2, "", "choice", ""),
    ],
)
def test_the_distance_of_an_answer_is_described(
    answer: AnswerValue, value: AnswerValue, unit: str, kind: AnswerKind | None, words: str
) -> None:
    assert Scale(unit, kind).distance(answer, value) == words


def test_the_kind_of_an_answer_is_derived_from_number_and_unit() -> None:
    units = {"%": "share", "percent": "share", "": "index", "blocks": "count", "GB/s": "quantity"}
    units |= {
        "times": "quantity",
        "µs": "quantity",
        "MiB": "quantity",
        "bytes": "quantity",
        "kHz": "quantity",
    }
    units |= {"W": "quantity", "TFLOPS": "quantity", "misses": "count", "SMs": "count"}
    assert {unit: Scale(unit).find_kind(4) for unit in units} == units
    assert Scale("blocks").find_kind(4.5) == Scale("").find_kind(4.5) == "quantity"
    assert Scale("blocks").find_kind("host") == "choice"
    assert Scale("blocks", "index").find_kind(4.5) == "index"


def test_only_quantities_and_shares_have_a_tolerance() -> None:
    assert [Scale("times").right(answer, 1.0) for answer in (1.1, 1.11, 1.12, 0.88, -1.0)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [Scale("times", tolerance=0.5).right(answer, 1.0) for answer in (0.5, 0.49)] == [True, False]
    assert Scale("%").right(0.0, 1e-13)
    assert [Scale("").right(answer, 4) for answer in (4, 4.0, "4")] == [True, True, True]
    assert not Scale("").right("four", 4)
    assert not Scale("blocks").right(1000, 1001)
    assert Scale("", "choice").right("16", 16)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1, "blocks", "1 block"),
        (2000, "blocks", "2,000 blocks"),
        (0, "blocks", "0 blocks"),
        (1, "SMs", "1 SM"),
        (1, "ms", "1 ms"),
        (1234, "", "1,234"),
        (1234.56, "GB/s", "1,235 GB/s"),
        (0.12345, "%", "0.1235 %"),
        ("host", "blocks", "host"),
        (1.0, "µs", "1 µs"),
    ],
)
def test_a_number_is_shown_with_its_unit(value: AnswerValue, unit: str, text: str) -> None:
    assert Scale(unit).show(value) == text


def test_a_comparison_is_coloured_by_its_outcome() -> None:
    for answer, colour, sign in ((5, "good", "✓ "), (4, "tail", "✗ "), (None, "accent", "")):
        value = asked.predict("How many?", key=f"n{answer}", answer=answer).reveal(
            5, "counted", "So `it` is."
        )
        page_ = str(value._repr_mimebundle_()["text/html"])
        assert palette.find_hex(colour) in page_
        assert f"<b>{sign}" in page_
        assert "Counted. So <code>it</code> is." in page_
        assert value.sign == sign.strip()


def test_an_unlocked_or_skipped_prediction_stores_no_answer() -> None:
    guess = asked.predict("How many?", key="n", unit="blocks")
    assert (guess.describe_answer(), guess.locked, guess.final, guess.scale.kind) == ("", False, False, None)
    assert guess.lock(5, sure=False).describe_answer() == "Locked: 5 blocks, a guess."
    guess.unlock()
    assert (guess.locked, guess.sure, guess.describe_answer()) == (False, None, "")
    assert store().get("predictions", "n") is None
    guess.record_look()
    assert store().get("predictions", "n") == {"seen": True}
    assert repr(guess) == "Prediction 'n' (How many?): open."


def test_choices_may_be_numbers() -> None:
    guess = asked.predict("Which?", key="which", choices=(32, 64))
    assert guess.lock("32").value == 32
    assert guess.scale.kind == "choice"
    assert repr(guess.reveal(64)) == "✗ 64; you said 32."
    assert store().get("predictions", "which") == {"value": 32, "sure": None, "right": False}


def test_a_comparison_works_without_a_prediction_in_this_session() -> None:
    comparison = reveal("98-where", "device", "looked up")
    assert repr(comparison) == "No prediction. Device. Looked up. Here."
    predict("98-where", answer="host")
    asking._get_prediction.cache_clear()
    again = reveal("98-where", "device", "looked up")
    assert repr(again) == "✗ device; you said host. Looked up. Here."
    assert again.right is False


def test_an_answer_must_be_one_of_the_choices() -> None:
    guess = asked.predict("Which?", key="which", choices=("yes", "no"))
    with pytest.raises(ValueError, match="not one of the choices: yes, no"):
        guess.lock("perhaps")
    assert repr(guess.lock("no").reveal("yes")) == "✗ yes; you said no."


def test_a_decimal_comma_is_read_and_an_ambiguous_number_refused() -> None:
    guess = asked.predict("How much?", key="n", unit="ms")
    assert guess.lock("3,9").value == 3.9
    with pytest.raises(ValueError, match="Write 1 or 1000"):
        guess.lock("1.000")
    assert guess.value == 3.9, "a question changes nothing"


def test_a_revealed_prediction_cannot_be_changed_later() -> None:
    guess = predict("98-blocks", n=1, answer=1, sure=True)
    reveal("98-blocks", 2, VIRTUAL, n=1, exact=1)
    guess.lock(2)
    guess.unlock()
    assert (guess.value, guess.right) == (1, False)
    asking._get_prediction.cache_clear()
    again = predict("98-blocks", n=1, answer=2)
    assert (again.value, again.sure, again.right, again.final) == (1, True, False, True)
    reveal("98-blocks", 1, VIRTUAL, n=1, exact=1)
    assert again.right is False, "the first comparison counts, not one on another device"


def test_an_answer_after_the_number_was_shown_does_not_count() -> None:
    guess = predict("98-blocks", n=1)
    reveal("98-blocks", 2, VIRTUAL, n=1, exact=1)
    assert not guess.final, "the comparison waits"
    guess.record_look()
    assert not guess.lock(2).locked
    asking._get_prediction.cache_clear()
    tomorrow = predict("98-blocks", n=1, answer=2)
    assert (tomorrow.locked, tomorrow.seen, tomorrow.final) == (False, True, True)


def test_an_answer_that_is_locked_after_the_comparison_ran_is_compared() -> None:
    guess = predict("98-blocks", n=1)
    comparison = reveal("98-blocks", 2, VIRTUAL, n=1, exact=1)
    guess.lock(2, sure=True)
    assert repr(comparison).startswith("✓ 2 blocks, as you were sure.")
    assert guess.right


def test_predictions_are_stored_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked.predict("How many?", key="n", answer=7)
    monkeypatch.setenv("GPULAB_HOME", str(tmp_path / "someone-else"))
    assert not asked.predict("How many?", key="n").locked


def test_records_of_an_earlier_version_are_read(learner_folder: Path) -> None:
    learner_folder.mkdir(parents=True)
    (learner_folder / "learner.json").write_text('{"predictions": {"n": 7}}')
    assert asked.predict("How many?", key="n").value == 7


def test_an_answer_to_a_changed_question_is_dropped() -> None:
    asked.predict("How many?", key="n", answer=7)
    assert not asked.predict("Which?", key="n", choices=("yes", "no")).locked
