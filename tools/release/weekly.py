"""What rots by itself, for a weekly job: ``python -m tools.release.weekly [STEP ...]``.

newest
    An environment of its own (``.venv-newest``) with the newest version of every dependency.
ptx
    The newest NVRTC compiles every kernel of the course, and the parser reads its PTX.
notebooks
    All notebooks run with those versions, on each of the devices.
links
    Every address in notebooks and documents answers.
platforms
    Everything can be had as wheels (`tools.release.platforms`).

All steps run even if one fails; the exit status is 1 then.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tools.environment import find_python
from tools.release import platforms

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-newest"
DEVICES = ("virtual:T4", "virtual:A100", "virtual:RTX 4090", "virtual:H100")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md")
_ADDRESS = re.compile(r"https?://[^\s<>\"'`\\\])}|]+[^\s<>\"'`\\\])}|.,;:!?]")
# Names that documentation reserves for examples, and this computer itself.
_INVALID_ADDRESSES = re.compile(
    r"^https?://(localhost|127\.|[\w.-]*example\.|[\w.-]+\.(example|test|invalid)\b|this-computer)"
)
_PARSE_PROGRAM = """
from gpulab_course import folders
from virtualgpu.compile import nvrtc
from virtualgpu.compile.ptx import parser
kernels = folders.kernels()
failed = []
for name, code in kernels.items():
    try:
        parser.parse(nvrtc.compile_ptx(code, target=nvrtc.supported_targets()[-1]).ptx)
    except Exception as error:
        failed.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
print("NVRTC", nvrtc.read_version(), "target", nvrtc.supported_targets()[-1], "kernels", len(kernels))
print("\\n".join(failed))
raise SystemExit(bool(failed))
"""


def call(*command: str | Path, device: str = "") -> bool:
    """Run a command in the checkout, and return whether it succeeded."""
    arguments = [str(argument) for argument in command]
    print(
        "$",
        " ".join(arguments).replace(str(ROOT), ".").partition("\n")[0],
        f"(on {device})" if device else "",
        flush=True,
    )
    environment = os.environ | ({"GPULAB_DEVICE": device} if device else {})
    return subprocess.run(arguments, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL).returncode == 0


def newest() -> bool:
    """Create an environment with the newest versions of all packages, and run ``gpulab doctor`` in it."""
    uv = (sys.executable, "-m", "uv")
    install_command = (
        *uv,
        "pip",
        "install",
        "--quiet",
        "--upgrade",
        "--python",
        find_python(VENV),
        "-e",
        ".[test]",
    )
    is_created = call(*uv, "venv", "--quiet", "--clear", "--python", sys.executable, VENV) and call(
        *install_command
    )
    return is_created and call(find_python(VENV), "-m", "gpulab", "doctor", "--details")


def ptx() -> bool:
    """Compile the course's kernels with the newest NVRTC, and parse the PTX."""
    return call(_find_python(), "-c", _PARSE_PROGRAM)


def notebooks() -> bool:
    """Run all notebooks on each device."""
    paths = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    options = ("--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=240", "-p", "tests.kernels")
    command: list[str | Path] = [
        _find_python(),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *options,
        *map(str, paths),
    ]
    failed_devices = [device for device in DEVICES if not call(*command, device=device)]
    return not failed_devices


def links() -> bool:
    """Request every web address once, and a second time if there was no answer."""
    urls = list_addresses(_read_texts())
    failures = {address: answer for address in urls if (answer := _find_failure_reason(address))}
    print(f"{len(urls) - len(failures)} of {len(urls)} addresses answer.")
    for address, answer in failures.items():
        print(f"  {answer}: {address}")
    return not failures


def list_addresses(texts: Iterable[str]) -> list[str]:
    """Return each web address in some texts once, except those that are invalid on purpose."""
    urls = {address.partition("#")[0] for text in texts for address in _ADDRESS.findall(text)}
    return sorted(address for address in urls if not _INVALID_ADDRESSES.match(address))


def _read_texts() -> Iterable[str]:
    for pattern in DOCUMENTS:
        for path in sorted(ROOT.glob(pattern)):
            yield path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        yield from ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def _find_failure_reason(address: str) -> str:
    """Why an address does not answer; empty if it does, if only not to programs."""
    message = ""
    for wait_s in (0, 5):
        time.sleep(wait_s)
        request = urllib.request.Request(address, headers={"User-Agent": "Mozilla/5.0 (gpulab link check)"})
        try:
            with urllib.request.urlopen(request, timeout=30):
                return ""
        except urllib.error.HTTPError as error:
            if error.code in (401, 403, 405, 429):
                return ""
            message = str(error.code)
        except (OSError, ValueError) as error:
            message = f"{type(error).__name__}: {error}"
    return message


def _find_python() -> Path:
    python = find_python(VENV)
    return python if python.is_file() else Path(sys.executable)


STEPS: dict[str, Callable[[], bool]] = {
    "newest": newest,
    "ptx": ptx,
    "notebooks": notebooks,
    "links": links,
    "platforms": lambda: platforms.main([]) == 0,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps and sum up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of: {', '.join(STEPS)}; all by default")
    step_names = parser.parse_args(arguments).steps or list(STEPS)
    if unknown_steps := sorted(set(step_names) - set(STEPS)):
        parser.error(f"there is no step {unknown_steps[0]}; steps: {', '.join(STEPS)}")
    outcomes = {name: STEPS[name]() for name in step_names}
    for name, is_passed in outcomes.items():
        print(f"{'passed' if is_passed else 'FAILED'}  {name}")
    return 0 if all(outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
