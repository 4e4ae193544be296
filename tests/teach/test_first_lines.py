"""Printing in an answer does not bury the verdict."""

from __future__ import annotations

import sys

import pytest

import gpulab as gl
from gpulab_course.teach.first_lines import MOST_LINES, first_lines


def test_the_first_lines_are_shown_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with first_lines():
        for n in range(50):
            print("line", n)
    shown = capsys.readouterr().out.splitlines()
    assert shown[:MOST_LINES] == [f"line {n}" for n in range(MOST_LINES)]
    assert shown[MOST_LINES:] == [f"... {50 - MOST_LINES} more lines were printed during the check."]


def test_few_lines_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    with first_lines():
        print("one\ntwo", end="")
    assert capsys.readouterr().out == "one\ntwo"


@pytest.mark.parametrize(
    ("lines", "left_out"), [(20, []), (21, ["... 1 more line was printed during the check."])]
)
def test_what_is_one_too_many_is_counted_however_it_is_written(
    lines: int, left_out: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with first_lines():
        assert sys.stdout.write("a\nb\n") == 4
        sys.stdout.write("".join(f"{n}\n" for n in range(2, 19)))
        for n in range(19, lines):
            print(n)
        sys.stdout.flush()
    assert capsys.readouterr().out.splitlines() == ["a", "b", *map(str, range(2, 20)), *left_out]


def test_it_ends_with_an_error_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="x"), first_lines():
        raise ValueError("x")
    print("after")
    assert capsys.readouterr().out == "after\n"


def test_printf_in_a_checked_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel that prints from every thread, and is right."""
    code = r"""extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        printf("thread %d\n", i);
        if (i < n) y[i] = a * x[i] + y[i];
    }"""
    verdict = gl.check("00-saxpy", code)
    lines = capsys.readouterr().out.splitlines()
    assert verdict, verdict.message
    assert len(lines) == MOST_LINES + 1
    assert lines[-1].endswith("more lines were printed during the check.")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y[i] += 1;", "it takes longer than 3 s of processor time (line 3"),
        ("if (x[i] > 1e30f) break;", "it does not end (line 3"),
    ],
    ids=["stores", "does nothing"],
)
def test_only_what_stores_nothing_new_is_said_not_to_end(body: str, said: str) -> None:
    code = """extern "C" __global__ void saxpy(float a, const volatile float* x, volatile float* y, int n) {
        int i = min(blockIdx.x * blockDim.x + threadIdx.x, n - 1);
        while (true) { BODY }
    }"""
    verdict = gl.check("00-saxpy", code.replace("BODY", body))
    assert not verdict
    assert said in verdict.message
