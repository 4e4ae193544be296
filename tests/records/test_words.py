"""How numbers are written, in every view, table and sentence."""

from __future__ import annotations

import functools
import math
import operator

import pytest

from gpulab.words import count, duration, fill_template, listing, noun, number, percent, shape, size


def test_numbers_sizes_durations_and_shapes_are_formatted() -> None:
    numbers = map(number, (0, 5, 12.345, 123.4, 65536, 0.00123, 0.0000012, -0.5, -1e6))
    assert " ".join(numbers) == "0 5 12.3 123 65,536 0.00123 0.0000012 -0.5 -1,000,000"
    assert ", ".join(map(size, (512, 49152, 60 << 20, 79.2 * 2**30))) == "512 B, 48 KiB, 60 MiB, 79.2 GiB"
    assert ", ".join(map(duration, (640, 12_340, 4_100_000, 2e9))) == "640 ns, 12.3 µs, 4.1 ms, 2 s"
    shapes = map(shape, ((256, 1, 1), (16, 16, 1), (1, 1, 1), (2, 1, 3)))
    assert ", ".join(shapes) == "256, 16 × 16, 1, 2 × 1 × 3"


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0, "0 %"),
        (0.5, "50 %"),
        (0.0004, "0.04 %"),
        (1e-9, "0.0000001 %"),
        (1, "100 %"),
        (2.5, "250 %"),
        (-0.3, "-30 %"),
        (0.994, "99 %"),
        (0.995, "99.5 %"),
        (0.996, "99.6 %"),
        (0.99996, "99.9 %"),
        (1 - 1e-9, "99.9 %"),
    ],
)
def test_percent_shows_0_and_100_only_for_exact_values(fraction: float, text: str) -> None:
    assert percent(fraction) == text


def test_percent_ignores_rounding_errors_of_a_sum() -> None:
    total = functools.reduce(operator.add, [0.1] * 10)  # `sum` corrects itself from Python 3.12 on
    assert total < 1
    assert percent(total) == "100 %"
    assert percent(math.nextafter(1, 0)) == "100 %"


def test_only_one_item_is_singular() -> None:
    assert [count(n, "wait") for n in (0, 1, 2, 1_000)] == ["0 waits", "1 wait", "2 waits", "1,000 waits"]
    assert [count(n, "copy", "copies") for n in (1, 63)] == ["1 copy", "63 copies"]
    assert [noun(n, "is", "are") for n in (0, 1, 2)] == ["are", "is", "are"]


def test_lists_end_with_and() -> None:
    assert [listing(words) for words in ((), ("a",), ["a", "b"], ("a", "b", "c"))] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]


def test_templates_are_filled_with_words_and_numbers() -> None:
    text = "{many} <many sector|sectors> of {whose}<many |, each {size} bytes>"
    assert fill_template(text, {"many": 1, "whose": "{many}", "size": 32}) == "1 sector of {many}"
    assert (
        fill_template(text, {"many": 1024, "whose": "L2", "size": 32}) == "1,024 sectors of L2, each 32 bytes"
    )
    with pytest.raises(KeyError):
        fill_template(text, {"many": 1})
