"""A handout of one A4 page for each short course: what to remember, a kernel and its launch, and exercises.

``python -m tools.handout build/handouts`` writes a page in HTML for each course, and prints it as PDF where
Chromium is installed.
"""

from __future__ import annotations

import argparse
import html
import subprocess
import sys
from pathlib import Path

from markdown_it import MarkdownIt

from gpulab_course.content.courses import Course, find_course
from tools import chromium
from tools.courses import SHORT_COURSES, read_notebook_cells

_PROGRAM = '''\
import gpulab as gl
from gpulab import cp

add = cp.RawKernel(r"""
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}""", "add")
run = gl.launch(add, (n + 255) // 256, 256, (a, b, c, cp.int32(n)))
run.warps(); run.count(); run.sanitize(); run.diagnose()'''
_STYLE = """
@page { size: A4; margin: 9mm 11mm; }
body { font: 8.6pt/1.3 "DejaVu Sans", system-ui, sans-serif; margin: 0; color: #111; }
main { columns: 2; column-gap: 7mm; }
h1 { font-size: 14pt; margin: 0 0 1mm; } p { margin: 0 0 2mm; }
h2 { font-size: 9.6pt; margin: 2.4mm 0 .8mm; border-bottom: .3mm solid #999; break-after: avoid; }
ul { margin: 0; padding-left: 3.6mm; } li { margin-bottom: .7mm; break-inside: avoid; }
pre { font: 7pt/1.25 "DejaVu Sans Mono", monospace; background: #f2f2f2; padding: 1.5mm; margin: 0;
  white-space: pre-wrap; break-inside: avoid; }
code { font-family: "DejaVu Sans Mono", monospace; font-size: .92em; }
body.full { font-size: 6.7pt; } body.full pre { font-size: 6pt; }
"""
CROWDED_NOTEBOOKS = 4
"""A handout about more notebooks has smaller letters."""


def make_handout(of: Course) -> str:
    """Return the handout of a course as an HTML page."""
    render_markdown = MarkdownIt().render
    sections = []
    for notebook_number in of.notebooks:
        cells = read_notebook_cells(notebook_number)
        title = cells[0].source.splitlines()[0].removeprefix("# ")
        summary = next(cell.source for cell in cells if cell.source.startswith("## What to remember"))
        sections.append(f"<h2>{html.escape(title)}</h2>{render_markdown(summary.partition(chr(10))[2])}")
    homework = [
        f"{notebook_number}: {', '.join(names)}"
        for notebook_number in of.notebooks
        if (names := [name for part in of.find_parts(notebook_number) for name in part.home])
    ]
    body_class = "full" if len(of.notebooks) > CROWDED_NOTEBOOKS else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>gpulab: {html.escape(of.title)}</title>
<style>{_STYLE}</style></head>
<body class="{body_class}"><h1>gpulab: {html.escape(of.title.lower())}</h1><p>{html.escape(of.aim)}</p>
<main><h2>A kernel, its launch, and questions about it</h2><pre>{html.escape(_PROGRAM)}</pre>
{"".join(sections)}
<h2>Homework</h2><ul>{"".join(f"<li>{html.escape(exercise_names)}</li>" for exercise_names in homework)}</ul>
<h2>Later</h2><ul><li><code>gpulab lab</code> opens the whole course, <code>gl.progress()</code> shows your
progress, <code>gpulab doctor</code> checks your computer.</li></ul></main></body></html>
"""


def print_pdf(source: Path, program: str) -> Path:
    """Print an HTML page to a PDF file in the same folder.

    Raises
    ------
    subprocess.CalledProcessError
        If Chromium fails.
    """
    pdf = source.with_suffix(".pdf")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer"]
    command = [program, *options, f"--print-to-pdf={pdf.resolve()}", source.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return pdf


def main() -> None:
    """Write the handouts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    program = chromium.find()
    for name in SHORT_COURSES:
        path = folder / f"handout-{name}.html"
        path.write_text(make_handout(find_course(name)), encoding="utf-8")
        print(print_pdf(path, program) if program else path)
    if program is None:
        print(
            "Chromium is not installed, so there are no PDF files. Print the pages in a browser.",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
