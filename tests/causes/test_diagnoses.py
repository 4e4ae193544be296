"""Diagnoses of drawn kernels: the flaw is named, and its remedy yields the stated gain."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpulab.views.tables.diagnosis import CAUSE_NAMES, MIN_GAIN, NOTEBOOK_OF_CAUSE, DiagnosisTable
from tests.causes import table
from tests.views.every_table import costs
from virtualgpu.records.launch.causes import Cause

SEED = 11
DRAWN = [(cause, number) for number, cause in enumerate(table.CAUSES)]


@pytest.mark.parametrize(("cause", "number"), DRAWN)
def test_diagnosis_finds_the_flaw_and_predicts_the_gain_of_a_fix(cause: str, number: int) -> None:
    row = table.row(SEED, cause, number)
    assert row.right, f"{row}\n{row.diagnosis}"
    assert row.near, f"{row}\n{row.diagnosis}"
    assert row.diagnosis.main is not None
    assert CAUSE_NAMES[row.diagnosis.main.kind] in row.diagnosis.verdict
    causes = row.diagnosis.worth_fixing
    assert all(other.gain >= MIN_GAIN for other in causes)
    assert [other.remaining for other in causes] == sorted((c.remaining for c in causes), reverse=True)


@pytest.mark.parametrize("number", range(5))
def test_an_efficient_kernel_has_no_cause_worth_fixing(number: int) -> None:
    row = table.row(SEED, table.SOUND, number)
    assert row.right, f"{row}\n{row.diagnosis}"
    assert repr(row.diagnosis).count("No cause is worth fixing.") == 1
    assert not row.diagnosis.tables()


def test_a_cause_needs_a_remaining_gain_unless_it_is_a_tail() -> None:
    causes = [
        Cause(kind="tail", before_ns=6_000.0, after_ns=4_000.0, remaining=1.0),
        Cause(kind="atomics", before_ns=6_000.0, after_ns=4_100.0, remaining=1.0),
        Cause(kind="spills", before_ns=6_000.0, after_ns=4_200.0, remaining=2.0),
        Cause(kind="compute", before_ns=6_000.0, after_ns=5_500.0, remaining=2.0),
    ]
    diagnosis = DiagnosisTable.of(costs(*causes), code="a\nb")
    assert [cause.kind for cause in diagnosis.worth_fixing] == ["tail", "spills"]
    assert diagnosis.main == causes[0]


def test_every_cause_has_an_existing_notebook() -> None:
    folder = Path(__file__).resolve().parents[2] / "notebooks"
    assert set(NOTEBOOK_OF_CAUSE.values()) <= {path.name.split("_")[0] for path in folder.glob("*.ipynb")}
    assert set(CAUSE_NAMES) == set(NOTEBOOK_OF_CAUSE)
