"""The live memory chart: readings compared with the pool's own, peaks between them, files and text."""

from __future__ import annotations

import csv
import gc
import json
import threading
import time
import weakref
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from PIL import Image

import gpulab as gl
from gpulab.lab.memory import chart
from gpulab.lab.memory.chart import parse_size
from gpulab.views import MemoryChart
from gpulab.views.memory.chart import order_by_event
from gpulab.views.memory.memory_text import describe_memory
from tests.views import synthetic
from virtualgpu.records import io

MIB = 1 << 20


@pytest.fixture(autouse=True)
def device() -> None:
    gl.use_device("virtual:T4")
    gl.use_device("virtual:A100")


def threads() -> int:
    return sum(thread.name == "gpulab sampler" for thread in threading.enumerate())


def test_readings_equal_the_pool_and_include_peaks_between_them():
    cp = gl.cp
    pool = gl.cp.get_default_memory_pool()
    old = cp.zeros(3 * MIB, cp.uint8)
    with gl.memory(rate_hz=2) as m:  # the next reading is half a second away
        kept = cp.zeros(5 * MIB, cp.uint8)
        big = cp.zeros(40 * MIB, cp.uint8)
        del big, old
    r = m.record
    assert r.used_bytes[0] == 3 * MIB
    assert r.used_bytes[-1] == pool.used_bytes() == kept.nbytes
    assert r.reserved_bytes[-1] == pool.total_bytes() == 48 * MIB
    assert r.peak == (48 * MIB, r.time_ns[-1])
    free, total = cp.cuda.Device().mem_info
    assert r.device_bytes[-1] == total - free
    assert r.capacity_bytes == total
    assert r.provenance.source == "modelled"
    assert r.others_bytes[-1] == 0


def test_marks_attribute_bytes_and_failures_to_source_lines():
    cp = gl.cp
    with gl.memory(rate_hz=5) as m:
        for _ in range(3):
            x = cp.zeros(1000, cp.uint8)  # 1024 bytes
        with pytest.raises(cp.cuda.memory.OutOfMemoryError):
            cp.cuda.alloc(1 << 50)
        del x
    marks = m.record.marks
    lines = m.record.lines
    assert marks.allocations.sum() == marks.frees.sum() == 3
    assert marks.allocated_bytes.sum() == marks.freed_bytes.sum() == 3 * 1024
    assert marks.failures.sum() == 1
    texts = {lines[int(line)].text for line in marks.line[marks.allocations > 0]}
    assert texts == {"x = cp.zeros(1000, cp.uint8)  # 1024 bytes"}
    assert lines[int(marks.line[marks.failures > 0][0])].text == "cp.cuda.alloc(1 << 50)"


def levels_of_a_short_block() -> tuple[chart.MemoryRecording, list[tuple[int, int]]]:
    """A block of five events, with the pool's own used and reserved bytes before and after each one."""
    cp = gl.cp
    pool = cp.get_default_memory_pool()
    levels = []

    def read() -> None:
        levels.append((pool.used_bytes(), pool.total_bytes()))

    with gl.memory() as m:
        read()
        x = cp.zeros(5 * MIB, cp.uint8)
        read()
        y = cp.zeros(3 * MIB, cp.uint8)
        read()
        del x
        read()
        pool.free_all_blocks()
        read()
        z = cp.zeros(2 * MIB, cp.uint8)
        read()
        del y, z
        read_after_two = pool.used_bytes(), pool.total_bytes()
        pool.free_all_blocks()
    assert read_after_two == (0, 5 * MIB)
    return m, levels


def test_memory_after_each_event_equals_the_pools_values():
    m, levels = levels_of_a_short_block()
    steps = order_by_event(m.record)
    assert list(zip(steps.used_bytes[:6], steps.reserved_bytes[:6], strict=True)) == levels
    assert steps.used_bytes[6:].tolist() == [2 * MIB, 0, 0, 0], "two frees, a return, and the end"
    assert steps.reserved_bytes[6:].tolist() == [5 * MIB, 5 * MIB, 0, 0]
    assert steps.marks.reserved_bytes.tolist() == [5 * MIB, 3 * MIB, 0, -5 * MIB, 2 * MIB, 0, 0, -5 * MIB]
    assert steps.time_ns.tolist() == [*range(len(m.record.marks) + 2)]


