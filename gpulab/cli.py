"""The ``gpulab`` command: ``lab``, ``doctor``, ``bench`` and ``record``."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import gpulab
from virtualgpu.errors import GpulabError

FIRST_NOTEBOOK = "00*.ipynb"

# Developers' commands, whose modules lie beside the package and read their own arguments:
# name -> module with ``main(arguments)``, help.
_OF_A_CHECKOUT = {
    "bench": ("tools.bench.table", "time the virtual GPU and print a table"),
    "record": ("tools.recordings.record", "record a real GPU's answers for those who have none"),
}


class CommandError(GpulabError):
    """A command that cannot do its work; the message says what to change."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the process's exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in _OF_A_CHECKOUT:
            return int(_tool(given[0]).main(given[1:]) or 0)
        parser = _parser()
        options, rest = parser.parse_known_args(given)
        if options.command == "lab":
            return _lab(options.notebooks, rest)
        if rest:
            parser.error(f"unknown argument {rest[0]}")
        return _doctor(as_json=options.json)
    except (GpulabError, OSError) as error:
        print(f"gpulab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpulab", description="Learn how a GPU works, on a real one or on a virtual one."
    )
    parser.add_argument("--version", action="version", version=f"gpulab {gpulab.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    lab = commands.add_parser("lab", help="open the course in JupyterLab; further arguments go to JupyterLab")
    lab.add_argument(
        "--notebooks", type=Path, metavar="FOLDER", help="the course's notebooks, if not found by itself"
    )
    doctor = commands.add_parser("doctor", help="check driver, CUDA, CuPy, NVRTC and Jupyter, with remedies")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    for name, (_, text) in _OF_A_CHECKOUT.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def _tool(command: str) -> Any:
    """Load a developers' command from the checkout this package lies in."""
    root = Path(__file__).resolve().parents[1]
    if not ((root / "pyproject.toml").is_file() and (root / "tools" / "recordings").is_dir()):
        raise CommandError(
            f"`gpulab {command}` is a developers' tool that is not installed with the package: run it in a "
            "checkout of gpulab."
        )
    sys.path.insert(0, str(root))
    return importlib.import_module(_OF_A_CHECKOUT[command][0])


def _doctor(*, as_json: bool) -> int:
    from gpulab.diagnosis import doctor

    diagnosis = doctor()
    print(json.dumps(diagnosis.to_json(), indent=2) if as_json else repr(diagnosis))
    return diagnosis.exit_code


def _lab(folder: Path | None, arguments: Sequence[str]) -> int:
    first = find_first_notebook(folder)
    if importlib.util.find_spec("jupyterlab") is None:
        raise CommandError("JupyterLab is not installed: pip install jupyterlab")
    # The address that JupyterLab prints leads to the first notebook, too: a classroom opens that one.
    front = f"--LabApp.default_url=/lab/tree/{quote(first.name)}"
    # JupyterLab keeps widget state in the learner's own notebooks, so that views outlive the kernel.
    settings = f"--LabApp.app_settings_dir={Path(__file__).parent / 'data' / 'lab_settings'}"
    command = [sys.executable, "-m", "jupyterlab", *_as_root(), settings, front, *arguments, first.name]
    with subprocess.Popen(command, cwd=first.parent) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue  # JupyterLab has had it too and asks whether to stop


def _as_root() -> list[str]:
    # Containers often have no other user, and there JupyterLab would only say that it wants this.
    return ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


def find_first_notebook(folder: Path | None = None) -> Path:
    """Find the course's first notebook: in `folder`, the current directory or this checkout.

    Raises
    ------
    CommandError
        If no folder holds it.
    """
    here = Path.cwd()
    places = [folder] if folder else [here / "notebooks", here, Path(__file__).parents[1] / "notebooks"]
    for place in places:
        found = sorted(place.glob(FIRST_NOTEBOOK))
        if found:
            return found[0].resolve()
    if folder:
        raise CommandError(f"{folder} holds no notebook named {FIRST_NOTEBOOK}; name the course's folder.")
    raise CommandError(
        "The course's notebooks are not here. Run `gpulab lab` in a checkout of gpulab, or name their folder "
        "with --notebooks."
    )


if __name__ == "__main__":
    sys.exit(main())
