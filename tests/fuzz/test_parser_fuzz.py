"""Damaged PTX gives a clean error or code that runs within bounds, never a crash or a hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.mutations import damaged
from virtualgpu.compile import nvrtc

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="needs NVRTC")

# GPULAB_FUZZ=all takes more seeds (a minute and a half).
ALL = os.environ.get("GPULAB_FUZZ") == "all"
ROOT = Path(__file__).resolve().parent.parent.parent


# Only what waits for nothing takes longer, on the busiest machine.
HANGS_S = 3600


def work(first: int, count: int, *flags: str) -> dict[str, Any]:
    """What a worker process says of some seeds; it must end by itself."""
    command = [sys.executable, "-m", "tests.fuzz.damage_worker", str(first), str(count), *flags]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=HANGS_S)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-600:]}"
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_damage_is_reproducible_from_its_seed() -> None:
    text = ".version 8.0\n.target sm_80\nadd.s32 %r1, %r2, 3;\n"
    assert damaged(5, text) == damaged(5, text)
    assert len({damaged(seed, text) for seed in range(50)}) > 30


def check(report: dict[str, Any], count: int) -> None:
    assert report["unexpected"] == []
    outcomes = report["outcomes"]
    assert sum(outcomes.values()) == count
    assert outcomes["PtxError"] > count / 4  # the damage is real
    assert outcomes["fine"] > count / 20  # and some of it survives reading


def test_parsing_and_translating_damaged_ptx_fail_cleanly() -> None:
    count = 5000 if ALL else 300
    check(work(10_000, count), count)


@pytest.mark.slow
def test_running_damaged_ptx_stays_within_bounds() -> None:
    count = 600 if ALL else 75
    report = work(100_000, count, "run")
    assert report["unexpected"] == []
    faults = sum(n for name, n in report["outcomes"].items() if name.startswith("fault"))
    assert faults + report["outcomes"]["fine"] > count / 10
