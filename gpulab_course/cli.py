"""The course's commands ``gpulab lab``, ``gpulab copy`` and ``gpulab reset``."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from gpulab.cli import CommandError
from gpulab_course.content.copies import find_default_folder, reset_copies, update_copies
from gpulab_course.content.courses import find_course, read_courses

FIRST_NOTEBOOK = "00*.ipynb"


def lab(arguments: Sequence[str]) -> int:
    """Open your copies of the notebooks in JupyterLab, and pass all other arguments to JupyterLab."""
    parser = _make_parser("lab", lab.__doc__)
    parser.add_argument(
        "--notebooks", type=Path, metavar="FOLDER", help="open the notebooks of this folder and copy nothing"
    )
    parser.add_argument(
        "--hub",
        action="store_true",
        help="run as the server of one JupyterHub user; the hub's spawner runs this command",
    )
    _add_course(parser)
    options, jupyter_arguments = parser.parse_known_args(arguments)
    is_hub = options.hub and os.name != "nt"
    if is_hub:
        # On a computer that learners share, only a learner may read their own notebooks and histories.
        os.umask(0o077)
    folder = options.notebooks
    course_folder = ""
    if folder is None:
        folder = _find_copies_folder(options.folder)
        course_folder = _update_copies(folder, options)
        if is_hub:
            for private_folder in (folder, Path.home() / ".ipython"):
                if private_folder.is_dir():
                    private_folder.chmod(0o700)
    return _open_lab(
        find_first_notebook(folder / course_folder), folder, jupyter_arguments, is_hub=options.hub
    )


def copy(arguments: Sequence[str]) -> int:
    """Create or update your copies of the notebooks, without opening JupyterLab."""
    parser = _make_parser("copy", copy.__doc__)
    _add_course(parser)
    options = parser.parse_args(arguments)
    _update_copies(_find_copies_folder(options.folder), options)
    return 0


def reset(arguments: Sequence[str]) -> int:
    """Replace your copies of notebooks with new ones, and move the old copies to another folder."""
    parser = _make_parser("reset", reset.__doc__)
    parser.add_argument(
        "names", nargs="+", metavar="NN", help="the start of the notebooks' names, such as 02"
    )
    options = parser.parse_args(arguments)
    _print_sentences(reset_copies(_find_copies_folder(options.folder), options.names))
    return 0


def _make_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"gpulab {name}", description=description)
    parser.add_argument(
        "--folder", type=Path, metavar="FOLDER", help="the folder with your copies of the notebooks"
    )
    return parser


def _add_course(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(read_courses())
    parser.add_argument("--course", metavar="NAME", help=f"copy only the cells of one of the courses {names}")
    parser.add_argument(
        "--without-solutions", action="store_true", help="with --course: leave out the solutions of exercises"
    )


def _update_copies(folder: Path, options: argparse.Namespace) -> str:
    """Update the copies of the notebooks, and return the folder in which they are.

    The copies for a course are in a folder with the name of the course.
    """
    if options.course is None:
        if options.without_solutions:
            raise CommandError("--without-solutions needs a course, for example --course half-day.")
        _print_sentences(update_copies(folder))
        return ""
    chosen_course = find_course(options.course)
    _print_sentences(update_copies(folder))
    _print_sentences(
        update_copies(folder / chosen_course.name, chosen_course, solutions=not options.without_solutions)
    )
    return chosen_course.name


def _find_copies_folder(folder: Path | None) -> Path:
    return folder.expanduser().absolute() if folder else find_default_folder()


def _print_sentences(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        print(f"gpulab: {sentence}", file=sys.stderr)


def _open_lab(notebook: Path, folder: Path, arguments: Sequence[str], *, is_hub: bool) -> int:
    """Start JupyterLab, or the server of a JupyterHub, in the folder of the notebooks."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise CommandError("JupyterLab is not installed. Install it with: pip install jupyterlab")
    # The address that JupyterLab prints leads to the first notebook, too.
    path = notebook.relative_to(folder.resolve()).as_posix()
    url_option = f"--{'ServerApp' if is_hub else 'LabApp'}.default_url=/lab/tree/{quote(path)}"
    data_folder = Path(str(files("gpulab") / "data"))
    # JupyterLab keeps widget state in the learner's own notebooks, so that views outlive the kernel.
    settings_option = f"--LabApp.app_settings_dir={data_folder / 'lab_settings'}"
    # CUDA C++ is coloured in a checkout as well, and in an environment that another tool created.
    extensions_option = f"--LabApp.extra_labextensions_path={data_folder / 'labextensions'}"
    options = [*_list_root_options(), settings_option, extensions_option, url_option, *arguments]
    if is_hub:
        return _replace_process([sys.executable, "-m", "jupyterhub.singleuser", *options], folder)
    return _replace_process([sys.executable, "-m", "jupyterlab", *options, path], folder)


def _replace_process(command: Sequence[str], folder: Path) -> int:
    """Replace this process by a server, so that a signal to this process stops the server."""
    sys.stdout.flush()
    if os.name != "nt":
        os.chdir(folder)
        os.execv(command[0], list(command))
    with subprocess.Popen(command, cwd=folder) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue  # JupyterLab received it as well and asks whether to stop


def _list_root_options() -> list[str]:
    # Containers often have no other user, and there JupyterLab would only print that it needs this option.
    return ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


def find_first_notebook(folder: Path) -> Path:
    """Return the path of the course's first notebook in `folder`.

    Raises
    ------
    CommandError
        If `folder` does not contain the notebook.
    """
    notebooks = sorted(folder.glob(FIRST_NOTEBOOK))
    if not notebooks:
        raise CommandError(
            f"{folder} does not contain the notebook {FIRST_NOTEBOOK}. Pass the folder of the course's "
            "notebooks."
        )
    return notebooks[0].resolve()
