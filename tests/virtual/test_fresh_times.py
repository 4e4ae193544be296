"""The modelled time of programs that were written after the development of the model, against an H200."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tools import sample
from tools.timing import card, compare
from tools.timing.compare import Compared
from tools.timing.fresh_launches import make_fresh_programs
from tools.timing.tensor_launches import Program
from virtualgpu.compile import nvrtc

DATA = compare.load_recording(card.FRESH)
TEXT = card.CARD.read_text(encoding="utf-8").partition("## Programs written after")[2]
ROW = re.compile(r"^\| (.+?) \| ([\d.,]+) \| ([\d.,]+) \| [\d.]+ \|$", re.M)
# The bounds that were reached; the goals are 10 % and 1.6.
MEDIAN = 0.14
NINTH_DECILE = 0.36
WORST = 2.1  # a product split over k that uses atomic operations; the second largest error is 1.42
RANKED = 0.94
TRIED = sample.draw_sample(
    make_fresh_programs(), 6, lambda program: program.name, lambda program: program.family
)


def card_rows() -> list[Compared]:
    """Return the times in the card, in ns."""
    return [
        Compared(name, 1000 * float(recorded_us.replace(",", "")), 1000 * float(modelled_us.replace(",", "")))
        for name, recorded_us, modelled_us in ROW.findall(TEXT)
    ]


def by_name(start: str) -> Program:
    """Return the program whose name starts so."""
    (program,) = (program for program in make_fresh_programs() if program.name.startswith(start))
    return program


def test_errors_in_the_model_card_are_within_the_bounds() -> None:
    reached = compare.score(card_rows())
    assert reached.count == len(make_fresh_programs()) > 40
    assert reached.median <= MEDIAN
    assert reached.ninth_decile <= NINTH_DECILE
    assert 1 + reached.worst <= WORST
    assert reached.ranked >= RANKED


def test_the_model_card_has_the_recorded_times() -> None:
    assert [row.name for row in card_rows()] == [program.name for program in make_fresh_programs()]
    for row in card_rows():
        assert row.recorded_ns == pytest.approx(DATA["launches"][row.name]["warm_ns"], abs=5.1)


@pytest.mark.parametrize("program", TRIED, ids=lambda program: program.name)
def test_the_model_card_has_the_modelled_time(program: Program) -> None:
    if not nvrtc.is_available():
        pytest.skip("NVRTC is not installed")
    modelled_times = compare.model_times(["h200"], [program])["h200"]
    (row,), _ = compare.compare_kernels(DATA, modelled_times, [program])
    (shown,) = (shown for shown in card_rows() if shown.name == program.name)
    assert shown.modelled_ns == pytest.approx(row.modelled_ns, rel=0.04, abs=11)


def test_the_recording_is_complete_and_its_results_were_right() -> None:
    assert not DATA["errors"]
    assert DATA["checks"].keys() == {program.name for program in make_fresh_programs()}
    for program in make_fresh_programs():
        assert program.check is not None
        assert DATA["checks"][program.name] <= program.check.tolerance
        assert program.name in DATA["launches"]


@pytest.mark.parametrize(
    ("start", "inputs", "output"),
    [
        ("FP16, 2 stages", [np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]])], [[11, 17]]),
        ("FP16 by rows", [np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]])], [[13, 16]]),
        ("BF16, 4", [np.array([[0x3F80]], np.uint16), np.array([[0xC000]], np.uint16)], [[-2]]),
        ("INT8, quantized", [np.array([[64, 1]]), np.array([[64, -64], [-90, 0]])], [[16, -22]]),
        ("roots of 8", [np.array([0, 0, 1, 3]), np.array([2, 3, 1])], [0, 3, 0]),
        ("heat, 2048", [np.array([[0.0, 1.0], [0.0, 0.0]], np.float32)], [[0.2, 0.2], [0, 0.2]]),
    ],
)
def test_a_check_accepts_only_the_right_result(
    start: str, inputs: list[npt.NDArray[Any]], output: object
) -> None:
    check = by_name(start).check
    assert check is not None
    expected = np.array(output, np.float64)
    assert check.error([*inputs, None], expected) <= max(check.tolerance, 1e-6)
    expected.flat[-1] += 1
    assert check.error([*inputs, None], expected) > check.tolerance
