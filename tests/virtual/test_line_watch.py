"""Source lines of calls found from timestamps, compared with lines that the program recorded."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from virtualgpu.model.recording import line_watch
from virtualgpu.model.recording.line_watch import LineWatch

# What is called is a C function, as CuPy's are: it notes the time, the line that should be found and a name.
PROGRAM = """
import time
def helper(note):
    note((time.time_ns(), 4, "b"))
    return 1
def program(note, n):
    for i in range(n):
        note((time.time_ns(), 8, "a"))
        helper(note), note((time.time_ns(), 9, "c"))
        note((
            time.time_ns(),
            10 if helper(note) else 0,
            "d",
        ))
    note((time.time_ns(), 15, "a"))
    for item in sorted([3, 1, 2], key=lambda item: note((time.time_ns(), 16, "e")) or item):
        note((time.time_ns(), 17, "f"))
"""


def watched(tmp_path: Path, n: int) -> tuple[LineWatch, list[tuple[int, int, str]]]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(PROGRAM, str(path), "exec"), names)
    calls: list[tuple[int, int, str]] = []
    watch = LineWatch()
    watch.start()
    try:
        names["program"](calls.append, n)
    finally:
        watch.stop()
    return watch, sorted(calls)


def line_numbers(watch: LineWatch, calls: list[tuple[int, int, str]]) -> list[int | None]:
    thread = threading.get_native_id()
    return [line and line.line for line in (watch.line(thread, time_ns, name) for time_ns, _, name in calls)]


def test_each_call_has_its_line(tmp_path: Path) -> None:
    watch, calls = watched(tmp_path, 50)
    # Arguments over several lines: the one that was begun last, which is the name's.
    expected = [{10: {10, 11, 12, 13}}.get(line, {line}) for _, line, _ in calls]
    assert all(line in allowed for line, allowed in zip(line_numbers(watch, calls), expected, strict=True))
    line = watch.line(threading.get_native_id(), calls[-1][0], "f")
    assert line is not None
    assert (line.file, line.text) == ("program.py", 'note((time.time_ns(), 17, "f"))')


def test_calls_in_course_helpers_have_the_line_of_the_learner(tmp_path: Path) -> None:
    texts = {
        "gpulab_course.content.fake": "import time\ndef helper(note):\n    x = 1\n    note(time.time_ns())\n",
        "program": "def program(helper, note):\n    y = 1\n    helper(note)  # here\n",
    }
    modules: dict[str, dict[str, Any]] = {}
    for name, text in texts.items():
        path = tmp_path / f"{name.rpartition('.')[2]}.py"
        path.write_text(text)
        modules[name] = {"__name__": name}
        exec(compile(text, str(path), "exec"), modules[name])
    times_ns: list[int] = []
    watch = LineWatch()
    watch.start()
    try:
        modules["program"]["program"](modules["gpulab_course.content.fake"]["helper"], times_ns.append)
    finally:
        watch.stop()
    line = watch.line(threading.get_native_id(), times_ns[0], "launch")
    assert line is not None
    assert (line.file, line.text) == ("program.py", "helper(note)  # here")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="lines cannot be silenced one by one")
def test_calls_keep_lines_after_line_events_are_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_watch, "MAX_LINE_EVENTS", 20)
    watch, calls = watched(tmp_path, 200)
    wrong = Counter(
        (line, name)
        for (_, line, name), result in zip(calls, line_numbers(watch, calls), strict=True)
        if result is not None and result != line and line != 10
    )
    assert not wrong
    assert line_numbers(watch, calls)[-3:] == [17, 17, 17]


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="lines are silenced one by one")
def test_no_line_is_known_after_the_event_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_watch, "MAX_LINE_EVENTS", 20)
    watch, calls = watched(tmp_path, 200)
    lines = line_numbers(watch, calls)
    silent = lines.index(None)
    assert 20 < silent < 100
    assert lines[silent:] == [None] * (len(lines) - silent)


def test_a_watch_removes_its_trace_function(tmp_path: Path) -> None:
    traced = sys.gettrace()
    watched(tmp_path, 3)
    assert sys.gettrace() is traced
    if sys.version_info >= (3, 12):
        assert all(sys.monitoring.get_tool(tool) != "gpulab" for tool in range(6))


def test_calls_of_an_unwatched_thread_have_no_line(tmp_path: Path) -> None:
    watch, calls = watched(tmp_path, 3)
    assert watch.line(1, calls[0][0], "a") is None


def test_no_line_is_known_while_a_debugger_is_tracing(tmp_path: Path) -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("several tools watch lines side by side")
    sys.settrace(lambda *_: None)
    try:
        watch, calls = watched(tmp_path, 3)
    finally:
        sys.settrace(None)
    assert set(line_numbers(watch, calls)) == {None}


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")
def test_no_line_is_known_without_a_free_monitoring_tool(tmp_path: Path) -> None:
    free_tools = [tool for tool in range(6) if sys.monitoring.get_tool(tool) is None]
    for tool in free_tools:
        sys.monitoring.use_tool_id(tool, "another")
    try:
        watch, calls = watched(tmp_path, 3)
    finally:
        for tool in free_tools:
            sys.monitoring.free_tool_id(tool)
    assert set(line_numbers(watch, calls)) == {None}


def test_line_events_of_a_long_loop_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line events of a loop of 200,000 iterations are disabled after the first thousand."""
    counts: Counter[int] = Counter()
    begin = LineWatch._begin_line

    def counting(self: LineWatch, code: CodeType, line: int, *key: Any) -> bool:
        counts[line] += 1
        return begin(self, code, line, *key)

    monkeypatch.setattr(LineWatch, "_begin_line", counting)
    path = tmp_path / "loop.py"
    text = "def loop(n):\n    for _ in range(n):\n        abs(1)\n"
    path.write_text(text)
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)
    watch = LineWatch()
    watch.start()
    names["loop"](200_000)
    watch.stop()
    assert max(counts.values()) == line_watch.MAX_LINE_EVENTS
