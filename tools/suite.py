"""Run the test suite in stages, all of them even if one fails, and sum up.

``python -m tools.suite lint types unit notebooks browser`` runs those stages with the Python that runs this
file. Each stage's time and pytest's closing line are repeated at the end; the exit status is 1 if any
stage failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools import lowest

ROOT = Path(__file__).resolve().parent.parent
PYTEST_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed|deselected)")
NO_TESTS_COLLECTED = 5


@dataclass
class Result:
    """How one stage ended."""

    name: str
    ok: bool
    seconds: float
    closing: str


def tee(command: list[str], environment: dict[str, str]) -> tuple[int, list[str]]:
    """Run a command with its output shown as it comes; return its status and its lines."""
    print(f"\n$ {' '.join(command)}".replace(sys.executable, "python"), flush=True)
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return process.returncode, lines


def counts(line: str) -> dict[str, int]:
    """Read pytest's closing line, such as ``3 passed, 1 skipped in 0.5s``."""
    return {name.rstrip("s") if name == "errors" else name: int(n) for n, name in PYTEST_COUNT.findall(line)}


def pytest(*arguments: str) -> list[str]:
    """Return a pytest command line."""
    return [sys.executable, "-m", "pytest", *arguments]


def notebooks() -> list[str]:
    """Return the course's notebooks, in order."""
    return [str(path.relative_to(ROOT)) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]


def workers(spread: str = "loadfile") -> list[str]:
    """Spread tests over the cores. One process on a GPU: side by side they would measure each other.

    Cells of a notebook stay together; of the tests an idle worker takes over what another has left.
    """
    on_gpu = os.environ.get("GPULAB_DEVICE", "").startswith("cuda")
    cores = min(os.cpu_count() or 1, 8)
    if on_gpu or cores == 1 or importlib.util.find_spec("xdist") is None:
        return []
    return ["-n", str(cores), "--dist", spread]


def lint() -> list[list[str]]:
    ruff = [sys.executable, "-m", "ruff"]
    places = [
        name for name in ("gpulab", "virtualgpu", "tests", "notebooks", "tools") if (ROOT / name).exists()
    ]
    return [[*ruff, "check", *places], [*ruff, "format", "--check", *places]]


def types() -> list[list[str]]:
    return [[sys.executable, "-m", "mypy"]]


def unit() -> list[list[str]]:
    return [pytest(*workers("worksteal"), "-m", "not browser", "--without-gpu", "tests")]


def fast() -> list[list[str]]:
    return [pytest(*workers("worksteal"), "-m", "not browser and not slow", "--without-gpu", "tests")]


def notebook_cells() -> list[list[str]]:
    # Lax: a cell must run; its output is compared only where the cell asks for it (NBVAL_CHECK_OUTPUT).
    options = ("--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=240", "-p", "no:cacheprovider")
    return [pytest(*workers(), "-p", "tests.kernels", *options, *notebooks())] if notebooks() else []


def browser() -> list[list[str]]:
    return [pytest("-m", "browser", "tests")]


def fake_gpu() -> list[list[str]]:
    """The code for real GPUs, with a virtual GPU in the place of one."""
    plugin = ("-p", "tests.real.fake_gpu", "--fake-gpu", "-p", "no:cacheprovider")
    gpu_tests = [f"tests/gpu/test_{name}.py" for name in ("device", "judge_gpu", "public", "traces")]
    return [pytest(*workers(), *plugin, "-m", "gpu", "tests/real", "tests/session", *gpu_tests)]


def gpu() -> list[list[str]]:
    return [pytest("-m", "gpu", "tests")]


def oldest() -> list[list[str]]:
    """The oldest packages allowed: the wheel in an empty folder, then the tests that lean on others most."""
    tests = ["session", "views", "ptx", "teach/test_widgets.py", "teach/test_store.py"]
    chosen = ("-m", "not browser and not slow", "--without-gpu", *(f"tests/{name}" for name in tests))
    # Older packages may be slower; the order of streams leans on none of them.
    chosen = ("-k", "not (processor_time or check_streams or stream_orders or graph_capture)", *chosen)
    run_tests = pytest(*workers("worksteal"), "-p", "no:cacheprovider", *chosen)
    return [[sys.executable, "-m", "tools.lowest"], [str(lowest.PYTHON), *run_tests[1:]]]


