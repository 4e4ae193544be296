"""Numbers as learners type them in the formats of several countries."""

from __future__ import annotations

import pytest

from gpulab_course.teach.predictions.numbers import read_number


@pytest.mark.parametrize(
    ("typed", "number"),
    [
        ("12", 12),
        ("\u22123", -3),
        (".5", 0.5),
        # A decimal comma, except before exactly three digits.
        ("3,9", 3.9),
        ("3,14159", 3.14159),
        ("1,000", 1000),
        ("1,234,567", 1_234_567),
        ("1,234.5", 1234.5),
        ("1.234,5", 1234.5),
        # Digit groups separated by spaces, apostrophes and underscores.
        ("1 000", 1000),
        ("1\u202f000\u202f000", 1_000_000),
        ("1'000", 1000),
        ("1_000", 1000),
        # Fractions and powers.
        ("1/2", 0.5),
        ("1,5/3", 0.5),
        ("1e6", 1_000_000),
        ("1E-3", 0.001),
        ("2^20", 1 << 20),
        ("10^-3", 0.001),
        ("\u2248 4", 4),
        ("-1/2", -0.5),
        ("-2^2", -4),
        ("2,5^2", 6.25),
        ("3*10**8", 300_000_000),
        ("2\u00d710^3", 2000),
        ("1.2340", 1.234),
        ("1e+2", 100),
        ("1.000,50", 1000.5),
    ],
)
def test_numbers_are_read_as_many_countries_write_them(typed: str, number: float) -> None:
    assert read_number(typed) == pytest.approx(number, rel=1e-12)
    assert isinstance(read_number(typed), int) == (number == int(number))


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "4k",
        "--3",
        "inf",
        "1e999",
        "1/0",
        "1/-2",
        "1,2.3,4",
        "5%",
        "1/2/3",
        "1e",
        "1,000.",
        "2^1.5",
        "^2",
        ".",
        ",",
        "1234 567",
    ],
)
def test_invalid_strings_are_not_numbers(typed: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        read_number(typed)


@pytest.mark.parametrize(
    ("typed", "ways"), [("1.000", "1 or 1000"), ("2.345", "2.3450 or 2345"), ("12.500", "12.5 or 12500")]
)
def test_an_ambiguous_number_is_refused_with_both_spellings(typed: str, ways: str) -> None:
    with pytest.raises(ValueError, match=f"Write {ways}"):
        read_number(typed)
    for way in ways.split(" or "):
        read_number(way)


def test_integer_powers_are_exact() -> None:
    assert read_number("3^40") == 3**40
    assert read_number("5*3**40") == 5 * 3**40


def test_a_number_can_be_followed_by_its_unit() -> None:
    assert read_number("4 blocks", "blocks") == 4
    assert read_number("1 block", "blocks") == 1
    assert read_number("50%", "%") == 50
    assert read_number("1,000 Blocks", "blocks") == 1000
    assert read_number("4", "blocks") == 4
    with pytest.raises(ValueError, match="not a number"):
        read_number("4 threads", "blocks")
