"""``with`` blocks that record: begin, end, state and display."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import gpulab as gl
from virtualgpu.errors import GpulabError
from virtualgpu.model import machine

WATCHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "timeline": (gl.timeline, "Timeline"),
    "memory": (gl.memory, "Memory recording"),
    "allocator": (gl.allocator, "Memory pool"),
    "host memory": (gl.host_memory, "Count of host memory"),
    "streams": (gl.check_streams, "Check of streams"),
}
LIVE = ("memory", "host memory")


@pytest.fixture(autouse=True)
def virtual() -> None:
    gl.use_device("virtual:T4")


def count_recorders() -> int:
    return len(gl.cp.cuda.memory_hook.get_memory_hooks())


def mime(report: Any) -> dict[str, Any] | None:
    bundle = report._repr_mimebundle_()
    return None if bundle is None else bundle[0]


@pytest.mark.parametrize("name", WATCHERS)
def test_use_before_and_during_the_recording(name: str) -> None:
    make, title = WATCHERS[name]
    report = make()
    if name == "allocator":
        assert mime(report) is not None, "before its block it is the pool as it is now"
    else:
        assert repr(report).startswith(f"{title} that has not started. Start it with `with ")
        for use in (lambda: report.record, report.describe, lambda: report.save("x.json")):
            with pytest.raises(GpulabError, match="has not started"):
                use()
        if name != "memory":
            assert mime(report) is None
    report.stop()  # without effect before the start
    assert report.start() is None
    with pytest.raises(GpulabError, match="is already being recorded"):
        report.start()
    if name not in LIVE:
        assert repr(report) == f"{title} that is being recorded."
        assert mime(report) is None
        with pytest.raises(GpulabError, match=r"being recorded.*when the block has ended"):
            report.record  # noqa: B018
    report.stop()
    report.stop()
    assert report.record is not None
    assert mime(report) is not None
    with pytest.raises(GpulabError, match="Create a new one: with "), report:
        pass


@pytest.mark.parametrize("name", WATCHERS)
def test_errors_propagate_and_unstopped_recordings_warn(name: str) -> None:
    make, title = WATCHERS[name]
    with pytest.raises(ZeroDivisionError), make() as report:
        1 / 0  # noqa: B018
    assert report.record is not None
    forgotten = make()
    forgotten.start()
    with pytest.warns(ResourceWarning, match=f"(?i){title} was started but never stopped: with "):
        del forgotten
    with make():
        pass
    assert machine.current().clock.watch is None


def test_display_starts_recording_and_rerunning_its_cell_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = SimpleNamespace()
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)

    def run(cell: str, number: int) -> Any:
        shell.get_parent = lambda: {"metadata": {"cellId": cell}, "header": {"msg_id": f"run {number}"}}
        before = count_recorders()
        report = gl.memory()
        assert count_recorders() == before, "a recording begins when it is displayed"
        assert mime(report) is not None
        return report

    run("a", 1)
    second = run("b", 2)
    assert count_recorders() == 2
    again = run("a", 3)
    assert count_recorders() == 2
    second._picture().close()
    assert count_recorders() == 1
    again.stop()
    assert count_recorders() == 0
    again._picture().close()


def test_report_shows_its_block_instead_of_the_earlier_pool() -> None:
    a = gl.allocator()
    before = a._picture()
    assert a.history.last_step == len(a.requests) == 0
    with a:
        array = gl.cp.zeros(1000)
    assert before.record is not a.record
    assert a._picture().record is a.record
    assert a.at(-1).used_bytes - a.at(0).used_bytes == 8192 > array.nbytes
    assert len(a.requests) == 1


def test_a_change_of_device_within_the_block_is_noted() -> None:
    with gl.allocator() as a:
        gl.use_device("virtual:A100")
    assert a.record.provenance.device == "virtual T4"
    assert "Another device was selected" in a.record.note
