"""The public functions inside a real Jupyter kernel: sentence, pictures, widgets, errors, interrupt."""

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


def shown(outputs: list[Any]) -> dict[str, Any]:
    (result,) = [output for output in outputs if output.output_type in ("execute_result", "display_data")]
    return dict(result.data)


def view_and_picture(outputs: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a view's cell shows: first the view itself, then its picture."""
    view, picture = outputs
    assert (view.output_type, picture.output_type) == ("execute_result", "display_data")
    assert picture.metadata["image/png"]["alt"] == view.data["text/plain"] == picture.data["text/plain"]
    return dict(view.data), dict(picture.data)


def test_a_learners_first_minutes(jupyter: NotebookClient) -> None:
    run(jupyter, SETUP)
    assert shown(run(jupyter, "gl.which_device()"))["text/plain"].startswith(
        "This session uses a virtual A100"
    )
    for call, begins in (
        ("gl.device()", "Device card of A100"),
        ("gl.launch(kernel, (n + 255) // 256, 256, args)", "Launch of kernel vector_add"),
        ("gl.warps(kernel, (n + 255) // 256, 256, args)", "Warp 0"),
    ):
        data, picture = view_and_picture(run(jupyter, call))
        assert {"text/plain", "application/vnd.jupyter.widget-view+json"} == set(data), call
        assert {"text/plain", "image/png"} == set(picture), call
        assert begins in data["text/plain"]
        origin = "published" if "device" in call else "executed" if "warps" in call else "modelled"
        assert origin in data["text/plain"], call
    data = shown(run(jupyter, "gl.occupancy(kernel)"))
    assert {"text/plain", "image/png", "text/html"} == set(data)
    assert data["text/plain"].startswith("Occupancy against block size")
    data = shown(run(jupyter, "gl.count(kernel, (n + 255) // 256, 256, args)"))
    assert "<table" in data["text/html"]
    text = printed(jupyter, "print(bool((y == x + x).all()))")
    assert text.strip() == "True"


def test_captured_views_bring_their_picture_and_leave_none_behind(jupyter: NotebookClient) -> None:
    run(jupyter, "import gpulab as gl")
    assert run(jupyter, "%%capture kept\ngl.device()") == []
    text = printed(jupyter, "print(*sorted(kept.outputs[0].data))")
    assert text.split() == ["application/vnd.jupyter.widget-view+json", "image/png", "text/plain"]


def test_running_cells_again_leaves_no_models_in_the_kernel(jupyter: NotebookClient) -> None:
    run(jupyter, SETUP)
    calls = (
        "gl.device()",
        "gl.launch(kernel, 4, 256, args)",
        "gl.warps(kernel, 4, 256, args)",
        "gl.access()",
    )
    counts = []
    for _ in range(4):
        for number, call in enumerate(calls):
            # As JupyterLab, which tells the kernel which cell it runs.
            told = f"get_ipython().get_parent()['metadata']['cellId'] = 'call-{number}'"
            view_and_picture(run(jupyter, f"{told}\n{call}"))
        text = printed(jupyter, "import ipywidgets.widgets.widget as w; print(len(w._instances))")
        counts.append(int(text))
    assert counts[-1] == counts[0]


def test_a_crashing_kernel_leaves_the_notebook_alive(jupyter: NotebookClient) -> None:
    run(jupyter, SETUP)
    with pytest.raises(CellExecutionError, match=r"(?s)cudaErrorIllegalAddress.*double_all.*line\s4"):
        run(jupyter, f"cp.RawKernel(r'''{NO_TAIL_CHECK}''', 'double_all')((40,), (256,), (x,))")
    text = printed(jupyter, "kernel((40,), (256,), args); print(bool((y == x + x).all()))")
    assert text.strip() == "True"


def test_an_endless_kernel_can_be_interrupted(jupyter: NotebookClient) -> None:
    run(jupyter, SETUP)
    run(
        jupyter,
        "import _thread, threading; timer = threading.Timer(1.0, _thread.interrupt_main); timer.start()",
    )
    source = f"cp.RawKernel(r'''{FOREVER}''', 'forever')((1,), (32,), (cp.zeros(1, cp.int32),))"
    with pytest.raises(CellExecutionError, match=r"KeyboardInterrupt|LaunchTimeout"):
        run(jupyter, source)
    text = printed(jupyter, "kernel((40,), (256,), args); print(bool((y == x + x).all()))")
    assert text.strip() == "True"
