"""``save`` of what a learner has: the ending says the format, and one that is not known is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpulab as gl
from virtualgpu.records import io

SOURCE = 'extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }'


def launched(call: Callable[..., Any]) -> Any:
    kernel = gl.cp.RawKernel(SOURCE, "twice")
    return call(kernel, (1,), (32,), (gl.cp.ones(32, gl.cp.float32),))


def graph() -> Any:
    x = gl.cp.ones(8, gl.cp.float32)
    return gl.graph(lambda a: a.fill(1), x)


def watched(call: Callable[[], Any]) -> Any:
    with call() as seen:
        gl.cp.zeros(1000).sum().get()
    return seen


PICTURE = (".html", ".htm", ".png")
THINGS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "view": (gl.device, PICTURE),
    "launch": (lambda: launched(gl.launch), PICTURE),
    "counters": (lambda: launched(gl.count), (".html", ".txt")),
    "timeline": (lambda: watched(gl.timeline), (".json", ".json.gz", *PICTURE)),
    "memory": (lambda: watched(gl.memory), (".csv", ".json", *PICTURE)),
    "allocator": (lambda: watched(gl.allocator), (".pickle", ".pkl", ".json", *PICTURE)),
    "host memory": (lambda: watched(gl.host_memory), (".json", ".html", ".txt")),
    "streams": (lambda: watched(gl.check_streams), (".json", ".html", ".txt")),
    "graph": (graph, PICTURE),
    "compared graph": (lambda: graph().compare(repeats=1), PICTURE),
    "answers": (lambda: watched(gl.timeline).overlap(), (".html", ".txt")),
    "diagnosis": (gl.doctor, (".html", ".txt")),
    "progress": (gl.progress, (".json",)),
}
STARTS = {
    ".html": b"<!doctype html>",
    ".htm": b"<!doctype html>",
    ".png": b"\x89PNG",
    ".json": b"{",
    ".json.gz": b"\x1f\x8b",
    ".csv": b"time_ns,",
    ".pickle": b"\x80",
    ".pkl": b"\x80",
    ".txt": b"",
}


@pytest.fixture(autouse=True)
def virtual() -> None:
    gl.use_device("virtual:T4")


@pytest.mark.parametrize("name", THINGS)
def test_the_ending_says_the_format_and_the_path_comes_back(name: str, tmp_path: Path) -> None:
    make, endings = THINGS[name]
    thing = make()
    for number, ending in enumerate(endings):
        wanted = tmp_path / f"x{number}{ending.upper() if number % 2 else ending}"
        found = thing.save(str(wanted))
        assert found == wanted
        content = found.read_bytes()
        assert content
        assert content.lower().startswith(STARTS[ending].lower())


@pytest.mark.parametrize("name", THINGS)
def test_another_ending_is_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    make, endings = THINGS[name]
    thing = make()
    folder = tmp_path / "files"
    folder.mkdir()
    for wrong in ("x.xyz", "x", "png", "x.png.bak"):
        with pytest.raises(ValueError, match="not as") as refused:
            thing.save(folder / wrong)
        known = f"{', '.join(endings[:-1])} or {endings[-1]}" if len(endings) > 1 else endings[0]
        assert str(refused.value) == f"It is saved as {known}, not as {wrong!r}."
    assert not list(folder.iterdir())


def test_json_holds_the_record(tmp_path: Path) -> None:
    with gl.memory(rate_hz=5) as m:
        x = gl.cp.zeros(1 << 20, gl.cp.uint8)
    told = json.loads(m.save(tmp_path / "x.json").read_text("utf-8"))
    assert told["marks"]["allocated_bytes"] == [x.nbytes]
    assert told["used_bytes"] == [None if u != u else u for u in m.record.used_bytes.tolist()]
    assert io.load(io.save(m.record, tmp_path / "x.npz")).provenance.source == told["provenance"]["source"]
