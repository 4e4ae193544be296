"""Try the oldest packages that are allowed, and the wheels where there is no checkout.

``python -m tools.lowest`` makes the environment ``.venv-lowest`` with uv (``--resolution lowest-direct``),
installs the wheels of the three packages into it, and from an empty folder runs ``gpulab doctor``, makes a
learner's copies and runs the first. Tests of the checkout then run in the same environment (the stage
``lowest`` of `tools.suite`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.environment import PACKAGES, find_python

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-lowest"
PYTHON = find_python(VENV)


def call(*command: str | Path, folder: Path = ROOT, home: Path = ROOT) -> None:
    """Run a command without this checkout on the path, with the learner's file in `home`."""
    arguments = [str(argument) for argument in command]
    print("$", " ".join(arguments).replace(str(ROOT), "."), flush=True)
    environment = {**os.environ, "GPULAB_HOME": str(home), "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
    environment.pop("PYTHONPATH", None)
    if subprocess.run(arguments, cwd=folder, env=environment, stdin=subprocess.DEVNULL).returncode != 0:
        raise SystemExit(f"This failed with the oldest packages: {' '.join(arguments)}")


def main() -> None:
    """Create an environment with the oldest packages, and test the wheels in it."""
    uv = (sys.executable, "-m", "uv")
    install_command = (*uv, "pip", "install", "--quiet", "--python", PYTHON)
    call(*uv, "venv", "--quiet", "--clear", "--python", sys.executable, VENV)
    requirements = [argument for name in PACKAGES for argument in ("-r", f"{name}/pyproject.toml")]
    call(*install_command, "--resolution", "lowest-direct", *requirements, "--group", "pyproject.toml:test")
    with tempfile.TemporaryDirectory(prefix="gpulab-") as scratch_folder:
        for name in PACKAGES:
            command = ("hatchling", "build", "-t", "wheel", "-d", scratch_folder)
            call(sys.executable, "-m", *command, folder=ROOT / name)
        wheels = sorted(Path(scratch_folder).glob("*.whl"))
        call(*uv, "tool", "run", "--quiet", "twine", "check", "--strict", *wheels)
        call(*install_command, "--no-deps", "--reinstall", *wheels)
        learner_folder = Path(scratch_folder) / "a learner's folder"
        learner_folder.mkdir()
        call(PYTHON, "-m", "gpulab", "doctor", "--details", folder=learner_folder)
        call(PYTHON, "-m", "gpulab", "copy", folder=learner_folder)
        course_folder = learner_folder / "gpulab-course"
        first_notebook = min(path.name for path in course_folder.glob("*.ipynb"))
        nbconvert_arguments = ("nbconvert", "--execute", "--to", "notebook", "--inplace", first_notebook)
        call(PYTHON, "-m", *nbconvert_arguments, folder=course_folder, home=learner_folder)


if __name__ == "__main__":
    main()
