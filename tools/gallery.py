"""A gallery to look at before anything is installed: views as pages that work alone and offline.

``make pictures`` (`tools.pictures`) writes the views of the README to ``gallery/``, each the page that its
``save`` makes, and an index. ``python -m tools.gallery OUT --course 02 05a`` (or ``all``) makes another
gallery: it runs notebooks of the course, too, and adds every view that their cells end in. All numbers are
modelled, on the device that the pages name.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.pictures import CELLS, IMAGES, ROOT, SETUP

DEVICE = "virtual:A100"
# Title, content and a first thing to try of each of the README's views.
TEXTS = {
    "device_card": (
        "The parts and limits of a GPU",
        "The compute capability, SMs, memory and launch limits of an A100, next to those of other GPUs.",
        'Unfold "All limits", and compare the shared memory per SM with the maximum per block.',
    ),
    "launch_chart": (
        "Blocks on SMs over time",
        "One row per SM, and in it a bar per block of a launch. The last, partly filled wave is marked.",
        "Click a row to see one SM alone, and find the SMs that are idle while the last blocks run.",
    ),
    "warp_stepper": (
        "One warp, step by step",
        "The source lines that a warp executes, and for each step the lanes that are active.",
        "Press the right arrow key until the lanes diverge at `if (x % 2 == 0)`.",
    ),
    "occupancy_chart": (
        "Occupancy over the block size",
        "The fraction of an SM's warp slots that each block size can fill, coloured by the limit.",
        "Find the smallest block size with the highest occupancy, and read which limit it reaches.",
    ),
    "timeline": (
        "Copies and kernels on two streams",
        "Each row is a stream or an engine, and each bar a copy or a kernel of a program in six chunks.",
        "Select a bar with Enter to see its size and rate, and find the copies that overlap with a kernel.",
    ),
    "graph": (
        "A CUDA graph and the same launches without it",
        "The nodes of a captured program, and below them both runs on one time axis.",
        "Point at a node to see its kernel, grid and arguments.",
    ),
    "memory_map": (
        "A request of 1 GiB that fails while more is free",
        "The segments of a memory pool with their used and free blocks, at each event of a program.",
        "Step back with the left arrow key, and watch how freeing every other array fragments the pool.",
    ),
    "access": (
        "The sectors and banks of 32 addresses",
        "The 32 lanes of a warp, and the sectors of memory or banks of shared memory that they access.",
        "Point at a lane. Then read why a stride of 2 wastes half of the bytes.",
    ),
    "fragments": (
        "The lanes and registers of a tensor core's matrices",
        "The lane and the register of each element that a warp multiplies, and a swizzled tile.",
        "Click an element of `a`, and find the elements of the same lane in `b`, `d` and shared memory.",
    ),
    "pipeline": (
        "Copies that overlap with their use",
        "The buffers of a block in shared memory: when each is filled and used, and where the warps wait.",
        "Follow one buffer from left to right, and find the wait and the barrier before each use.",
    ),
}
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 66rem; padding: 0 1rem; }
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(19rem, 1fr)); gap: 1.2rem; padding: 0;
  list-style: none; }
main article { border: 1px solid #8888; border-radius: .5rem; padding: .8rem; }
main img { width: 100%; height: 11rem; object-fit: cover; object-position: top left; border-radius: .3rem;
  background: #fff; }
h2 { font-size: 1.05rem; margin: .4rem 0; } p { margin: .3rem 0; }
"""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the gallery: its file, its title, a description of the view, and its picture."""

    file: str
    title: str
    sentence: str
    content: str = ""
    task: str = ""
    picture: str = ""


def save_readme_pages(folder: Path, names: list[str]) -> list[Page]:
    """Save the README's views, from the same cells as its pictures."""
    os.environ["GPULAB_DEVICE"] = DEVICE
    names_of_cells: dict[str, Any] = {}
    exec(SETUP, names_of_cells)
    return save_pages(folder, {name: run_cell(CELLS[name], names_of_cells) for name in names})


def save_pages(folder: Path, views: Mapping[str, Any]) -> list[Page]:
    """Save the README's views by name, and return their pages."""
    pages = []
    for name, view in views.items():
        view.save(folder / f"{name}.html")
        title, page_text, task = TEXTS[name]
        pages.append(Page(f"{name}.html", title, repr(view), page_text, task, _find_picture(name, folder)))
    return pages


