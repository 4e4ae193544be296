"""Diagnoses of drawn kernels: the flaw that was put in is named, and its remedy yields what is stated."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulab.views.tables.diagnosis import MIN_GAIN, NAMES, NOTEBOOKS
from tests.causes import table

SEED = 11
DRAWN = [(cause, at) for at, cause in enumerate(table.CAUSES)]


@pytest.mark.parametrize(("cause", "at"), DRAWN)
def test_the_flaw_is_named_and_its_remedy_yields_what_is_stated(cause: str, at: int) -> None:
    row = table.row(SEED, cause, at)
    assert row.right, f"{row}\n{row.found}"
    assert row.near, f"{row}\n{row.found}"
    assert row.found.main is not None
    assert NAMES[row.found.main.kind] in row.found.verdict


@pytest.mark.parametrize("at", range(5))
def test_a_sound_kernel_is_left_alone(at: int) -> None:
    row = table.row(SEED, table.SOUND, at)
    assert row.right, f"{row}\n{row.found}"
    assert repr(row.found).count("Nothing worth mending.") == 1
    assert not row.found.tables()


def test_what_is_told_gains_enough_and_comes_in_order() -> None:
    row = table.row(SEED, "occupancy", 0)
    told = row.found.worth_mending
    assert told
    assert all(cause.gain >= MIN_GAIN for cause in told)
    assert [cause.remaining for cause in told] == sorted((c.remaining for c in told), reverse=True)


def test_every_cause_has_a_notebook_that_is_there() -> None:
    folder = Path(__file__).resolve().parents[2] / "notebooks"
    there = {path.name.split("_")[0] for path in folder.glob("*.ipynb")}
    assert set(NOTEBOOKS.values()) <= there
    assert set(NAMES) == set(NOTEBOOKS)