def test_a_short_recording_is_shown_by_event_and_a_long_one_by_time():
    m, _ = levels_of_a_short_block()
    assert m._picture().axis == "event"
    with gl.memory() as empty:
        pass
    assert empty._picture().axis == "time", "there is no event"
    assert MemoryChart(lambda: synthetic.memory_samples(20)).axis == "time"
    view = MemoryChart(lambda: m.record, "live")
    assert view.axis == "time"
    before = view.png()
    view.show_state("stopped")
    assert view.axis == "event"
    assert view.png() != before
    view.close()


def test_sampling_thread_and_hook_end_with_the_recording():
    hooks = gl.cp.cuda.memory_hook.get_memory_hooks()
    with gl.memory() as m:
        assert threads() == 1
    assert threads() == 0
    assert not hooks
    assert m.state == "stopped"
    with pytest.raises(gl.errors.GpulabError, match="ended"):
        m.resume()
    forgotten = gl.memory(rate_hz=50)
    forgotten.start()
    report = weakref.ref(forgotten)
    with pytest.warns(ResourceWarning, match="memory recording was started but never stopped"):
        del forgotten
    gc.collect()
    end_s = time.monotonic() + 5
    while threads() and time.monotonic() < end_s:
        time.sleep(0.02)
    assert threads() == 0
    assert report() is None
    gl.cp.zeros(3)  # the hook of the lost report does nothing


def test_displayed_recording_stops_when_its_view_is_closed():
    m = gl.memory(rate_hz=50)
    assert (m.state, threads()) == ("new", 0), "a recording that is not shown does nothing"
    m._repr_mimebundle_()
    assert (m.state, threads()) == ("live", 1)
    m._repr_mimebundle_()  # a second display shows the same one
    assert threads() == 1
    m._picture().close()
    assert m.state == "stopped"
    assert threads() == 0


def test_each_source_line_is_sent_to_the_page_once():
    m = gl.memory(rate_hz=1)
    m.start()
    gl.cp.zeros(3)
    messages = []
    m._picture().send = lambda content, buffers=None: messages.append(content)
    gl.cp.zeros(4)
    for _ in range(3):
        m._recorder.sampler.take_reading()
    m.stop()
    (line,) = (line for message in messages if message["kind"] == "tick" for line in message["lines"])
    assert line.endswith("gl.cp.zeros(4)")
    assert len(m.record.lines) == 2


def test_buttons_allocate_free_limit_and_pause():
    pool = gl.cp.get_default_memory_pool()
    m = gl.memory(rate_hz=50)
    m.start()
    view = m._picture()
    messages = []
    view.send = lambda content, buffers=None: messages.append(content)

    def press(button: str, size: str = "") -> str:
        view._on_message(view, {"kind": "act", "what": button, "size": size}, [])
        return view.error

    assert press("allocate", "2 MiB") == ""
    assert pool.used_bytes() == 2 * MIB
    assert press("free") == press("empty") == ""
    assert (pool.used_bytes(), pool.total_bytes()) == (0, 0)
    assert press("limit", "1 MiB") == ""
    assert pool.get_limit() == MIB
    assert "OutOfMemoryError" in press("allocate", "2 MiB")
    assert "not a size" in press("limit", "-5")
    assert press("limit", "0") == ""
    assert pool.get_limit() == 0
    press("pause")
    assert m.state == view.state == "paused"
    press("resume")
    assert m.state == view.state == "live"
    assert "There is no button" in press("explode")
    assert press("free") == ""
    texts = [message["text"] for message in messages if message["kind"] == "answer" and message["text"]]
    parts = [
        "2 MiB",
        "2,097,152 B",
        "device",
        "1 MiB",
        "no longer has a limit",
        "This button has not allocated anything",
    ]
    assert len(texts) == len(parts)
    assert all(part in text for part, text in zip(parts, texts, strict=True))
    for size in ("512", "3 KiB"):
        press("allocate", size)
    press("free")
    assert pool.used_bytes() == 512, "the last one goes first"
    m.stop()
    assert pool.used_bytes() == 0, "the arrays of buttons go with the recording"
    assert m.record.marks.allocations.sum() == 3


def test_buttons_work_on_the_device_of_their_chart():
    m = gl.memory(rate_hz=50)
    m.start()
    gl.use_device("virtual:T4")
    view = m._picture()
    view._on_message(view, {"kind": "act", "what": "allocate", "size": "1 MiB"}, [])
    assert "another device has been selected" in view.error
    assert gl.cp.get_default_memory_pool().used_bytes() == 0
    m.stop()


