"""Properties of every view: repr, text, picture, MIME bundle, closing, and displayed errors."""

from __future__ import annotations

import base64
import html
import io
import math
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gpulab.views import DeviceCard, LaunchChart, WarpStepper, _saving
from gpulab.views import _base as base
from gpulab.views.parts import page
from tests.views import synthetic
from tests.views.makers import MAKERS


@pytest.fixture(params=MAKERS)
def view(request: pytest.FixtureRequest) -> Any:
    views_ = MAKERS[request.param]()
    yield views_
    views_.close()


def test_repr_is_one_sentence_with_provenance_and_no_address(view: Any) -> None:
    text = repr(view)
    assert text[0].isupper()
    assert text.endswith(".")
    assert "\n" not in text
    assert "0x" not in text
    assert view.source in ("measured", "executed", "modelled", "recorded")
    assert f"{view.source} on A100-SXM4-80GB" in text
    assert view.describe().startswith(text)


def test_mime_bundle_contains_widget_picture_and_text(view: Any) -> None:
    data, metadata = view._repr_mimebundle_()
    assert data["text/plain"] == repr(view)
    assert data[base.WIDGET_MIME] == {"version_major": 2, "version_minor": 0, "model_id": view.model_id}
    picture = base64.b64decode(data["image/png"])
    assert picture.startswith(b"\x89PNG")
    assert metadata["image/png"]["width"] == 900
    assert metadata["needs_background"] == "light", "a dark theme turns it dark"
    assert Image.open(io.BytesIO(picture)).size == (1800, 2 * metadata["image/png"]["height"])


def test_closing_leaves_text_and_picture(view: Any) -> None:
    view.close()
    data, _ = view._repr_mimebundle_()
    assert set(data) == {"text/plain", "image/png"}
    view.close()  # a second time does nothing


def test_the_widget_is_displayed_when_drawing_the_picture_fails(
    view: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("no fonts")

    monkeypatch.setattr(view, "draw", fail)
    data, metadata = view._repr_mimebundle_()
    assert base.WIDGET_MIME in data
    assert "image/png" not in data
    assert data["text/plain"].endswith("(no picture: RuntimeError: no fonts)")
    assert metadata == {}


def test_a_view_returns_the_records_it_was_made_from() -> None:
    trace, (info, *others) = synthetic.launch_trace(), synthetic.devices()
    views_ = (
        (LaunchChart(trace), trace),
        (LaunchChart(trace, beside=trace), (trace, trace)),
        (DeviceCard(info), info),
        (DeviceCard(info, others), (info, *others)),
    )
    for view, record in views_:
        assert view.record == record if isinstance(record, tuple) else view.record is record
        view.close()
    warp = synthetic.warp_trace()
    stepper = WarpStepper(warp)
    assert stepper.record is warp
    stepper.close()


def test_a_saved_page_is_self_contained(view: Any, tmp_path: Path) -> None:
    view.save(tmp_path / "view.html")
    text = (tmp_path / "view.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert view.title in html.unescape(text)
    assert "://" not in re.sub(r"base64,[\w+/=]+", "", text)
    assert "import " not in [line[:7] for line in text.splitlines()]
    assert page.SAVED_NOTE in text
    assert f'"view_name": "{view.view_name}"' in text.replace('":"', '": "')
    assert "_model_module" not in text
    view.save(tmp_path / "view.png")
    assert (tmp_path / "view.png").read_bytes() == view.png()


def test_pictures_from_several_threads() -> None:
    chart = MAKERS["few blocks"]()
    expected = chart.png()
    pngs: list[bytes] = []
    threads = [threading.Thread(target=lambda: pngs.append(chart.png())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chart.close()
    assert pngs == [expected] * 4


def test_pyplot_is_never_imported() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from tests.views import synthetic; from gpulab.views import LaunchChart; "
        "LaunchChart(synthetic.launch_trace()).png(); print('matplotlib.pyplot' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_running_a_cell_again_closes_its_views(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace()
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)

    def make(cell: str, run: str) -> LaunchChart:
        shell.get_parent = lambda: {"metadata": {"cellId": cell}, "header": {"msg_id": run}}
        return LaunchChart(synthetic.launch_trace(blocks=4))

    first = make("a", "1")
    same_run = make("a", "1")
    other_cell = make("b", "2")
    assert first.comm is not None
    again = make("a", "3")
    assert first.comm is None
    assert same_run.comm is None
    assert other_cell.comm is not None
    assert again.comm is not None
    assert [view for _, _, view in shell._gpulab_views] == [other_cell, again]
    other_cell.close()
    again.close()


def test_the_picture_is_a_separate_output_after_the_widget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting: list[tuple[str, Any]] = []
    shown: list[dict[str, Any]] = []
    parent = {"header": {"msg_type": "execute_request", "msg_id": "7"}}
    shell = SimpleNamespace(
        get_parent=lambda: parent,
        events=SimpleNamespace(
            register=lambda *item: waiting.append(item), unregister=lambda *item: waiting.remove(item)
        ),
        display_pub=SimpleNamespace(publish=lambda **output: shown.append(output)),
    )
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)
    view = MAKERS["few blocks"]()
    data, metadata = view._repr_mimebundle_()
    assert (set(data), metadata) == ({"text/plain", base.WIDGET_MIME}, {})
    ((event, after),) = waiting
    assert (event, shown) == ("post_run_cell", [])
    after()
    assert not waiting, "it waits for one cell"
    (output,) = shown
    assert set(output["data"]) == {"text/plain", "image/png"}
    assert output["metadata"]["image/png"]["alt"] == repr(view)
    view._repr_mimebundle_()
    parent = {"header": {"msg_type": "execute_request", "msg_id": "8"}}
    waiting[0][1]()
    assert len(shown) == 1, "another cell has begun"
    ready: list[Any] = []
    thread = threading.Thread(target=lambda: ready.append(view._repr_mimebundle_()[0]))
    thread.start()
    thread.join()
    parent = {"header": {"msg_type": "comm_msg", "msg_id": "9"}}
    ready.append(view._repr_mimebundle_()[0])
    assert [set(item) for item in ready] == [{"text/plain", "image/png", base.WIDGET_MIME}] * 2
    assert not waiting
    view.close()


def test_numbers_are_saved_as_json_and_csv(tmp_path: Path) -> None:
    assert [_saving.to_plain_number(item) for item in (2.0, 2.5, math.nan, -math.inf)] == [2, 2.5, None, None]
    data = {"a": np.array([[1.0, math.nan], [2.5, -3.0]]), "b": ("x", [True, None]), "é": np.arange(2)}
    text = _saving.data_to_json(data)
    assert text == '{"a": [[1, null], [2.5, -3]], "b": ["x", [true, null]], "é": [0, 1]}'
    assert _saving.data_to_json({"a": 1}, indent=1) == '{\n "a": 1\n}'
    path = tmp_path / "x.csv"
    _saving.make_csv_writer(("a", "b"), lambda: [(1.0, math.nan), (2.5, 3.0)])(path)
    assert path.read_bytes() == b"a,b\r\n1,\r\n2.5,3\r\n"
