"""``save`` of results: the file extension selects the format, and unknown extensions are refused."""

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
    with call() as report:
        gl.cp.zeros(1000).sum().get()
    return report


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
def test_the_extension_selects_the_format_and_unknown_ones_fail(name: str, tmp_path: Path) -> None:
    make, endings = THINGS[name]
    thing = make()
    for number, ending in enumerate(endings):
        path = tmp_path / f"x{number}{ending.upper() if number % 2 else ending}"
        assert thing.save(str(path)) == path
        content = path.read_bytes()
        assert content
        assert content.lower().startswith(STARTS[ending].lower())
    for wrong in ("x.xyz", "x", "png", "x.png.bak"):
        with pytest.raises(ValueError, match=f"'{wrong}' cannot be written") as error:
            thing.save(tmp_path / wrong)
        assert all(ending in str(error.value) for ending in endings)
    assert len([*tmp_path.iterdir()]) == len(endings), "a refused file is not written"


def test_json_contains_the_record(tmp_path: Path) -> None:
    with gl.memory(rate_hz=5) as m:
        x = gl.cp.zeros(1 << 20, gl.cp.uint8)
    data = json.loads(m.save(tmp_path / "x.json").read_text("utf-8"))
    assert data["marks"]["allocated_bytes"] == [x.nbytes]
    assert data["used_bytes"] == [None if u != u else u for u in m.record.used_bytes.tolist()]
    assert io.load(io.save(m.record, tmp_path / "x.npz")).provenance.source == data["provenance"]["source"]
