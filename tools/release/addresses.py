"""Badges and set-up cells, fed by one entry: ``[project.urls]`` of pyproject.toml.

``python -m tools.release.addresses --write`` puts Binder and Colab badges into the README, and into every
notebook of the course a hidden set-up cell that installs gpulab where it is missing, as on Colab. While there
is no ``Repository`` in ``[project.urls]`` (a GitHub address), it takes them out again: none is invented.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import nbformat

ROOT = Path(__file__).resolve().parents[2]
FIRST = "00_start_here.ipynb"
CELL_ID = "set-up"
_REPOSITORY = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+?)(?:\.git)?/?$")
_TITLE = re.compile(r"\A(# .*\n)(\n\[!\[Binder\].*\n)?")
_SET_UP = """\
# Installs gpulab where it is missing, as on Colab; elsewhere this does nothing.
import importlib.util

if importlib.util.find_spec("gpulab") is None:
    %pip install --quiet "gpulab-workspace @ git+{repository}"
"""


def read_repository(root: Path = ROOT) -> str:
    """The repository's address; empty while there is none.

    Raises
    ------
    ValueError
        If it is none that Binder and Colab open.
    """
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = str(project.get("urls", {}).get("Repository", ""))
    if address and not _REPOSITORY.match(address):
        raise ValueError(f"{address} is no GitHub repository (https://github.com/OWNER/NAME).")
    return address.removesuffix("/").removesuffix(".git")


def make_badges(address: str) -> str:
    """A line of badges; empty without an address."""
    if not address:
        return ""
    name = address.removeprefix("https://github.com/")
    start_path = quote(f"lab/tree/gpulab-course/{FIRST}", safe="")
    binder = f"https://mybinder.org/v2/gh/{name}/HEAD?urlpath={start_path}"
    colab = f"https://colab.research.google.com/github/{name}/blob/HEAD/notebooks/{FIRST}"
    return (
        f"[![Binder](https://mybinder.org/badge_logo.svg)]({binder}) "
        f"[![Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab})\n"
    )


def add_badges(readme: str, address: str) -> str:
    """Return the README with the badges below its title, or without badges if there is no address."""
    badge_line = make_badges(address)
    return _TITLE.sub(lambda title: title[1] + (f"\n{badge_line}" if badge_line else ""), readme, count=1)


def add_set_up_cell(notebook: nbformat.NotebookNode, address: str) -> nbformat.NotebookNode:
    """Return a notebook with the hidden set-up cell below its title, or without it if there is no address."""
    notebook.cells = [cell for cell in notebook.cells if cell.get("id") != CELL_ID]
    if address:
        hidden_metadata = {
            "jupyter": {"source_hidden": True},
            "tags": ["hide-input", "remove-cell"],
            "cellView": "form",
        }
        cell_source = _SET_UP.format(repository=address).rstrip()
        cell = nbformat.v4.new_code_cell(cell_source, id=CELL_ID, metadata=hidden_metadata)  # type: ignore[no-untyped-call]
        notebook.cells.insert(1, cell)
    return notebook


def find_stale_files(root: Path = ROOT) -> list[str]:
    """Return the names of files that do not agree with the repository address in pyproject.toml."""
    address = read_repository(root)
    readme = (root / "README.md").read_text(encoding="utf-8")
    stale_files = ["README.md"] if add_badges(readme, address) != readme else []
    for path in _list_notebooks(root):
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        old_cells = [(cell.get("id"), cell.source) for cell in notebook.cells]
        if [(cell.get("id"), cell.source) for cell in add_set_up_cell(notebook, address).cells] != old_cells:
            stale_files.append(f"notebooks/{path.name}")
    return stale_files


def write(root: Path = ROOT) -> list[str]:
    """Update all files to the repository address, and return the names of the changed files."""
    address = read_repository(root)
    stale_files = find_stale_files(root)
    for name in stale_files:
        path = root / name
        if path.suffix == ".md":
            path.write_text(add_badges(path.read_text(encoding="utf-8"), address), encoding="utf-8")
        else:
            notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
            nbformat.write(add_set_up_cell(notebook, address), path)  # type: ignore[no-untyped-call]
    return stale_files


def _list_notebooks(root: Path) -> list[Path]:
    return sorted((root / "notebooks").glob("[0-9][0-9]*.ipynb"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print which files do not agree with the repository address, or update them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write badges and cells, or take them out")
    options = parser.parse_args(arguments)
    try:
        if not read_repository():
            print("pyproject.toml has no [project.urls] Repository: no badges, no set-up cells.")
        stale_files = write() if options.write else find_stale_files()
    except ValueError as error:
        print(error)
        return 1
    for name in stale_files:
        print(f"{'written' if options.write else 'not in line'}: {name}")
    return 0 if options.write else bool(stale_files)


if __name__ == "__main__":
    raise SystemExit(main())
