"""Notebook 08: the map of copies, recorded tables, and results in other kinds of memory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab import session
from gpulab_course.content.n08_copies import elsewhere, figures, where
from gpulab_course.content.n08_copies.memory import managed, mapped
from virtualgpu.errors import GpulabError
from virtualgpu.records import Activity, HostCall, Provenance, SourceLine, Timeline

MIB = 1 << 20


@pytest.fixture(autouse=True)
def t4() -> Iterator[None]:
    with session.on_device("virtual:T4"):
        yield


def activity(number: int, copy_kind: Any, pinned: bool | None, took_ns: int, **fields: Any) -> Activity:
    start = 10_000_000 * number
    return Activity(
        kind="MEMCPY",
        name=f"Memcpy {copy_kind}",
        device_id=0,
        stream_id=0,
        correlation_id=number,
        start_ns=start,
        end_ns=start + took_ns,
        size_bytes=16 * MIB,
        copy_kind=copy_kind,
        pinned=pinned,
        **fields,
    )


def timeline(*activities: Activity, calls_ns: tuple[int, ...] = ()) -> gl.timeline:
    line = SourceLine("cell [1]", 1, "  x.set(a)")
    calls = tuple(
        HostCall("cudaMemcpyAsync", 0, took_ns, 0, number + 1, line)
        for number, took_ns in enumerate(calls_ns)
    )
    from gpulab.lab.timeline import TimelineReport

    return TimelineReport(
        Timeline(
            provenance=Provenance("recorded", "NVIDIA H200"),
            method="CUPTI",
            start_ns=0,
            end_ns=1 << 40,
            activities=activities,
            calls=calls,
        )
    )


def test_a_copy_has_a_path_a_rate_and_a_host_wait() -> None:
    view = where.where(
        timeline(
            activity(1, "HtoD", False, 2_000_000),
            activity(2, "HtoD", True, 300_000),
            activity(3, "DtoH", True, 300_000),
            activity(4, "DtoD", None, 10_000),
            activity(5, "PtoP", None, 40_000),
            replace(activity(6, "HtoD", None, 310_000), name="Memprefetch HtoD"),
            calls_ns=(1_900_000, 4_000),
        )
    )
    assert [m.way for m in view.record] == ["pageable", "pinned", "pinned", "at home", "peer", "prefetch"]
    assert [m.to_host for m in view.record] == [False, False, True, False, False, False]
    assert view.record[1].gbps == pytest.approx(16 * MIB / 300_000)
    assert [m.host_waited for m in view.record[:2]] == [True, False]
    assert "x.set(a): pageable to device, 16 MiB in 2 ms, 8.39 GB/s. The host waited" in view.describe()
    assert "recorded on NVIDIA H200" in repr(view)
    assert view.png().startswith(b"\x89PNG")


def test_every_kind_of_transfer_is_drawn_on_the_map() -> None:
    places = set(where._MAP_BOXES)
    for way, arrows in where._ARROWS_OF_WAY.items():
        assert {name for pair in arrows for name in pair} <= places
        assert where._TEXT_OF_WAY[way].endswith(".")
        pictures = {str(where._draw_map(where.DataTransfer(way, back, MIB, 1000))) for back in (False, True)}
        assert len(pictures) == 2, way
    assert len(
        {str(where._draw_map(where.DataTransfer(way, False, MIB, 1000))) for way in where._ARROWS_OF_WAY}
    ) == len(where._ARROWS_OF_WAY)


def test_an_empty_timeline_raises_an_error_with_advice() -> None:
    with pytest.raises(ValueError, match="Put copies into the timeline"):
        where.where(timeline())


def test_kernels_are_classified_by_the_memory_of_their_arrays() -> None:
    cp = gl.cp
    cupyx = gl.cupyx
    n = 1 << 20
    pinned = cupyx.zeros_pinned(n, np.float32)
    arrays = (mapped(pinned), managed(n), cp.zeros(n, cp.float32))
    np.from_dlpack(arrays[1])[...] = 1
    out = cp.empty(n, cp.float32)
    cp.cuda.Device().synchronize()
    with gl.timeline() as t:
        for x in (*arrays, arrays[1]):
            cp.multiply(x, 2, out=out)
    view = where.where(t, reads=(*arrays, arrays[1]))
    assert [move.way for move in view.record] == ["zero-copy", "managed", "at home", "at home"]


def test_managed_memory_is_refused_before_the_allocation() -> None:
    cp = gl.cp
    free, total = cp.cuda.runtime.memGetInfo()
    with pytest.raises(GpulabError, match="can hang a"):
        managed((free // 4 + 1,))
    assert cp.cuda.runtime.memGetInfo() == (free, total)
    x = managed((3, 5), np.int32)
    assert (x.shape, x.dtype) == ((3, 5), np.int32)
    assert cp.cuda.runtime.pointerGetAttributes(x.data.ptr).type == cp.cuda.runtime.memoryTypeManaged


@pytest.mark.parametrize("name", ["rates", "frameworks", "managed", "two_processes", "from_file"])
def test_recorded_tables_name_their_device(name: str) -> None:
    table = getattr(elsewhere, name)()
    assert "recorded on NVIDIA H200 (2026-" in repr(table)
    assert table.provenance.source == "recorded"
    assert "<table" in table._repr_html_()


def test_recorded_numbers_agree_with_the_notebook_text() -> None:
    record = elsewhere.load_recordings()["h200"]
    assert record["torch"]["read before it came"] == 0.0
    assert record["torch"]["pageable to cuda, non_blocking"]["call_us"] > 8_000
    assert record["managed"]["kernel, pages on the host"] == pytest.approx(7_000, rel=0.05)
    assert record["managed"]["prefetch"] == pytest.approx(1_400, rel=0.05)
    assert record["zero-copy"]["zero-copy, 8 reads"] == pytest.approx(12_900, rel=0.01)
    assert record["ipc"]["sum here"] == 2 * record["ipc"]["sum there"]


def test_a_failure_on_a_gpu_falls_back_to_the_record(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = replace(session.which_device(), kind="cuda", device="NVIDIA L4")
    monkeypatch.setattr(session, "which_device", lambda: real)

    def fails(command: list[str], **_: Any) -> None:
        raise subprocess.CalledProcessError(1, command, stderr="Traceback\nRuntimeError: no IPC here\n")

    monkeypatch.setattr(subprocess, "run", fails)
    table = elsewhere.two_processes()
    assert "recorded on NVIDIA H200" in repr(table)
    assert "On this NVIDIA L4 it failed: RuntimeError: no IPC here" in capsys.readouterr().out


def as_list(x: Any) -> Any:
    """Return three device arrays in a list, as an answer may do."""
    return [x.min(), x.max(), x.sum()]


def as_tuple(x: Any) -> Any:
    """Return three device arrays in a tuple, as an answer may do."""
    return x.min(), x.max(), x.sum()


@pytest.mark.parametrize(("answer", "kind"), [(as_list, "list"), (as_tuple, "tuple")])
def test_a_wrong_type_of_result_is_reported(answer: Any, kind: str) -> None:
    verdict = gl.check("08-report", answer)
    assert not verdict.passed
    assert f" returns {kind}, but the result should be" in repr(verdict)


def test_the_picture_of_pages_names_the_times_of_each_step() -> None:
    origin = Provenance("modelled", "virtual T4")
    caption = repr(figures.page_migration(16 << 20, 2.1e6, 23_600, 711_000, origin))
    assert caption.startswith("Where the pages of an array of 16 MiB are, modelled on virtual T4.")
    for time in ("2.1 ms", "23.6 µs", "711 µs"):
        assert f"in {time}." in caption
