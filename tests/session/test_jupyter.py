"""The public functions inside a real Jupyter kernel: texts, pictures, widgets, errors, interrupt."""

from __future__ import annotations

from typing import Any

import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.session.kernels import FOREVER, NO_TAIL_CHECK, VECTOR_ADD
from tests.session.notebooks import printed, run

SETUP = f"""
import numpy as np
import gpulab as gl
from gpulab import cp
n = 10_000
x = cp.arange(n, dtype=cp.float32)
y = cp.zeros(n, cp.float32)
kernel = cp.RawKernel(r'''{VECTOR_ADD}''', "vector_add")
args = (x, x, y, np.int32(n))
"""


def result(outputs: list[Any]) -> dict[str, Any]:
    (output,) = [o for o in outputs if o.output_type in ("execute_result", "display_data")]
    return dict(output.data)


def view_and_picture(outputs: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the data of the two outputs of a view's cell: the view, then its picture."""
    view, picture = outputs
    assert (view.output_type, picture.output_type) == ("execute_result", "display_data")
    assert picture.metadata["image/png"]["alt"] == view.data["text/plain"] == picture.data["text/plain"]
    return dict(view.data), dict(picture.data)


@pytest.fixture(autouse=True)
def names(jupyter: NotebookClient) -> None:
    """Define arrays, a kernel and its arguments in the shared Jupyter kernel."""
    run(jupyter, SETUP)


def test_results_are_shown_as_text_picture_and_widget(jupyter: NotebookClient) -> None:
    text = result(run(jupyter, "gl.which_device()"))["text/plain"]
    assert text.startswith("This session uses a virtual A100")
    for call, start, origin in (
        ("gl.device()", "Device card of A100", "published"),
        ("gl.launch(kernel, (n + 255) // 256, 256, args)", "Launch of kernel vector_add", "modelled"),
        ("gl.warps(kernel, (n + 255) // 256, 256, args)", "Warp 0", "executed"),
    ):
        data, picture = view_and_picture(run(jupyter, call))
        assert set(data) == {"text/plain", "application/vnd.jupyter.widget-view+json"}, call
        assert set(picture) == {"text/plain", "image/png"}, call
        assert start in data["text/plain"]
        assert origin in data["text/plain"], call
    data = result(run(jupyter, "gl.occupancy(kernel)"))
    assert set(data) == {"text/plain", "image/png", "text/html"}
    assert data["text/plain"].startswith("Occupancy against block size")
    assert "<table" in result(run(jupyter, "gl.count(kernel, (n + 255) // 256, 256, args)"))["text/html"]
    assert printed(jupyter, "print(bool((y == x + x).all()))").strip() == "True"


def test_captured_view_includes_its_image(jupyter: NotebookClient) -> None:
    assert run(jupyter, "%%capture kept\ngl.device()") == []
    text = printed(jupyter, "print(*sorted(kept.outputs[0].data))")
    assert text.split() == ["application/vnd.jupyter.widget-view+json", "image/png", "text/plain"]


def test_running_cells_again_leaves_no_widgets_in_the_kernel(jupyter: NotebookClient) -> None:
    launch = "kernel, 4, 256, args"
    calls = ("gl.device()", f"gl.launch({launch})", f"gl.warps({launch})", "gl.access()")
    counts = []
    for _ in range(3):
        for number, call in enumerate(calls):
            # JupyterLab sends the cell's id to the kernel.
            cell_id = f"get_ipython().get_parent()['metadata']['cellId'] = 'call-{number}'"
            view_and_picture(run(jupyter, f"{cell_id}\n{call}"))
        counts.append(printed(jupyter, "import ipywidgets.widgets.widget as w; print(len(w._instances))"))
    assert counts[-1] == counts[0]


def test_the_lines_of_a_recorded_cell_are_named_by_the_cell(jupyter: NotebookClient) -> None:
    number = printed(jupyter, "print(len(In))").strip()
    run(jupyter, "%%gpu_timeline -o t\nx.fill(1)\nfirst = float(x[0])")
    lines = printed(jupyter, "print([(str(c.source), c.source.text) for c in t.record.calls])")
    cell = f"cell [{number}]"
    assert f"('{cell}, line 2', 'x.fill(1)'), ('{cell}, line 3', 'first = float(x[0])')" in lines


def test_a_crashing_kernel_leaves_the_notebook_alive(jupyter: NotebookClient) -> None:
    with pytest.raises(CellExecutionError, match=r"(?s)cudaErrorIllegalAddress.*double_all.*line\s4"):
        run(jupyter, f"cp.RawKernel(r'''{NO_TAIL_CHECK}''', 'double_all')((40,), (256,), (x,))")
    text = printed(jupyter, "kernel((40,), (256,), args); print(bool((y == x + x).all()))")
    assert text.strip() == "True"


def test_an_infinite_kernel_can_be_interrupted(jupyter: NotebookClient) -> None:
    interrupt = "import _thread, threading; threading.Timer(1.0, _thread.interrupt_main).start()"
    launch = f"cp.RawKernel(r'''{FOREVER}''', 'forever')((1,), (32,), (cp.zeros(1, cp.int32),))"
    with pytest.raises(CellExecutionError, match=r"KeyboardInterrupt|LaunchTimeout"):
        run(jupyter, f"{interrupt}\n{launch}")
    text = printed(jupyter, "kernel((40,), (256,), args); print(bool((y == x + x).all()))")
    assert text.strip() == "True"
