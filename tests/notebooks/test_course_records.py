"""What the notebooks show where a machine lacks the device or the tool: shipped records, said to be such."""

from __future__ import annotations

import multiprocessing

import pytest

import gpulab as gl
from gpulab.lab import kernels
from gpulab_course.content.n01_devices import context, forks, sensors
from gpulab_course.content.n03_lanes import machine_code
from tests.notebooks.course import FOLDER, code_cells, read
from virtualgpu.compile import nvrtc, sass


def test_context_creation_dominates_the_recorded_first_calls() -> None:
    gl.use_device("virtual:A100")
    view = context.first_calls()
    assert view.provenance.source == "recorded"
    assert "recorded on NVIDIA H200" in repr(view)
    active = [step.active for step in view.record]
    assert active == sorted(active)
    first = view.record[active.index(True)]
    before = view.record[active.index(True) - 1]
    assert first.memory_bytes is not None
    assert before.memory_bytes is not None
    assert first.memory_bytes > 10 * before.memory_bytes


def test_recorded_sensors_follow_the_gpu_load() -> None:
    gl.use_device("virtual:A100")
    series = sensors.series()
    assert series.provenance.source == "recorded"
    assert {len(column) for column in series.columns.values()} == {len(series.time_s)}
    begins = dict(reversed(series.phases))
    power = dict(zip(series.time_s, series.columns["power"], strict=True))
    busy = [watts for time_s, watts in power.items() if 1.5 < time_s - begins["matrix products"] < 2.0]
    idle = [watts for time_s, watts in power.items() if time_s < begins["matrix products"]]
    assert min(busy) > 2 * max(idle)
    assert series.provenance.label in repr(series.picture())


@pytest.mark.skipif(not (nvrtc.is_available() and sass.is_available()), reason="NVRTC or nvdisasm is missing")
def test_the_shipped_machine_code_equals_the_compiled_one(monkeypatch: pytest.MonkeyPatch) -> None:
    (cell,) = [cell for cell in code_cells(read(FOLDER / "03_lanes.ipynb")) if cell.id == "predicate"]
    gl.use_device("virtual:A100")
    tables: list[machine_code.AsRunTable] = []

    def run() -> None:
        names = {"gl": gl, "cp": gl.cp}
        exec(cell.source, names)
        tables.append(names["comparison"])  # type: ignore[arg-type]

    def missing(*_: object) -> None:
        raise sass.NvdisasmMissingError

    run()
    monkeypatch.setattr(kernels, "machine_code", missing)
    run()
    local, shipped = tables
    assert [(b.line, b.written, b.divergent) for b in local.record.branches] == [
        (b.line, b.written, b.divergent) for b in shipped.record.branches
    ]
    assert [(a.line, a.opcode, a.executions) for a in local.record.accesses] == [
        (a.line, a.opcode, a.executions) for a in shipped.record.accesses
    ]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
def test_forked_worker_fails_and_spawned_worker_runs() -> None:
    gl.use_device("virtual:T4")
    lines = dict(line.strip().split(": ", 1) for line in forks.tried().splitlines())
    assert lines["parent"] == lines["spawn"] == "an array of 4 elements"
    assert lines["fork"].startswith("CUDARuntimeError: cudaErrorInitializationError")
