"""Long printed output of an answer is shortened, so the verdict stays visible."""

from __future__ import annotations

import sys

import pytest

import gpulab as gl
from gpulab_course.teach.first_lines import MAX_LINES, limit_printed_lines
from gpulab_course.teach.judge.kernel import bench


def test_an_incomplete_line_stays_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    with limit_printed_lines():
        print("one\ntwo", end="")
    assert capsys.readouterr().out == "one\ntwo"


@pytest.mark.parametrize(
    ("lines", "left_out"),
    [
        (20, []),
        (21, ["... 1 more line was printed during the check."]),
        (50, ["... 30 more lines were printed during the check."]),
    ],
)
def test_the_first_twenty_lines_are_shown_and_the_others_counted(
    lines: int, left_out: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with limit_printed_lines():
        assert sys.stdout.write("a\nb\n") == 4
        sys.stdout.write("".join(f"{n}\n" for n in range(2, 19)))
        for n in range(19, lines):
            print(n)
        sys.stdout.flush()
    assert capsys.readouterr().out.splitlines() == ["a", "b", *map(str, range(2, 20)), *left_out]


def test_an_error_restores_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="x"), limit_printed_lines():
        raise ValueError("x")
    print("after")
    assert capsys.readouterr().out == "after\n"


def test_printf_output_is_shortened_during_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel is correct and prints from every thread."""
    code = r"""extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        printf("thread %d\n", i);
        if (i < n) y[i] = a * x[i] + y[i];
    }"""
    verdict = gl.check("00-saxpy", code)
    lines = capsys.readouterr().out.splitlines()
    assert verdict, verdict.message
    assert len(lines) == MAX_LINES + 1
    assert lines[-1].endswith("more lines were printed during the check.")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("y[i] += 1;", "it takes longer than 0.5 s of processor time (line 3"),
        ("if (x[i] > 1e30f) break;", "it does not end (line 3"),
    ],
    ids=["stores", "does nothing"],
)
def test_an_infinite_kernel_is_reported_as_slow_or_not_ending(
    body: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "WATCHDOG_S", 0.5)
    code = """extern "C" __global__ void saxpy(float a, const volatile float* x, volatile float* y, int n) {
        int i = min(blockIdx.x * blockDim.x + threadIdx.x, n - 1);
        while (true) { BODY }
    }"""
    verdict = gl.check("00-saxpy", code.replace("BODY", body))
    assert not verdict
    assert message in verdict.message
