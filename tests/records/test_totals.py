"""What records compute: sums and shares; CUDA's attributes; and their files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.records.traces import MODELLED, detail, launch_trace, warp_trace
from virtualgpu.model.devices import device_info
from virtualgpu.records import (
    AccessCounters,
    BranchCounters,
    Hazard,
    KernelCounters,
    Place,
    Provenance,
    SanitizerReport,
)
from virtualgpu.records.as_run import AccessAsRun, AsRun, BranchAsRun
from virtualgpu.records.device.attributes import ATTRIBUTES, info_fields
from virtualgpu.records.io import VERSION, TraceFormatError, as_recorded, check_version, load, read, save
from virtualgpu.records.memory import Block, BlockMap, Segment

# ``enum cudaDeviceAttr`` of CUDA 12's driver_types.h, CuPy's key of the same quantity, and the virtual H200's
# value: an H200's own (tests/virtual/test_device_attributes.py), that of the CUDA C++ Programming Guide for
# textures and surfaces, and 0 for features that the virtual GPU does not have (ECC, persisting L2, clusters).
ATTRIBUTE_ROWS = {
    1: ("MaxThreadsPerBlock", "maxThreadsPerBlock", 1024),
    2: ("MaxBlockDimX", "", 1024),
    3: ("MaxBlockDimY", "", 1024),
    4: ("MaxBlockDimZ", "", 64),
    5: ("MaxGridDimX", "", 2**31 - 1),
    6: ("MaxGridDimY", "", 65535),
    7: ("MaxGridDimZ", "", 65535),
    8: ("MaxSharedMemoryPerBlock", "sharedMemPerBlock", 48 << 10),
    9: ("TotalConstantMemory", "totalConstMem", 64 << 10),
    10: ("WarpSize", "warpSize", 32),
    11: ("MaxPitch", "memPitch", 2**31 - 1),
    12: ("MaxRegistersPerBlock", "regsPerBlock", 65536),
    13: ("ClockRate", "clockRate", 1_980_000),
    14: ("TextureAlignment", "textureAlignment", 512),
    16: ("MultiProcessorCount", "multiProcessorCount", 132),
    17: ("KernelExecTimeout", "kernelExecTimeoutEnabled", 0),
    18: ("Integrated", "integrated", 0),
    19: ("CanMapHostMemory", "canMapHostMemory", 1),
    20: ("ComputeMode", "computeMode", 0),
    21: ("MaxTexture1DWidth", "maxTexture1D", 131072),
    22: ("MaxTexture2DWidth", "", 131072),
    23: ("MaxTexture2DHeight", "", 65536),
    24: ("MaxTexture3DWidth", "", 16384),
    25: ("MaxTexture3DHeight", "", 16384),
    26: ("MaxTexture3DDepth", "", 16384),
    27: ("MaxTexture2DLayeredWidth", "", 32768),
    28: ("MaxTexture2DLayeredHeight", "", 32768),
    29: ("MaxTexture2DLayeredLayers", "", 2048),
    30: ("SurfaceAlignment", "surfaceAlignment", 512),
    31: ("ConcurrentKernels", "concurrentKernels", 1),
    32: ("EccEnabled", "ECCEnabled", 0),
    35: ("TccDriver", "tccDriver", 0),
    36: ("MemoryClockRate", "memoryClockRate", 3_201_000),
    37: ("GlobalMemoryBusWidth", "memoryBusWidth", 6016),
    38: ("L2CacheSize", "l2CacheSize", 60 << 20),
    39: ("MaxThreadsPerMultiProcessor", "maxThreadsPerMultiProcessor", 2048),
    40: ("AsyncEngineCount", "asyncEngineCount", 3),
    41: ("UnifiedAddressing", "unifiedAddressing", 1),
    42: ("MaxTexture1DLayeredWidth", "", 32768),
    43: ("MaxTexture1DLayeredLayers", "", 2048),
    51: ("TexturePitchAlignment", "texturePitchAlignment", 32),
    55: ("MaxSurface1DWidth", "maxSurface1D", 32768),
    56: ("MaxSurface2DWidth", "", 131072),
    57: ("MaxSurface2DHeight", "", 65536),
    58: ("MaxSurface3DWidth", "", 16384),
    59: ("MaxSurface3DHeight", "", 16384),
    60: ("MaxSurface3DDepth", "", 16384),
    61: ("MaxSurface1DLayeredWidth", "", 32768),
    62: ("MaxSurface1DLayeredLayers", "", 2048),
    63: ("MaxSurface2DLayeredWidth", "", 32768),
    64: ("MaxSurface2DLayeredHeight", "", 32768),
    65: ("MaxSurface2DLayeredLayers", "", 2048),
    69: ("MaxTexture1DLinearWidth", "maxTexture1DLinear", 1 << 28),
    70: ("MaxTexture2DLinearWidth", "", 131072),
    71: ("MaxTexture2DLinearHeight", "", 65000),
    72: ("MaxTexture2DLinearPitch", "", 2097120),
    75: ("ComputeCapabilityMajor", "major", 9),
    76: ("ComputeCapabilityMinor", "minor", 0),
    78: ("StreamPrioritiesSupported", "streamPrioritiesSupported", 1),
    79: ("GlobalL1CacheSupported", "globalL1CacheSupported", 1),
    80: ("LocalL1CacheSupported", "localL1CacheSupported", 1),
    81: ("MaxSharedMemoryPerMultiprocessor", "sharedMemPerMultiprocessor", 228 << 10),
    82: ("MaxRegistersPerMultiprocessor", "regsPerMultiprocessor", 65536),
    83: ("ManagedMemory", "managedMemory", 1),
    84: ("IsMultiGpuBoard", "isMultiGpuBoard", 0),
    86: ("HostNativeAtomicSupported", "hostNativeAtomicSupported", 0),
    88: ("PageableMemoryAccess", "pageableMemoryAccess", 0),
    89: ("ConcurrentManagedAccess", "concurrentManagedAccess", 1),
    90: ("ComputePreemptionSupported", "computePreemptionSupported", 1),
    91: ("CanUseHostPointerForRegisteredMem", "canUseHostPointerForRegisteredMem", 1),
    95: ("CooperativeLaunch", "cooperativeLaunch", 1),
    96: ("CooperativeMultiDeviceLaunch", "cooperativeMultiDeviceLaunch", 0),
    97: ("MaxSharedMemoryPerBlockOptin", "sharedMemPerBlockOptin", 227 << 10),
    99: ("HostRegisterSupported", "", 1),
    100: ("PageableMemoryAccessUsesHostPageTables", "pageableMemoryAccessUsesHostPageTables", 0),
    101: ("DirectManagedMemAccessFromHost", "directManagedMemAccessFromHost", 0),
    106: ("MaxBlocksPerMultiprocessor", "maxBlocksPerMultiProcessor", 32),
    108: ("MaxPersistingL2CacheSize", "persistingL2CacheMaxSize", 0),
    109: ("MaxAccessPolicyWindowSize", "accessPolicyMaxWindowSize", 0),
    111: ("ReservedSharedMemoryPerBlock", "reservedSharedMemPerBlock", 1024),
    115: ("MemoryPoolsSupported", "", 1),
    120: ("ClusterLaunch", "", 0),
}
H200 = {number: value for number, (_, _, value) in ATTRIBUTE_ROWS.items()}


def test_attributes_have_cudas_numbers_names_and_h200_values() -> None:
    info = device_info("H200")
    rows = {known.number: (known.name, known.property, known.find_value(info)) for known in ATTRIBUTES}
    assert rows == ATTRIBUTE_ROWS
    assert len(ATTRIBUTES) == len(ATTRIBUTE_ROWS)
    unknown = dataclasses.replace(info, boost_clock_mhz=None)
    assert {known.number: known.find_value(unknown) for known in ATTRIBUTES}[13] == 0


def test_device_info_from_numbered_attributes() -> None:
    info = device_info("H200")
    fields = info_fields(H200.get)
    assert fields == {name: getattr(info, name) for name in fields}
    assert len(fields) == 18
    # Clocks may be a fraction of a MHz; threads of an incomplete warp do not count.
    odd = info_fields({13: 1_980_500, 39: 2047}.get)
    assert (odd["boost_clock_mhz"], odd["max_warps_per_sm"]) == (1980.5, 63)
    assert isinstance(odd["max_warps_per_sm"], int)
    assert (info.max_threads_per_sm, info.capability) == (2048, "9.0")


# Sums ---------------------------------------------------------------------------------------------------


SHAPE: dict[str, Any] = {"provenance": MODELLED, "kernel_name": "k", "grid": (1, 1, 1), "block": (32, 1, 1)}


def _access(space: str, kind: str, requests: int, wavefronts: int) -> AccessCounters:
    return AccessCounters(
        pc=0,
        line=1,
        text="",
        space=space,
        kind=kind,
        size_bytes=4,
        requests=requests,
        sectors=3,
        wavefronts=wavefronts,
        ideal_wavefronts=2,
        bytes_requested=128,
    )  # type: ignore[arg-type]


def test_counters_are_summed_by_space_and_kind() -> None:
    rows = (
        _access("global", "load", 1, 2),
        _access("global", "store", 10, 2),
        _access("shared", "load", 100, 7),
    )
    branches = (BranchCounters(0, 1, "", 5, 2), BranchCounters(1, 2, "", 9, 4))
    counters = KernelCounters(
        **SHAPE,
        shared_bytes=0,
        warp_instructions=10,
        thread_instructions=160,
        accesses=rows,
        branches=branches,
    )
    assert counters.total("requests") == 111
    assert counters.total("requests", "global") == 11
    assert counters.total("requests", kind="load") == 101
    assert counters.total("requests", "global", "store") == 10
    assert counters.total("requests", "local") == 0
    assert [row.bank_conflicts for row in rows] == [0, 0, 5]
    assert counters.divergent_branches == 6
    assert counters.lane_efficiency == 0.5
    assert dataclasses.replace(counters, warp_instructions=0).lane_efficiency == 0.0


def _run(space: str, kind: str, requests: int | None, executions: int | None, note: str = "") -> AccessAsRun:
    return AccessAsRun(
        pc=0,
        line=1,
        text="",
        space=space,
        kind=kind,
        opcode="LDG",
        size_bytes=4,
        written=9,
        requests=requests,
        executions=executions,
        merged_into=None,
        note=note,
    )  # type: ignore[arg-type]


def test_machine_code_totals_are_unknown_if_a_row_is_unknown() -> None:
    rows = (
        _run("global", "load", 1, 2, "merged"),
        _run("global", "store", 10, None),
        _run("shared", "load", 0, 7, "merged"),
    )
    branches = (
        BranchAsRun(pc=0, line=1, text="", opcode="BRA", written=3, divergent=2),
        BranchAsRun(pc=1, line=1, text="", opcode="", written=3, divergent=0, note="predicated"),
    )
    extra = (("spilled registers", 2),)
    run = AsRun(**SHAPE, target="sm_90", accesses=rows, branches=branches, extra=extra)
    assert run.total("requests", "global") == 11
    assert run.total("requests", kind="load") == 1
    assert run.total("executions") is None
    assert run.total("executions", kind="load") == 9
    assert run.total("executions", "global") is None
    assert run.total("executions", "local") == 0
    assert run.differences == ("merged", "predicated")  # each note once, accesses first
    assert run.divergent_branches == 2
    unknown = BranchAsRun(pc=2, line=1, text="", opcode="BRA", written=1, divergent=None)
    assert dataclasses.replace(run, branches=(*branches, unknown)).divergent_branches is None
    extra = (*extra, ("branches of a division", 1))
    assert dataclasses.replace(run, extra=extra).divergent_branches is None


def test_total_used_and_free_bytes_of_a_pool() -> None:
    first = (
        Block(address=512, size_bytes=512, is_free=False, requested_bytes=500, label="x"),
        Block(address=1024, size_bytes=1024, is_free=True),
        Block(address=2048, size_bytes=512, is_free=False, requested_bytes=1),
    )
    second = (Block(address=8192, size_bytes=1536, is_free=True),)
    pool = BlockMap(MODELLED, 0, 0, 0, (Segment(512, 2048, 0, first), Segment(8192, 1536, 7, second)))
    assert pool.blocks == first + second
    assert (pool.total_bytes, pool.used_bytes, pool.free_bytes) == (3584, 1024, 2560)
    assert pool.largest_free_bytes == 1536
    assert [block.end for block in first] == [1024, 2048, 2560]
    full = BlockMap(MODELLED, 0, 0, 0, (Segment(512, 512, 0, first[:1]),))
    assert (full.largest_free_bytes, full.free_bytes) == (0, 0)


def test_launch_properties_and_provenance_labels() -> None:
    trace = launch_trace([(0, 0, 0, 7), (1, 1, 2, 5)], (3, 4, 5), 6, 4)
    assert (trace.span_ns, trace.blocks_per_wave, trace.waves) == (7, 24, 60 / 24)
    assert trace.occupancy.fraction == 8 / 64
    assert dataclasses.replace(trace.occupancy, max_warps_per_sm=0).fraction == 0.0
    assert Provenance("measured", "H200").label == "measured on H200"
    assert Provenance("recorded", "H200", "in May").label == "recorded on H200 (in May)"


def test_a_report_is_clean_without_errors() -> None:
    error, note = (
        Hazard(
            tool="race",
            kind=kind,
            severity=severity,
            space="shared",
            kernel="k",
            first=None,
            second=Place(3, "x;", (0, 0, 0), (1, 0, 0)),
            address=0,
            array="tile",
            count=1,
            message="",
        )  # type: ignore[arg-type]
        for kind, severity in (("RAW", "error"), ("NaN", "info"))
    )
    report = SanitizerReport(
        **SHAPE, shared_bytes=0, tools=("race",), block_order="in order", hazards=(error, note)
    )
    assert (report.found("RAW"), report.found("NaN"), report.found("WAR")) == ((error,), (note,), ())
    assert not report.clean
    assert dataclasses.replace(report, hazards=(note,)).clean
    assert not dataclasses.replace(report, hazards=(), fault="CUDA_ERROR").clean


# Files --------------------------------------------------------------------------------------------------


def test_records_are_saved_and_loaded_unchanged(tmp_path: Path) -> None:
    trace = warp_trace([0, 1, 1], detail=detail([0, 0, 0], range(2), [(1, 1)]), note="°C")
    counters = KernelCounters(
        **SHAPE,
        shared_bytes=0,
        warp_instructions=1,
        thread_instructions=2,
        accesses=(_access("global", "load", 1, 2),),
        line_warp_instructions={3: 4, 10: 1},
    )
    run = AsRun(**SHAPE, target="sm_90", accesses=(_run("global", "load", None, 1),), branches=())
    for record in (trace, counters, run, launch_trace([(0, 0, 0, 7)], (1, 1, 1), 1, 1), device_info("H200")):
        for name, written in (("record", "record.npz"), ("record.gpu", "record.gpu")):
            path = save(record, tmp_path / name)
            assert path == tmp_path / written
            copy = load(path)
            assert type(copy) is type(record)
            _assert_same(copy, record)
    scalar = dataclasses.replace(counters, warp_instructions=np.int64(7))
    assert load(save(scalar, str(tmp_path / "b.npz"))).warp_instructions == 7


def _assert_same(copy: object, original: object) -> None:
    if isinstance(original, np.ndarray):
        assert isinstance(copy, np.ndarray)
        assert copy.dtype == original.dtype
        np.testing.assert_array_equal(copy, original)
    elif dataclasses.is_dataclass(original):
        for field in dataclasses.fields(original):
            _assert_same(getattr(copy, field.name), getattr(original, field.name))
    else:
        assert copy == original
        assert type(copy) is type(original)


def test_other_values_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="int is not a record of gpulab"):
        save(5, tmp_path / "x")
    assert not list(tmp_path.iterdir())
    with pytest.raises(TraceFormatError, match=r"notes\.txt contains no gpulab record"):
        read(b"not a zip", "notes.txt")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(TraceFormatError, match=r"other\.npz contains no gpulab record"):
        load(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.npz")
    for version in (0, 1):
        check_version({"format": "f", "version": version}, "f", "x")
    check_version({"format": "f"}, "f", "x")
    with pytest.raises(TraceFormatError, match="written by a newer version of gpulab"):
        check_version({"format": "f", "version": 2}, "f", "x")
    for header in ({"format": "g", "version": 1}, {}, [], None):
        with pytest.raises(TraceFormatError, match="x does not have the format f"):
            check_version(header, "f", "x")


def _rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of a record's file."""
    with np.load(path) as file:
        content = {name: file[name] for name in file.files}
    header = json.loads(bytes(content["header"]))
    change(header)
    content["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **content)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: header["record"].update(record="Nothing"), "damaged or incomplete"),
        (lambda header: header["record"]["fields"].pop("name"), "damaged or incomplete"),
        (lambda header: header["record"]["fields"].update(name={"array": "lost"}), "damaged or incomplete"),
        (lambda header: header.update(version=VERSION + 1), "newer version of gpulab"),
    ],
)
def test_damaged_and_newer_files_are_refused(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    path = save(device_info("H200"), tmp_path / "h200")
    _rewrite(path, change)
    with pytest.raises(TraceFormatError, match=rf"h200\.npz.*{message}"):
        load(path)


def test_fields_of_other_versions_are_ignored_or_take_their_defaults(tmp_path: Path) -> None:
    trace = launch_trace([(0, 0, 0, 7)], (1, 1, 1), 1, 1)
    path = save(dataclasses.replace(trace, note="x"), tmp_path / "trace")
    _rewrite(path, lambda header: header["record"]["fields"].update(to_come=1))
    assert load(path).note == "x"
    _rewrite(path, lambda header: header["record"]["fields"].pop("note"))
    assert load(path).note == ""


def test_as_recorded_changes_all_measured_provenances() -> None:
    trace = launch_trace([(0, 0, 0, 7)], (1, 1, 1), 1, 1)
    bare = dataclasses.replace(trace.occupancy, provenance=Provenance("measured", "H200"))
    recorded = as_recorded(dataclasses.replace(trace, occupancy=bare), "in May")
    assert recorded.provenance == Provenance("recorded", "A100", "by hand; in May")
    assert recorded.occupancy.provenance == Provenance("recorded", "H200", "in May")
    assert recorded.sm_id is trace.sm_id
    assert trace.provenance == MODELLED