# What a notebook's kernel imports.
COURSE = ("anywidget", "filelock", "ipykernel", "llvmlite", "matplotlib", "numpy", "platformdirs")
NEEDS = {
    "lint": ("ruff",),
    "types": ("mypy",),
    "unit": ("pytest",),
    "fast": ("pytest",),
    "notebooks": ("pytest", "nbval", *COURSE),
    "browser": ("pytest",),
    "fake-gpu": ("pytest",),
    "gpu": ("pytest",),
    "lowest": ("uv", "hatchling", "xdist"),
}
STAGES: dict[str, Callable[[], list[list[str]]]] = {
    "lint": lint,
    "types": types,
    "unit": unit,
    "fast": fast,
    "notebooks": notebook_cells,
    "browser": browser,
    "fake-gpu": fake_gpu,
    "gpu": gpu,
    "lowest": oldest,
}


def stage_environment(scratch: str) -> dict[str, str]:
    """Keep the learner's own progress, predictions and device choice out of the tests."""
    environment = dict(os.environ)
    environment["GPULAB_HOME"] = str(Path(scratch) / "gpulab")
    environment["JUPYTER_CONFIG_DIR"] = str(Path(scratch) / "jupyter")
    environment["IPYTHONDIR"] = str(Path(scratch) / "ipython")
    environment["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    # A notebook's kernel finds this checkout, whatever is installed.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return environment


def kernel_obstacle(environment: dict[str, str]) -> str:
    """Why nothing can run, said once instead of by each cell and test; empty if it can."""
    command = [sys.executable, "-c", "from gpulab import cp; cp.arange(3)"]
    tried = subprocess.run(command, cwd=ROOT / "notebooks", env=environment, capture_output=True, text=True)
    if tried.returncode == 0:
        return ""
    last = (tried.stderr.strip().splitlines() or [f"exit status {tried.returncode}"])[-1]
    return f"Nothing can run: {sys.executable} cannot use gpulab in a notebook ({last})"


def run(name: str, environment: dict[str, str]) -> Result:
    """Run one stage."""
    print(f"\n=== {name} " + "=" * (90 - len(name)), flush=True)
    start = time.perf_counter()
    missing = [package for package in NEEDS[name] if importlib.util.find_spec(package) is None]
    if missing:
        return Result(name, False, 0.0, f"pip install {' '.join(missing)}")
    if name in ("gpu", "notebooks") and (reason := kernel_obstacle(environment)):
        print(reason, flush=True)
        return Result(name, False, 0.0, reason)
    ok, closing = True, ""
    for command in STAGES[name]():
        status, lines = tee(command, environment)
        if "pytest" in command:
            closing = next((line.strip("= ") for line in reversed(lines) if counts(line)), "no test ran")
            ok &= status in (0, NO_TESTS_COLLECTED)
        else:
            ok &= status == 0
    return Result(name, ok, time.perf_counter() - start, closing)


def summarise(results: list[Result]) -> str:
    """Return the table of stages and one line with the totals."""
    lines = ["", "=== summary " + "=" * 83]
    total = {"passed": 0, "failed": 0, "skipped": 0}
    for result in results:
        state = "ok" if result.ok else "FAILED"
        lines.append(f"{result.name:10} {state:7} {result.seconds:6.0f} s  {result.closing}")
        found = counts(result.closing)
        total["passed"] += found.get("passed", 0)
        total["failed"] += found.get("failed", 0) + found.get("error", 0)
        total["skipped"] += found.get("skipped", 0)
    lines.append(f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    return "\n".join(lines)


def main() -> None:
    """Run the stages named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="+", choices=list(STAGES))
    stages = parser.parse_args().stages
    with tempfile.TemporaryDirectory(prefix="gpulab-") as scratch:
        environment = stage_environment(scratch)
        results = [run(name, environment) for name in stages]
    print(summarise(results), flush=True)
    raise SystemExit(0 if all(result.ok for result in results) else 1)


if __name__ == "__main__":
    main()
