"""``gpulab bench --check`` fails only if a measurement has become slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.bench import speeds, table


def thrice() -> None:
    for _ in range(3):
        speeds.run_reference_loop()


def test_triple_work_is_detected_as_slow_on_a_busy_machine() -> None:
    limits = {"figure": 1.6}
    assert not speeds.judge_work("figure", speeds.run_reference_loop, limits).slow
    assert speeds.judge_work("figure", thrice, limits).slow


@pytest.mark.parametrize(("work", "status"), [(speeds.run_reference_loop, 0), (thrice, 1)])
def test_a_slow_measurement_fails_the_command_and_is_named(
    work: speeds.Work, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def works(folder: Path) -> Iterator[tuple[str, speeds.Work]]:
        yield "import gpulab", work

    monkeypatch.setattr(speeds, "make_works", works)
    monkeypatch.setitem(speeds.LIMITS, "import gpulab", 1.6)
    assert table.main(["--check"]) == status
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "import gpulab" in line]
    assert ("slow" in line) is bool(status)
