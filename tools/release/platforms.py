"""Check that wheels of every dependency exist, for every platform and Python.

``python -m tools.release.platforms`` lets uv resolve the dependencies of the three packages, each extra that
learners install, and the tests' own packages,
for Linux, Windows and macOS on both processors and Pythons 3.11 to 3.14, from wheels alone, and lists what
fails.
It needs a package index, and some minutes; ``--python 3.13 --platform macos --extra cuda13`` tries less.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tools.environment import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# As uv names them; the oldest systems that wheels of the day are made for.
PLATFORMS = {
    "linux": "x86_64-manylinux_2_28",
    "linux-arm64": "aarch64-manylinux_2_28",
    "windows": "x86_64-pc-windows-msvc",
    "macos": "aarch64-apple-darwin",
    "macos-x86": "x86_64-apple-darwin",
}
# CuPy is made for Linux and Windows.
ON_A_GPU = ("linux", "linux-arm64", "windows")
# Nobody makes them any more: Intel Macs have conda, or another computer.
WITHOUT = {"macos-x86": "llvmlite"}
# Dependency groups of the workspace, which are no extras.
GROUPS = {"test"}
EXTRAS = {"": tuple(PLATFORMS), "test": tuple(PLATFORMS), "cuda13": ON_A_GPU, "cuda12": ON_A_GPU}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one dependency resolution: its inputs, the number of packages, and the problem if any."""

    python: str
    platform: str
    extra: str
    packages: int
    problem: str = ""

    @property
    def line(self) -> str:
        """Return the result as a line of text."""
        case_text = f"Python {self.python:4}  {self.platform:11}  {self.extra or '(no extra)':10}"
        return f"{case_text}  {self.problem or f'{self.packages} packages'}"


def make_command(python: str, platform: str, extra: str) -> list[str]:
    """Return the uv command that resolves the dependencies."""
    arguments = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        *(f"{name}/pyproject.toml" for name in PACKAGES),
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--only-binary",
        ":all:",
        "--python-version",
        python,
        "--python-platform",
        PLATFORMS[platform],
    ]
    if extra in GROUPS:
        return [*arguments, "--group", f"pyproject.toml:{extra}"]
    return [*arguments, "--extra", extra] if extra else arguments


def resolve_platform(python: str, platform: str, extra: str) -> Outcome:
    """Resolve the dependencies for one platform and one Python version."""
    process = subprocess.run(make_command(python, platform, extra), cwd=ROOT, capture_output=True, text=True)
    return read(python, platform, extra, process.returncode, process.stdout, process.stderr)


def read(python: str, platform: str, extra: str, status: int, out: str, err: str) -> Outcome:
    """Convert the output of uv to an `Outcome`."""
    if status == 0:
        return Outcome(python, platform, extra, sum("==" in line for line in out.splitlines()))
    message = " ".join(line.strip(" ╰─▶×│") for line in err.splitlines())
    return Outcome(python, platform, extra, 0, f"fails: {message[:400] or f'uv gave {status}'}")


def is_surprising(outcome: Outcome) -> bool:
    """Return whether a resolution failed for another reason than the expected one."""
    expected = WITHOUT.get(outcome.platform)
    return bool(outcome.problem) and not (expected and f"{expected}>=" in outcome.problem)


def list_combinations(
    pythons: Sequence[str], platforms: Sequence[str], extras: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield all combinations to resolve."""
    for extra_name, python, platform in product(extras, pythons, platforms):
        if platform in EXTRAS[extra_name]:
            yield python, platform, extra_name


def main(arguments: Sequence[str] | None = None) -> int:
    """Resolve each combination, print the results, and return 1 if one of them failed unexpectedly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", choices=PYTHONS)
    parser.add_argument("--platform", action="append", choices=list(PLATFORMS))
    parser.add_argument("--extra", action="append", choices=list(EXTRAS))
    options = parser.parse_args(arguments)
    pythons = options.python or PYTHONS
    platforms_ = options.platform or list(PLATFORMS)
    outcomes = []
    for combination in list_combinations(pythons, platforms_, options.extra or list(EXTRAS)):
        outcomes.append(resolve_platform(*combination))
        print(outcomes[-1].line, flush=True)
    failed_outcomes = [result for result in outcomes if result.problem]
    print(f"{len(outcomes) - len(failed_outcomes)} of {len(outcomes)} can be had from wheels alone.")
    return 1 if any(is_surprising(result) for result in failed_outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
