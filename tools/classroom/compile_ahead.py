"""Compile the course's kernels once for all learners of a computer.

``python -m tools.classroom.compile_ahead /var/cache/gpulab``, with the Python that serves them, runs the
notebooks there and keeps what is compiled in that folder, for all to read. `jupyterhub_config.py` names it to
each learner's kernel as ``GPULAB_CACHE_SHARED``. The code is for this computer's processor: where it is
another, or the folder is missing, kernels are compiled when they are first used.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from gpulab_course.content import copies

CELL_S = 600


def compile_ahead(folder: Path, prefixes: Sequence[str], device: str) -> int:
    """Run the notebooks whose names start with `prefixes`, and return the number of files in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpulab-") as home_folder:
        environment = os.environ | {
            "GPULAB_CACHE_DIR": str(folder.resolve()),
            "GPULAB_DEVICE": device,
            "GPULAB_HOME": home_folder,
        }
        for name, path in copies.find_originals().items():
            if not name.startswith(tuple(prefixes)):
                continue
            print(name, flush=True)
            resources = {"metadata": {"path": home_folder}}
            notebook_copy = nbformat.from_dict(copies.make_copy(path))  # type: ignore[no-untyped-call]
            client = NotebookClient(notebook_copy, timeout=CELL_S, kernel_name="python3", resources=resources)
            client.execute(env=environment)
    return make_readable(folder)


def make_readable(folder: Path) -> int:
    """Make a folder readable for all and writable for its owner, and return the number of its files."""
    file_count = 0
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        file_count += path.is_file()
    return file_count


def main() -> None:
    """Compile the kernels of the notebooks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("notebooks", nargs="*", default=[""], help="such as 00 01; without, all")
    parser.add_argument("--device", default="virtual:A100", help="the virtual GPU that the class uses")
    options = parser.parse_args()
    print(f"{compile_ahead(options.folder, options.notebooks, options.device)} files in {options.folder}")


if __name__ == "__main__":
    main()