def test_saved_files_contain_the_data_of_the_record(tmp_path):
    with gl.memory(rate_hz=20) as m:
        x = gl.cp.zeros(3 * MIB, gl.cp.uint8)
        m.pause()
        m.resume()
    r = m.record
    rows = list(csv.DictReader(StringIO(m.save(tmp_path / "x.csv").read_text())))
    used_bytes = [float(row["used_bytes"] or "nan") for row in rows]
    assert used_bytes == pytest.approx(r.used_bytes.tolist(), nan_ok=True)
    data = json.loads(m.save(tmp_path / "x.json").read_text())
    assert data["marks"]["allocated_bytes"] == [x.nbytes]
    assert data["used_bytes"][1] is None
    assert data["provenance"]["source"] == "modelled"
    with Image.open(m.save(tmp_path / "x.png")) as picture:
        assert picture.size[0] == 1800
    assert "Memory of virtual A100" in m.save(tmp_path / "x.html").read_text()
    samples = io.load(io.save(r, tmp_path / "samples"))
    assert samples.lines == r.lines
    np.testing.assert_array_equal(samples.used_bytes, r.used_bytes)
    np.testing.assert_array_equal(samples.marks.allocated_bytes, r.marks.allocated_bytes)
    assert "\n" not in repr(m)
    for part in ("3 MiB used (peak 3 MiB", "(stopped)", "modelled on virtual A100"):
        assert part in repr(m)
    assert "x = gl.cp.zeros(3 * MIB, gl.cp.uint8): 1 allocation, 3 MiB." in m._picture().describe()


def test_failed_readings_are_noted_and_not_drawn():
    m = gl.memory(rate_hz=50)
    m.start()
    m._recorder.sampler._read_row._read_memory = lambda: (_ for _ in ()).throw(RuntimeError("gone"))
    m._recorder.sampler.take_reading()
    m.stop()
    assert "RuntimeError: gone" in m.record.note
    assert m._picture().png()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64 MiB", 64 * MIB),
        ("1.5 GiB", 3 << 29),
        ("4096", 4096),
        ("2k", 2048),
        ("1,024 B", 1024),
        ("0", 0),
        ("1 TB", 1 << 40),
        (" 1_000 kb", 1_024_000),
        ("0.5", 0),
        ("4194303.9 TiB", int(4194303.9 * 2**40)),
    ],
)
def test_common_spellings_of_sizes_are_parsed(text: str, size: int):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "much", "-1", "1e3", "1 XiB", "NaN"])
def test_wrong_sizes_are_refused(text: str):
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


def test_error_for_a_huge_size_is_short():
    for text in ("9" * 400, "9" * 30, "9" * 400 + "k", "4194304 TiB"):
        with pytest.raises(ValueError, match="more than any memory can hold") as error:
            parse_size(text)
        assert len(str(error.value)) < 100
    assert [chart.shorten_text("9" * digits) for digits in (40, 41)] == [f"'{'9' * 40}'", f"'{'9' * 40}'..."]


def test_described_sizes_are_never_negative():
    """If the pool grew after the device was read, the cached bytes and those of the driver are shown as 0."""
    with gl.memory(rate_hz=5) as m:
        pass
    size = np.array([5.0 * MIB])
    record = replace(m.record, used_bytes=2 * size, reserved_bytes=size, device_bytes=size / 2)
    assert ", 0 B cached, 0 B driver and others, " in describe_memory(record, "stopped")


def test_page_receives_state_changes_and_all_final_readings():
    """In between, readings are sent one by one, and the page requests those that it has missed."""
    count = [10]
    view = MemoryChart(lambda: synthetic.memory_samples(count[0]), "live")

    def rows() -> int:
        return view.scene["columns"]["used_bytes"]["$"][2]

    view.show_state("paused")
    assert view.state == "paused"
    count[0] = 20
    view.show_state("live")
    assert (view.state, rows()) == ("live", 10)
    view._handle_custom_msg({"kind": "all"}, [])
    assert rows() == 20
    view._handle_custom_msg({"kind": "act", "what": "empty"}, [])
    assert view.error == "", "it has no buttons"
    count[0] = 30
    view.show_state("stopped")
    assert (view.state, rows()) == ("stopped", 30)
    view.close()
