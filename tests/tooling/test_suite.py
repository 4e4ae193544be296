"""Stages of the suite run side by side, and files of which nothing has changed are left out of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import suite, turns, unchanged

ROOT = Path(__file__).resolve().parents[2]
FREE, BEYOND = "tests/one/test_free.py", "tests/two/test_beyond.py"
CHECKOUT = {
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = ['--import-mode=importlib']\n",
    "README.md": "Read me.\n",
    "virtualgpu/engine.py": "SPEED = 1\n",
    "gpulab/view.py": "COLOUR = 'green'\n",
    "tools/chromium.py": "PATH = ''\n",
    "tests/conftest.py": "import tools\n",
    "tests/kernels.py": "ATTEMPTS = 4\n",
    "tests/one/helper.py": "VALUE = 1\n",
    "tests/one/data/rows.json": "[1]\n",
    "tests/three/traces.py": "ROWS = 3\n",
    "tests/three/test_three.py": "def test_it(): pass\n",
    FREE: "def test_it(): assert '= 1' in open('tests/one/helper.py').read()\n\ndef test_again(): pass\n",
    BEYOND: "# gpulab, and tests.three.traces\ndef test_it(): pass\n",
    "tests/two/test_skips.py": "import pytest\n\ndef test_it(): pytest.skip('no GPU')\n",
    "tests/two/test_fails.py": "def test_it(): assert False\n",
    "tests/tooling/test_checkout.py": "def test_it(): pass\n",
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CI", unchanged.ALL, "PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    for name, text in CHECKOUT.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ("virtualgpu/engine.py", {FREE, BEYOND}),
        ("gpulab/view.py", {BEYOND}),
        ("README.md", {BEYOND}),
        ("tools/chromium.py", {FREE, BEYOND}),
        ("pyproject.toml", {FREE, BEYOND}),
        ("tests/conftest.py", {FREE, BEYOND}),
        ("tests/kernels.py", {FREE, BEYOND}),
        ("tests/one/helper.py", {FREE}),
        ("tests/one/data/rows.json", {FREE}),
        ("tests/one/new.py", {FREE}),
        ("tests/three/traces.py", {BEYOND}),
        ("tests/three/test_three.py", set()),
        (FREE, {FREE}),
        (BEYOND, {BEYOND}),
    ],
)
def test_a_digest_is_of_all_that_a_file_may_depend_on(
    checkout: Path, changed: str, reached: set[str]
) -> None:
    def digests() -> dict[str, str]:
        return {name: unchanged.Sources(checkout).digest(name) for name in (FREE, BEYOND)}

    before = digests()
    assert before == digests()
    with (checkout / changed).open("a") as file:
        file.write("\n")
    after = digests()
    assert {name for name in after if after[name] != before[name]} == reached


def test_variables_and_arguments_belong_to_it(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = unchanged.Sources(checkout).digest(FREE)
    monkeypatch.setenv("GPULAB_HOME", "/elsewhere")
    assert unchanged.Sources(checkout).digest(FREE) == before
    assert unchanged.Sources(checkout, "--processor=x86-64-v3").digest(FREE) != before
    monkeypatch.setenv("GPULAB_FUZZ", "all")
    assert unchanged.Sources(checkout).digest(FREE) != before


def test_the_turn_belongs_to_what_is_tried_in_turns(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = unchanged.Sources(checkout).digest(FREE)
    monkeypatch.setenv(turns.VARIABLE, "3")
    assert unchanged.Sources(checkout).digest(FREE) == before
    with (checkout / FREE).open("a") as file:
        file.write("from tools import turns\n")
    third = unchanged.Sources(checkout).digest(FREE)
    monkeypatch.setenv(turns.VARIABLE, "4")
    assert unchanged.Sources(checkout).digest(FREE) != third


@pytest.mark.parametrize("many", [0, 1, 3, 4, 11])
def test_everything_has_its_turn(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    each = []
    for now in range(738_000, 738_004):
        monkeypatch.setenv(turns.VARIABLE, str(now))
        each.append(turns.part(range(many), 4))
    assert {one for chosen in each for one in chosen} == set(range(many))
    assert all(chosen for chosen in each) or not many
    assert max(map(len, each)) <= many / 4 + 1
    monkeypatch.delenv(turns.VARIABLE)
    assert turns.part(range(many), 4) == list(range(many))


def test_a_run_of_the_suite_has_one_turn_unless_all_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (turns.VARIABLE, unchanged.ALL):
        monkeypatch.delenv(name, raising=False)
    assert suite.stage_environment("scratch")[turns.VARIABLE] == turns.today()
    monkeypatch.setenv(turns.VARIABLE, "5")
    assert suite.stage_environment("scratch")[turns.VARIABLE] == "5"
    monkeypatch.setenv(unchanged.ALL, "1")
    assert turns.VARIABLE not in suite.stage_environment("scratch")


def ran(checkout: Path, *arguments: str, **variables: str) -> dict[str, int]:
    command = [sys.executable, "-m", "pytest", "-p", "tools.unchanged", "--unchanged=.cache/green.json"]
    done = subprocess.run(
        [*command, "-p", "no:nbval", "-p", "no:cacheprovider", *arguments, "tests"],
        cwd=checkout, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )  # fmt: skip
    return suite.counts(done.stdout.splitlines()[-1])


ALL = {"passed": 5, "failed": 1, "skipped": 1}
LEFT = {"passed": 1, "failed": 1, "skipped": 1}  # what is about the checkout, fails, or is skipped


@pytest.mark.parametrize("spread", [(), ("-n", "2")])
def test_what_has_passed_whole_is_left_out_until_something_changes(
    checkout: Path, spread: tuple[str, ...]
) -> None:
    assert ran(checkout, *spread) == ALL
    noted = json.loads((checkout / ".cache" / "green.json").read_text())
    assert set(noted) == {FREE, BEYOND, "tests/three/test_three.py"}
    assert ran(checkout, *spread) == {**LEFT, "deselected": 4} if not spread else LEFT
    (checkout / "tests/one/helper.py").write_text("VALUE = 2\n")
    broken = ran(checkout, *spread)
    assert (broken["passed"], broken["failed"]) == (2, 2)
    assert ran(checkout, *spread) == broken, "what fails is not noted"


def test_continuous_integration_and_who_asks_for_it_run_all(checkout: Path) -> None:
    ran(checkout)
    assert ran(checkout, CI="true") == ALL
    assert ran(checkout, **{unchanged.ALL: "1"}) == ALL


def test_a_file_of_which_a_part_has_run_is_not_noted(checkout: Path) -> None:
    (checkout / FREE).write_text("def test_it(): pass\n\ndef test_again(): raise KeyboardInterrupt\n")
    ran(checkout)
    noted = json.loads((checkout / ".cache" / "green.json").read_text())
    assert FREE not in noted


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
    assert {each.name: each.ok for each in results} == dict.fromkeys(stages, True) | {"types": False}
    assert all(each.processor_s > 0 for each in results)
    assert "wrong" in capfd.readouterr().out