def run_cell(code: str, names: dict[str, Any]) -> Any:
    """Run a cell, and return the value of its last expression, or None if it does not end in one."""
    syntax_tree = ast.parse(code)
    last_statement = syntax_tree.body[-1] if syntax_tree.body else None
    if not isinstance(last_statement, ast.Expr):
        exec(compile(syntax_tree, "<cell>", "exec"), names)
        return None
    exec(compile(ast.Module(syntax_tree.body[:-1], []), "<cell>", "exec"), names)
    return eval(compile(ast.Expression(last_statement.value), "<cell>", "eval"), names)


def save_course_pages(folder: Path, notebook: Path) -> list[Page]:
    """Run a notebook in a separate process, and save the views at the end of its cells."""
    command = [sys.executable, "-m", "tools.gallery", str(folder), "--one", str(notebook)]
    environment = {**os.environ, "GPULAB_DEVICE": DEVICE, "GPULAB_HOME": str(folder / ".learner")}
    process = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    shutil.rmtree(folder / ".learner", ignore_errors=True)
    if process.returncode != 0:
        raise SystemExit(f"{notebook.name} did not run:\n{process.stderr[-2000:]}")
    return [Page(**page) for page in json.loads(process.stdout)]


def run_notebook(folder: Path, notebook: Path) -> list[Page]:
    """Run a notebook in this process, and save its views (see `save_course_pages`)."""
    from IPython.core.interactiveshell import InteractiveShell

    shell: Any = InteractiveShell.instance()
    pages = []
    title = notebook.stem
    section = ""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        cell_source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            for heading in re.findall(r"^#+ (.*)", cell_source, re.M):
                if section == "" and title == notebook.stem:
                    title = heading
                else:
                    section = heading
            continue
        if cell["cell_type"] != "code":
            continue
        value = shell.run_cell(cell_source).result
        if not (hasattr(value, "_make_writers") and ".html" in value._make_writers()):
            continue
        name = f"{notebook.stem.split('_')[0]}-{cell['id']}.html"
        value.save(folder / name)
        pages.append(Page(name, f"{title}: {section}" if section else title, repr(value).split("\n")[0]))
    return pages


def write_index(folder: Path, pages: list[Page]) -> None:
    """Write the page that links to all others."""
    (folder / "index.html").write_text(make_index(pages), encoding="utf-8")


def make_index(pages: list[Page]) -> str:
    """Return the page that links to all others, by relative names."""
    cards_html = "\n".join(
        f'<article><a href="{html.escape(page.file)}">'
        + (
            f'<img src="{html.escape(page.picture)}" alt="{html.escape(page.sentence)}" loading="lazy">'
            if page.picture
            else ""
        )
        + f"<h2>{html.escape(page.title)}</h2></a>"
        + (f"<p><b>What you can see.</b> {_render_text(page.content)}</p>" if page.content else "")
        + (f"<p><b>Try this.</b> {_render_text(page.task)}</p>" if page.task else "")
        + f"<p><small>{html.escape(page.sentence)}</small></p></article>"
        for page in pages
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n<title>gpulab: a gallery</title>\n'
        f"<style>{_STYLE}</style></head>\n<body><h1>gpulab: a gallery</h1>\n"
        "<p>These are views of the course, as its notebooks show them. You can use them with mouse and "
        "keyboard, without a server or a network. Their numbers are modelled, for the device that they "
        "name.</p>\n"
        f"<main>\n{cards_html}\n</main></body></html>\n"
    )


def _render_text(text: str) -> str:
    """Return a text as HTML, with code in backticks."""
    return re.sub("`(.*?)`", r"<code>\1</code>", html.escape(text))


def _find_picture(name: str, folder: Path) -> str:
    """Return the picture's address for the index; copy it if the gallery is outside the checkout."""
    picture = IMAGES / f"{name}.png"
    if folder.is_relative_to(ROOT):
        return Path(os.path.relpath(picture, folder)).as_posix()
    shutil.copy(picture, folder)
    return picture.name


@contextlib.contextmanager
def _silence_output() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def main(arguments: list[str] | None = None) -> None:
    """Write the gallery."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(CELLS), default=list(CELLS), metavar="NAME")
    parser.add_argument("--course", nargs="+", default=[], metavar="NN", help="notebooks to run, too; or all")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    folder = options.out.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if options.one:
        with _silence_output():
            pages = run_notebook(folder, options.one)
        print(json.dumps([asdict(page) for page in pages]))
        return
    pages = save_readme_pages(folder, options.only)
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        if "all" in options.course or path.stem.split("_")[0] in options.course:
            pages += save_course_pages(folder, path)
            print(f"{path.name}: {len(pages)} pages so far", flush=True)
    write_index(folder, pages)
    print(f"{len(pages)} pages and an index in {options.out}")


if __name__ == "__main__":
    main()
