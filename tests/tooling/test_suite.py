"""Stages of the suite run side by side, and tests that are much alike are tried in a fixed sample."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools import sample, suite


@pytest.mark.parametrize("many", [0, 1, 3, 40])
def test_a_sample_is_a_share_with_one_of_each_group(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sample.VARIABLE, "1")
    sample_ = sample.part(range(many), 10, group=lambda number: number % 3)
    assert sample_ == sample.part(range(many), 10, group=lambda number: number % 3)
    assert {number % 3 for number in sample_} == {number % 3 for number in range(many)}
    assert len(sample_) <= many / 10 + 6
    monkeypatch.delenv(sample.VARIABLE)
    assert sample.part(range(many), 10) == list(range(many))


def test_a_sample_keeps_its_members_when_others_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sample.VARIABLE, "1")
    assert set(sample.part(range(100), 5)) <= set(sample.part(range(200), 5))


def test_the_suite_runs_the_sample_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(sample.ALL, raising=False)
    assert suite.stage_environment("scratch")[sample.VARIABLE] == "1"
    monkeypatch.setenv(sample.ALL, "1")
    assert sample.VARIABLE not in suite.stage_environment("scratch")


# Waits until as many others as are named have begun, too.
MEET = """import pathlib, sys, time
here, *others = [pathlib.Path(name) for name in sys.argv[1:]]
here.touch()
until = time.monotonic() + 60
while not all(other.exists() for other in others):
    if time.monotonic() > until: sys.exit(1)
    time.sleep(0.01)
"""


def test_stages_run_side_by_side_and_all_results_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def meets(*names: str) -> list[str]:
        return [sys.executable, "-c", MEET, *(str(tmp_path / name) for name in names)]

    stages = {
        "unit": [meets("unit", "browser", "lint")],
        "browser": [meets("browser", "unit")],
        "lint": [meets("lint", "unit")],
        # One after the other these would wait for each other in vain.
        "processors": [meets("v2", "v3"), meets("v3", "v2")],
        "types": [[sys.executable, "-c", "print('wrong'); raise SystemExit(1)"]],
    }
    for name, commands in stages.items():
        monkeypatch.setitem(suite.STAGES, name, lambda commands=commands: commands)
    monkeypatch.setattr(suite, "NEEDS", dict.fromkeys(stages, ()))
    monkeypatch.setattr(suite, "cores", lambda: 2)
    results = suite.run_all(list(stages), dict(os.environ))
    assert {result_.name: result_.ok for result_ in results} == dict.fromkeys(stages, True) | {"types": False}
    assert all(result_.processor_s > 0 for result_ in results)
    assert "wrong" in capfd.readouterr().out
