"""What watches a block: beginning, end, words till then and display, of a new one and of those there are."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpulab as gl
from tests.session.sample import watcher
from tests.session.sample.pauses import PauseRecorder
from tests.session.sample.watcher import pauses
from virtualgpu.errors import GpulabError

WATCHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "pauses": (pauses, "List of pauses"),
    "timeline": (gl.timeline, "Timeline"),
    "memory": (gl.memory, "Memory recording"),
    "allocator": (gl.allocator, "Memory pool"),
    "host memory": (gl.host_memory, "Count of host memory"),
    "streams": (gl.check_streams, "Check of streams"),
}
WITH_DISPLAY = ("pauses", "memory")


@pytest.fixture(autouse=True)
def virtual() -> Iterator[None]:
    gl.use_device("virtual:T4")
    gc.disable()  # a pause that nobody asked for would be one more in the list
    yield
    gc.enable()


def heard() -> int:
    return sum(isinstance(getattr(hear, "__self__", None), PauseRecorder) for hear in gc.callbacks)


def mime(thing: Any) -> dict[str, Any] | None:
    found = thing._repr_mimebundle_()
    return None if found is None else found[0]


def test_a_new_one_costs_sixty_lines(tmp_path: Path) -> None:
    assert len(Path(watcher.__file__).read_text("utf-8").splitlines()) <= 60
    with pauses() as p:
        gc.collect()
        gc.collect(0)
    gc.collect()
    assert p.record.generations == (2, 0)
    assert heard() == 0
    assert repr(p).startswith("2 pauses of ")
    assert p.describe() == repr(p) == mime(p)["text/plain"]  # type: ignore[index]
    assert json.loads(p.save(tmp_path / "p.json").read_text())["took_ns"] == list(p.record.took_ns)
    assert p.save(tmp_path / "p.csv").read_text().split() == list(map(str, p.record.took_ns))
    assert p.save(tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"saved as \.csv, \.json, \.html, \.htm or \.png, not as 'p.doc'"):
        p.save(tmp_path / "p.doc")


@pytest.mark.parametrize("name", WATCHERS)
def test_before_and_while_it_records(name: str) -> None:
    make, called = WATCHERS[name]
    w = make()
    if name == "allocator":
        assert mime(w) is not None, "before its block it is the pool as it is now"
    else:
        assert repr(w).startswith(f"{called} that has not begun: write `with ")
        for asked in (lambda: w.record, w.describe, lambda: w.save("x.json")):
            with pytest.raises(GpulabError, match="has not begun"):
                asked()
        if name not in WITH_DISPLAY:
            assert mime(w) is None
    w.stop()  # what has not begun has no end
    assert w.start() is None
    with pytest.raises(GpulabError, match="is being recorded already"):
        w.start()
    if not w._live:
        assert repr(w) == f"{called} that is being recorded."
        assert mime(w) is None
        with pytest.raises(GpulabError, match=r"being recorded.*when the block has ended"):
            w.record  # noqa: B018
    w.stop()
    w.stop()
    assert w.record is not None
    assert mime(w) is not None
    with pytest.raises(GpulabError, match="make a new one: with "), w:
        pass


@pytest.mark.parametrize("name", WATCHERS)
def test_an_error_passes_and_what_is_forgotten_ends_with_a_warning(name: str) -> None:
    make, called = WATCHERS[name]
    with pytest.raises(ZeroDivisionError), make() as w:
        1 / 0  # noqa: B018
    assert w.record is not None
    forgotten = make()
    forgotten.start()
    with pytest.warns(ResourceWarning, match=f"(?i){called} was started and never stopped: with "):
        del forgotten
    with make():  # nothing is left that would refuse it
        pass


def test_a_display_begins_one_and_its_cell_run_again_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace()
    monkeypatch.setattr("IPython.core.getipython.get_ipython", lambda: shell)

    def run(cell: str, number: int) -> Any:
        shell.get_parent = lambda: {"metadata": {"cellId": cell}, "header": {"msg_id": f"run {number}"}}
        p = pauses()
        assert heard() == number - 1, "made, it does nothing"
        assert mime(p) is not None
        assert heard() == number
        return p

    first = run("a", 1)
    other = run("b", 2)
    shell.get_parent = lambda: {"metadata": {"cellId": "a"}, "header": {"msg_id": "run 3"}}
    again = pauses()
    again._repr_mimebundle_()
    gc.collect(1)
    assert heard() == 2
    assert [len(p.record.took_ns) for p in (first, other, again)] == [0, 1, 1]
    other._picture().close()
    assert heard() == 1
    again.stop()
    assert heard() == 0
    again._picture().close()


def test_a_picture_of_before_the_block_is_not_shown_after_it() -> None:
    a = gl.allocator()
    before = a._picture()
    assert a.history.last_step == len(a.requests) == 0
    with a:
        kept = gl.cp.zeros(1000)
    assert before.record is not a.record
    assert a._picture().record is a.record
    assert a.at(-1).used_bytes - a.at(0).used_bytes == 8192 > kept.nbytes
    assert len(a.requests) == 1


def test_another_device_within_the_block_is_said() -> None:
    with gl.allocator() as a:
        gl.use_device("virtual:A100")
    assert a.record.provenance.device == "virtual T4"
    assert a.record.note == "The session moved to another device within the block; this is the T4."
