"""Predictions: locking, what counts as an answer, and the sentence that compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulab.teach import predict
from virtualgpu.records import Provenance

VIRTUAL = Provenance("modelled", "virtual A100-SXM4-80GB")


def test_reveal_names_prediction_source_and_ratio() -> None:
    guess = predict("How many sectors?", key="sectors", unit="sectors", answer=4)
    assert repr(guess.reveal(8, VIRTUAL, because="Half of them are wasted.")) == (
        "You said 4 sectors. Modelled on virtual A100-SXM4-80GB: 8 sectors. 2 times that. "
        "Half of them are wasted."
    )


def test_one_is_singular() -> None:
    guess = predict("How many rows?", key="rows", unit="rows", answer=1)
    assert repr(guess.reveal(2)) == "You said 1 row. Found: 2 rows. 2 times that."


def test_default_stands_in_where_nobody_answers() -> None:
    guess = predict("How many blocks?", key="blocks", unit="blocks", default=3)
    revealed = guess.reveal(4, "counted by the kernel")
    assert repr(revealed) == (
        "You made no prediction; a common guess is 3 blocks. "
        "Counted by the kernel: 4 blocks. 1.33 times that."
    )
    assert revealed.right is None


@pytest.mark.parametrize(
    ("said", "found", "verdict"),
    [
        (4, 4, "Right."),
        (100, 103, "Close."),
        (8, 4, "1/2 of that."),
        (0, 5, "Not this one."),
        (1000, 2_500_000, "2.5e+03 times that."),
    ],
)
def test_verdicts_on_numbers(said: int, found: int, verdict: str) -> None:
    assert repr(predict("?", key="k", answer=said).reveal(found)).endswith(verdict)


def test_choices_are_the_only_answers() -> None:
    guess = predict("Which?", key="which", choices=("yes", "no"))
    with pytest.raises(ValueError, match="not one of the choices: yes, no"):
        guess.lock("perhaps")
    assert repr(guess.lock("no").reveal("yes")) == "You said no. Found: yes. Not this one."


def test_text_from_a_form_becomes_a_number() -> None:
    guess = predict("How many?", key="n")
    assert guess.lock("1,024").value == 1024
    assert guess.lock("2.5").value == 2.5
    with pytest.raises(ValueError, match="not a number"):
        guess.lock("many")


def test_a_revealed_prediction_cannot_be_changed() -> None:
    guess = predict("How many?", key="n", answer=1)
    guess.reveal(2)
    guess.lock(2)
    guess.unlock()
    assert guess.value == 1


def test_predictions_outlive_the_object_and_follow_the_folder(
    learner_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict("How many?", key="n", answer=7)
    assert (learner_folder / "learner.json").exists()
    assert predict("How many?", key="n").value == 7
    monkeypatch.setenv("GPULAB_HOME", str(tmp_path / "someone-else"))
    assert not predict("How many?", key="n").locked


def test_an_earlier_answer_to_another_question_is_asked_again() -> None:
    predict("How many?", key="n", answer=7)
    assert not predict("Which?", key="n", choices=("yes", "no")).locked


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("GPULAB_HOME", str(blocked / "below"))
    assert predict("How many?", key="n", answer=7).value == 7
    assert predict("How many?", key="n").value == 7, "kept in memory at least"


def test_a_damaged_file_is_no_error(learner_folder: Path) -> None:
    learner_folder.mkdir(parents=True)
    (learner_folder / "learner.json").write_text('{"predictions": [1, 2')
    assert not predict("How many?", key="n").locked


def test_reprs_are_one_stable_line() -> None:
    guess = predict("How many?", key="n", unit="blocks")
    assert repr(guess) == "Prediction 'n' (How many?): open."
    guess.lock(3)
    assert repr(guess) == "Prediction 'n' (How many?): locked at 3 blocks."
