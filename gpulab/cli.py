"""The ``gpulab`` command: ``lab``, ``copy``, ``check``, ``report``, ``doctor`` and others."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import io
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
    "bench --gpu": ("tools.bench.gpu", "time the teaching kernels beside CUDA's libraries, on a GPU"),
    "record": ("tools.recordings.record", "record a real GPU's answers for those who have none"),
}
# For graders and instructors, as their modules read the arguments.
_OF_A_CLASS = {
    "check": ("gpulab_course.classroom.check", "judge answers in files, without Jupyter"),
    "golf": ("gpulab_course.classroom.golf", "a file of best scores, entered with answers that pass"),
    "instructor": ("gpulab_course.classroom.instructor", "a page for whoever teaches a notebook"),
    "report": ("gpulab_course.classroom.report", "a class's progress files in one table"),
}


class CommandError(GpulabError):
    """A command that cannot do its work; the message says what to change."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the process's exit status."""
    _write_all_letters()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and given[0] in _OF_A_CLASS:
            return int(importlib.import_module(_OF_A_CLASS[given[0]][0]).main(given[1:]))
        if given and given[0] in _OF_A_CHECKOUT:
            if given[0] == "bench" and "--gpu" in given:
                given = ["bench --gpu", *(word for word in given[1:] if word != "--gpu")]
            return int(_tool(given[0]).main(given[1:]) or 0)
        parser = _parser()
        options, rest = parser.parse_known_args(given)
        if options.command == "lab":
            return _lab(options.notebooks, options.folder, rest, hub=options.hub)
        if rest:
            parser.error(f"unknown argument {rest[0]}")
        if options.command == "doctor":
            return _doctor(as_json=options.json, details=options.details)
        from gpulab_course.content import copies

        folder = _folder(options.folder)
        _say(copies.reset(folder, options.names) if options.command == "reset" else copies.update(folder))
        return 0
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
    own = argparse.ArgumentParser(add_help=False)
    own.add_argument("--folder", type=Path, metavar="FOLDER", help="where your copies of the notebooks are")
    lab = commands.add_parser(
        "lab",
        parents=[own],
        help="open your copies of the notebooks in JupyterLab; further arguments go to JupyterLab",
    )
    lab.add_argument(
        "--notebooks", type=Path, metavar="FOLDER", help="open the notebooks of this folder and copy nothing"
    )
    lab.add_argument(
        "--hub", action="store_true", help="serve one learner of a JupyterHub, whose spawner calls this"
    )
    commands.add_parser("copy", parents=[own], help="make or renew your copies as `lab` does, open nothing")
    reset = commands.add_parser("reset", parents=[own], help="begin notebooks anew; the old ones are kept")
    reset.add_argument("names", nargs="+", metavar="NN", help="how their names start, such as 02")
    doctor = commands.add_parser("doctor", help="check driver, CUDA, CuPy, NVRTC and Jupyter, with remedies")
    doctor.add_argument("--details", action="store_true", help="list all that was looked at")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    for name, (_, text) in (_OF_A_CLASS | _OF_A_CHECKOUT).items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def _write_all_letters() -> None:
    """Let output hold any name: UTF-8 in a pipe or file, escapes for what a chosen encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            free = "PYTHONIOENCODING" not in os.environ and not stream.isatty()
            stream.reconfigure(encoding="utf-8" if free else None, errors="backslashreplace")


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


def _doctor(*, as_json: bool, details: bool) -> int:
    from gpulab.diagnosis import doctor

    diagnosis = doctor()
    told = diagnosis.describe() if details else repr(diagnosis)
    print(json.dumps(diagnosis.to_json(), indent=2) if as_json else told)
    return diagnosis.exit_code


def _folder(given: Path | None) -> Path:
    from gpulab_course.content import copies

    return given.expanduser().absolute() if given else copies.folder_here()


def _say(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        print(f"gpulab: {sentence}", file=sys.stderr)


def _lab(as_it_is: Path | None, folder: Path | None, arguments: Sequence[str], *, hub: bool) -> int:
    if hub and os.name != "nt":
        # On a computer that learners share, only a learner may read their own notebooks and histories.
        os.umask(0o077)
    if as_it_is is None:
        from gpulab_course.content import copies

        as_it_is = _folder(folder)
        _say(copies.update(as_it_is))
        if hub and os.name != "nt":
            for own in (as_it_is, Path.home() / ".ipython"):
                if own.is_dir():
                    own.chmod(0o700)
    first = find_first_notebook(as_it_is)
    if importlib.util.find_spec("jupyterlab") is None:
        raise CommandError("JupyterLab is not installed: pip install jupyterlab")
    # The address that JupyterLab prints leads to the first notebook, too.
    front = f"--{'ServerApp' if hub else 'LabApp'}.default_url=/lab/tree/{quote(first.name)}"
    # JupyterLab keeps widget state in the learner's own notebooks, so that views outlive the kernel.
    data = Path(__file__).parent / "data"
    settings = f"--LabApp.app_settings_dir={data / 'lab_settings'}"
    # In a checkout and in an environment that others made CUDA C++ is in colour, too.
    colours = f"--LabApp.extra_labextensions_path={data / 'labextensions'}"
    options = [*_as_root(), settings, colours, front, *arguments]
    if hub:
        return _become([sys.executable, "-m", "jupyterhub.singleuser", *options], first.parent)
    return _become([sys.executable, "-m", "jupyterlab", *options, first.name], first.parent)


def _become(command: Sequence[str], folder: Path) -> int:
    """Run a server in place of this process, so that whatever ends this one ends no less than the server."""
    sys.stdout.flush()
    if os.name != "nt":
        os.chdir(folder)
        os.execv(command[0], list(command))
    with subprocess.Popen(command, cwd=folder) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue  # JupyterLab has had it too and asks whether to stop


def _as_root() -> list[str]:
    # Containers often have no other user, and there JupyterLab would only say that it wants this.
    return ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


def find_first_notebook(folder: Path) -> Path:
    """Find the course's first notebook in `folder`.

    Raises
    ------
    CommandError
        If there is none.
    """
    found = sorted(folder.glob(FIRST_NOTEBOOK))
    if not found:
        raise CommandError(f"{folder} holds no notebook named {FIRST_NOTEBOOK}; name the course's folder.")
    return found[0].resolve()


if __name__ == "__main__":
    sys.exit(main())
