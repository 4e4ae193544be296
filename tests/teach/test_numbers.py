"""Numbers as learners type them, on keyboards of several countries."""

from __future__ import annotations

import pytest

from gpulab_course.teach.predictions.numbers import read_number


@pytest.mark.parametrize(
    ("typed", "number"),
    [
        ("12", 12),
        ("-3", -3),
        ("\u22123", -3),
        ("+4", 4),
        ("2.5", 2.5),
        (".5", 0.5),
        # A decimal comma, but for one before exactly three digits.
        ("3,9", 3.9),
        ("12,50", 12.5),
        ("3,14159", 3.14159),
        ("0,125", 0.125),
        ("1000,5", 1000.5),
        ("1,000", 1000),
        ("1,234,567", 1_234_567),
        ("1.234.567", 1_234_567),
        ("1,234.5", 1234.5),
        ("1.234,5", 1234.5),
        ("0.125", 0.125),
        # Groups set apart by spaces, apostrophes and underscores.
        ("1 000", 1000),
        ("1\u202f000\u202f000", 1_000_000),
        ("1'000", 1000),
        ("1_000", 1000),
        ("1 234,5", 1234.5),
        # Fractions and powers.
        ("1/2", 0.5),
        ("3 / 4", 0.75),
        ("1,5/3", 0.5),
        ("1e6", 1_000_000),
        ("1,5e3", 1500),
        ("1E-3", 0.001),
        ("2^20", 1 << 20),
        ("2**10", 1024),
        ("3*10^8", 300_000_000),
        ("10^-3", 0.001),
        ("~4", 4),
        ("\u2248 4", 4),
        (" 4 ", 4),
        ("-1/2", -0.5),
        ("-2^2", -4),
        ("+.5", 0.5),
        ("1/-2", None),
        ("2,5^2", 6.25),
        ("3*10**8", 300_000_000),
        ("2\u00d710^3", 2000),
        ("0,500", 0.5),
        ("1.2340", 1.234),
        ("12,3456", 12.3456),
        ("2^-1", 0.5),
        ("1e+2", 100),
        ("1,000.5", 1000.5),
        ("1.000,50", 1000.5),
        ("999,999", 999_999),
        ("2^0", 1),
        ("1.5e3", 1500),
    ],
)
def test_what_is_read(typed: str, number: float | None) -> None:
    if number is None:
        with pytest.raises(ValueError, match="not a number"):
            read_number(typed)
        return
    assert read_number(typed) == pytest.approx(number, rel=1e-12)
    assert isinstance(read_number(typed), int) == (number == int(number))


@pytest.mark.parametrize(
    "typed",
    [
        "",
        "many",
        "1 2",
        "4k",
        "--3",
        "inf",
        "nan",
        "1e999",
        "9^999",
        "2^9999",
        "1/0",
        "1,23,456",
        "1,2.3,4",
        "5%",
        "0x10",
        "1/2/3",
        "1e1000",
        "2^1000e",
        "1e",
        "e5",
        "1.2.3",
        "1,000.",
        "1,0000.5",
        "2^1.5",
        "^2",
        "10^1000",
        ".",
        ",",
        "1..5",
        "1234 567",
        "12 34",
    ],
)
def test_what_is_no_number(typed: str) -> None:
    with pytest.raises(ValueError, match="is not a number") as error:
        read_number(typed)
    assert (
        str(error.value) == f"{typed!r} is not a number; this prediction takes one, such as 12, 0.5 or 1/2."
    )


@pytest.mark.parametrize(
    ("typed", "ways"), [("1.000", "1 or 1000"), ("2.345", "2.3450 or 2345"), ("12.500", "12.5 or 12500")]
)
def test_what_could_be_two_numbers_is_asked_about(typed: str, ways: str) -> None:
    with pytest.raises(ValueError, match=f"Write {ways}"):
        read_number(typed)
    for way in ways.split(" or "):
        read_number(way)


def test_whole_powers_are_exact() -> None:
    assert read_number("3^40") == 3**40
    assert read_number("5*3**40") == 5 * 3**40


def test_the_question_says_what_it_would_mean() -> None:
    with pytest.raises(
        ValueError, match=r"^12\.500 means 12,500 in some countries\. Write 12\.5 or 12500\.$"
    ):
        read_number("12.500")


def test_the_unit_may_follow() -> None:
    assert read_number("4 blocks", "blocks") == 4
    assert read_number("1 block", "blocks") == 1
    assert read_number("50%", "%") == 50
    assert read_number("1,000 Blocks", "blocks") == 1000
    assert read_number("4", "blocks") == 4
    with pytest.raises(ValueError, match="not a number"):
        read_number("4 threads", "blocks")
