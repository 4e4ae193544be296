"""Diagnoses of drawn kernels: the flaw is named, and its remedy yields the stated gain."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulab.views.tables.diagnosis import MIN_GAIN, NAMES, NOTEBOOKS
from tests.causes import table

SEED = 11
DRAWN = [(cause, number) for number, cause in enumerate(table.CAUSES)]


@pytest.mark.parametrize(("cause", "number"), DRAWN)
def test_the_flaw_is_named_and_its_remedy_yields_the_stated_gain(cause: str, number: int) -> None:
    row = table.row(SEED, cause, number)
    assert row.right, f"{row}\n{row.diagnosis}"
    assert row.near, f"{row}\n{row.diagnosis}"
    assert row.diagnosis.main is not None
    assert NAMES[row.diagnosis.main.kind] in row.diagnosis.verdict
    causes = row.diagnosis.worth_mending
    assert all(other.gain >= MIN_GAIN for other in causes)
    assert [other.remaining for other in causes] == sorted((c.remaining for c in causes), reverse=True)


@pytest.mark.parametrize("number", range(5))
def test_a_sound_kernel_is_left_alone(number: int) -> None:
    row = table.row(SEED, table.SOUND, number)
    assert row.right, f"{row}\n{row.diagnosis}"
    assert repr(row.diagnosis).count("Nothing worth mending.") == 1
    assert not row.diagnosis.tables()


def test_every_cause_has_an_existing_notebook() -> None:
    folder = Path(__file__).resolve().parents[2] / "notebooks"
    assert set(NOTEBOOKS.values()) <= {path.name.split("_")[0] for path in folder.glob("*.ipynb")}
    assert set(NAMES) == set(NOTEBOOKS)
