"""Run the notebooks and write them back clean, so that they read well without a kernel.

Every cell runs afresh in order. Text and pictures stay; widget state, execution times and whatever
else depends on the machine goes. ``--strip`` cleans without running; names limit the work:
``python -m tools.notebooks 01`` runs the notebooks whose names start with 01.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import nbformat

from tools.suite import make_environment

ROOT = Path(__file__).resolve().parent.parent
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
CELL_TIMEOUT_S = 300


def clean(notebook: Any) -> Any:
    """Remove widget state and times from a notebook, in place, and set the name of its kernel."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for cell in notebook.cells:
        # Ids are the authors': they name a cell in reviews and do not change with its place.
        cell.metadata = {key: cell.metadata[key] for key in ("tags", "jupyter") if key in cell.metadata}
        if cell.cell_type != "code":
            continue
        outputs = merge_pictures(cell.outputs)
        cell.outputs = join_printed_text(
            [output for output in map(clean_output, outputs) if output is not None]
        )
    return notebook


def merge_pictures(outputs: list[Any]) -> list[Any]:
    """Return outputs in which each view contains its picture, instead of a separate output with it."""
    views = [output for output in outputs if WIDGET_VIEW in output.get("data", {})]
    merged_outputs = []
    for output in outputs:
        alt_text = output.get("metadata", {}).get("image/png", {}).get("alt")
        view = next((view for view in views if alt_text and view.data.get("text/plain") == alt_text), None)
        if view is None or view is output:
            merged_outputs.append(output)
        else:
            view.data |= output.data
            view.metadata |= output.metadata
            views.remove(view)
    return merged_outputs


def join_printed_text(outputs: list[Any]) -> list[Any]:
    """Return outputs with consecutive printed text merged: a kernel splits it differently each time."""
    merged_outputs: list[Any] = []
    for output in outputs:
        last_output: Any = merged_outputs[-1] if merged_outputs else {}
        if (
            output.output_type == "stream" == last_output.get("output_type")
            and output.name == last_output.name
        ):
            last_output.text += output.text
        else:
            merged_outputs.append(output)
    return merged_outputs


def clean_output(output: Any) -> Any | None:
    """Remove a live widget's reference if an output replaces it, and lines that were erased."""
    data = output.get("data")
    if data is not None:
        data.pop(WIDGET_VIEW, None)
        if "image/png" in data:  # the page of a figure holds its picture twice, light and dark
            data.pop("text/html", None)
        # A picture keeps its size and the sentence that screen readers and exports need.
        output.metadata = {
            media_type: value
            for media_type, value in output.metadata.items()
            if media_type in ("image/png", "needs_background")
        }
        if not any(data.values()):
            return None
    return output


def execute(notebook: Any) -> None:
    """Run all cells in this environment's Python."""
    from nbclient import NotebookClient

    NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, resources={"metadata": {"path": str(ROOT / "notebooks")}}
    ).execute()


def main() -> None:
    """Run and clean the notebooks named on the command line, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strip", action="store_true", help="clean only, run nothing")
    parser.add_argument("prefixes", nargs="*", help="first letters of notebook names")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpulab-") as scratch_folder:
        os.environ.update(make_environment(scratch_folder))
        for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
            if options.prefixes and not path.name.startswith(tuple(options.prefixes)):
                continue
            print(path.relative_to(ROOT), flush=True)
            notebook = nbformat.read(path, as_version=4)
            if not options.strip:
                execute(notebook)
            nbformat.write(clean(notebook), path)


if __name__ == "__main__":
    main()
