"""What a record says of itself: sums, shares and sentences; CUDA's attributes; and the way through a file."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tests.records.traces import MODELLED, detail, launch_trace, warp_trace
from virtualgpu.model.devices import device_info
from virtualgpu.records import (
    AccessCounters,
    Activity,
    BranchCounters,
    Hazard,
    KernelCounters,
    Occupancy,
    Place,
    Provenance,
    SanitizerReport,
)
from virtualgpu.records.as_run import AccessAsRun, AsRun, BranchAsRun
from virtualgpu.records.device.attributes import ATTRIBUTES, info_fields
from virtualgpu.records.io import TraceFormatError, as_recorded, check_version, load, read, save
from virtualgpu.records.memory import Block, BlockMap, Segment

# ``enum cudaDeviceAttr`` of CUDA 12's driver_types.h, and CuPy's key of the same quantity.
HEADER = {
    1: ("MaxThreadsPerBlock", "maxThreadsPerBlock"),
    2: ("MaxBlockDimX", ""),
    3: ("MaxBlockDimY", ""),
    4: ("MaxBlockDimZ", ""),
    5: ("MaxGridDimX", ""),
    6: ("MaxGridDimY", ""),
    7: ("MaxGridDimZ", ""),
    8: ("MaxSharedMemoryPerBlock", "sharedMemPerBlock"),
    9: ("TotalConstantMemory", "totalConstMem"),
    10: ("WarpSize", "warpSize"),
    12: ("MaxRegistersPerBlock", "regsPerBlock"),
    13: ("ClockRate", "clockRate"),
    16: ("MultiProcessorCount", "multiProcessorCount"),
    17: ("KernelExecTimeout", "kernelExecTimeoutEnabled"),
    18: ("Integrated", "integrated"),
    19: ("CanMapHostMemory", "canMapHostMemory"),
    20: ("ComputeMode", "computeMode"),
    31: ("ConcurrentKernels", "concurrentKernels"),
    32: ("EccEnabled", "ECCEnabled"),
    35: ("TccDriver", "tccDriver"),
    36: ("MemoryClockRate", "memoryClockRate"),
    37: ("GlobalMemoryBusWidth", "memoryBusWidth"),
    38: ("L2CacheSize", "l2CacheSize"),
    39: ("MaxThreadsPerMultiProcessor", "maxThreadsPerMultiProcessor"),
    40: ("AsyncEngineCount", "asyncEngineCount"),
    41: ("UnifiedAddressing", "unifiedAddressing"),
    75: ("ComputeCapabilityMajor", "major"),
    76: ("ComputeCapabilityMinor", "minor"),
    78: ("StreamPrioritiesSupported", "streamPrioritiesSupported"),
    81: ("MaxSharedMemoryPerMultiprocessor", "sharedMemPerMultiprocessor"),
    82: ("MaxRegistersPerMultiprocessor", "regsPerMultiprocessor"),
    83: ("ManagedMemory", "managedMemory"),
    84: ("IsMultiGpuBoard", "isMultiGpuBoard"),
    88: ("PageableMemoryAccess", "pageableMemoryAccess"),
    89: ("ConcurrentManagedAccess", "concurrentManagedAccess"),
    95: ("CooperativeLaunch", "cooperativeLaunch"),
    96: ("CooperativeMultiDeviceLaunch", "cooperativeMultiDeviceLaunch"),
    97: ("MaxSharedMemoryPerBlockOptin", "sharedMemPerBlockOptin"),
    106: ("MaxBlocksPerMultiprocessor", "maxBlocksPerMultiProcessor"),
    111: ("ReservedSharedMemoryPerBlock", "reservedSharedMemPerBlock"),
    115: ("MemoryPoolsSupported", ""),
    11: ("MaxPitch", "memPitch"),
    14: ("TextureAlignment", "textureAlignment"),
    21: ("MaxTexture1DWidth", "maxTexture1D"),
    22: ("MaxTexture2DWidth", ""),
    23: ("MaxTexture2DHeight", ""),
    24: ("MaxTexture3DWidth", ""),
    25: ("MaxTexture3DHeight", ""),
    26: ("MaxTexture3DDepth", ""),
    27: ("MaxTexture2DLayeredWidth", ""),
    28: ("MaxTexture2DLayeredHeight", ""),
    29: ("MaxTexture2DLayeredLayers", ""),
    30: ("SurfaceAlignment", "surfaceAlignment"),
    42: ("MaxTexture1DLayeredWidth", ""),
    43: ("MaxTexture1DLayeredLayers", ""),
    51: ("TexturePitchAlignment", "texturePitchAlignment"),
    55: ("MaxSurface1DWidth", "maxSurface1D"),
    56: ("MaxSurface2DWidth", ""),
    57: ("MaxSurface2DHeight", ""),
    58: ("MaxSurface3DWidth", ""),
    59: ("MaxSurface3DHeight", ""),
    60: ("MaxSurface3DDepth", ""),
    61: ("MaxSurface1DLayeredWidth", ""),
    62: ("MaxSurface1DLayeredLayers", ""),
    63: ("MaxSurface2DLayeredWidth", ""),
    64: ("MaxSurface2DLayeredHeight", ""),
    65: ("MaxSurface2DLayeredLayers", ""),
    69: ("MaxTexture1DLinearWidth", "maxTexture1DLinear"),
    70: ("MaxTexture2DLinearWidth", ""),
    71: ("MaxTexture2DLinearHeight", ""),
    72: ("MaxTexture2DLinearPitch", ""),
    79: ("GlobalL1CacheSupported", "globalL1CacheSupported"),
    80: ("LocalL1CacheSupported", "localL1CacheSupported"),
    86: ("HostNativeAtomicSupported", "hostNativeAtomicSupported"),
    90: ("ComputePreemptionSupported", "computePreemptionSupported"),
    91: ("CanUseHostPointerForRegisteredMem", "canUseHostPointerForRegisteredMem"),
    99: ("HostRegisterSupported", ""),
    100: ("PageableMemoryAccessUsesHostPageTables", "pageableMemoryAccessUsesHostPageTables"),
    101: ("DirectManagedMemAccessFromHost", "directManagedMemAccessFromHost"),
    108: ("MaxPersistingL2CacheSize", "persistingL2CacheMaxSize"),
    109: ("MaxAccessPolicyWindowSize", "accessPolicyMaxWindowSize"),
    120: ("ClusterLaunch", ""),
}
# What the virtual H200 says: an H200's own answers (see tests/virtual/test_device_attributes.py), what
# the CUDA C++ Programming Guide says of textures and surfaces, and 0 for what the virtual GPU does not have
# (ECC, persisting L2, clusters).
H200 = {
    1: 1024,
    2: 1024,
    3: 1024,
    4: 64,
    5: 2**31 - 1,
    6: 65535,
    7: 65535,
    8: 48 << 10,
    9: 64 << 10,
    10: 32,
    12: 65536,
    13: 1_980_000,
    16: 132,
    19: 1,
    31: 1,
    36: 3_201_000,
    37: 6016,
    38: 60 << 20,
    39: 2048,
    40: 3,
    41: 1,
    75: 9,
    76: 0,
    78: 1,
    81: 228 << 10,
    82: 65536,
    95: 1,
    97: 227 << 10,
    106: 32,
    111: 1024,
    11: 2**31 - 1,
    14: 512,
    21: 131072,
    22: 131072,
    23: 65536,
    24: 16384,
    25: 16384,
    26: 16384,
    27: 32768,
    28: 32768,
    29: 2048,
    30: 512,
    42: 32768,
    43: 2048,
    51: 32,
    55: 32768,
    56: 131072,
    57: 65536,
    58: 16384,
    59: 16384,
    60: 16384,
    61: 32768,
    62: 2048,
    63: 32768,
    64: 32768,
    65: 2048,
    69: 1 << 28,
    70: 131072,
    71: 65000,
    72: 2097120,
    79: 1,
    80: 1,
    83: 1,
    89: 1,
    90: 1,
    91: 1,
    99: 1,
    115: 1,
}


def test_attributes_have_cudas_numbers_and_names_and_an_h200s_values() -> None:
    assert {known.number: (known.name, known.property) for known in ATTRIBUTES} == HEADER
    assert len(ATTRIBUTES) == len(HEADER)
    info = device_info("H200")
    assert {known.number: known.of(info) for known in ATTRIBUTES} == {n: H200.get(n, 0) for n in HEADER}


def test_a_device_read_by_number() -> None:
    info = device_info("H200")
    assert info_fields(H200.get) == {
        field: getattr(info, field)
        for field in (
            "max_threads_per_block",
            "max_block_dim",
            "max_grid_dim",
            "shared_per_block_bytes",
            "registers_per_block",
            "boost_clock_mhz",
            "sm_count",
            "memory_clock_mhz",
            "memory_bus_bits",
            "l2_bytes",
            "max_warps_per_sm",
            "copy_engines",
            "compute_capability",
            "shared_per_sm_bytes",
            "registers_per_sm",
            "shared_per_block_optin_bytes",
            "max_blocks_per_sm",
            "reserved_shared_per_block_bytes",
        )
    }
    # Clocks may be a fraction of a MHz; threads that make no whole warp do not count.
    odd = info_fields({13: 1_980_500, 39: 2047}.get)
    assert (odd["boost_clock_mhz"], odd["max_warps_per_sm"]) == (1980.5, 63)
    assert isinstance(odd["max_warps_per_sm"], int)
    assert (info.max_threads_per_sm, info.capability) == (2048, "9.0")
    unknown = dataclasses.replace(info, boost_clock_mhz=None)
    assert {known.number: known.of(unknown) for known in ATTRIBUTES}[13] == 0


# Sums ---------------------------------------------------------------------------------------------------


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


def test_counters_of_a_space_and_kind() -> None:
    rows = (
        _access("global", "load", 1, 2),
        _access("global", "store", 10, 2),
        _access("shared", "load", 100, 7),
    )
    branches = (BranchCounters(0, 1, "", 5, 2), BranchCounters(1, 2, "", 9, 4))
    counters = KernelCounters(
        provenance=MODELLED,
        kernel_name="k",
        grid=(1, 1, 1),
        block=(32, 1, 1),
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


def test_machine_codes_counts_are_unknown_where_one_is() -> None:
    rows = (
        _run("global", "load", 1, 2, "merged"),
        _run("global", "store", 10, None),
        _run("shared", "load", 0, 7, "merged"),
    )
    branches = (
        BranchAsRun(pc=0, line=1, text="", opcode="BRA", written=3, divergent=2),
        BranchAsRun(pc=1, line=1, text="", opcode="", written=3, divergent=0, note="predicated"),
    )
    run = AsRun(
        provenance=MODELLED,
        kernel_name="k",
        target="sm_90",
        grid=(1, 1, 1),
        block=(32, 1, 1),
        accesses=rows,
        branches=branches,
        extra=(("spilled registers", 2),),
    )
    assert run.total("requests") == 11
    assert run.total("requests", "global", "load") == 1
    assert run.total("requests", kind="load") == 1
    assert run.total("requests", "global") == 11
    assert run.total("executions") is None
    assert run.total("executions", kind="load") == 9
    assert run.total("executions", "global") is None
    assert run.total("executions", "local") == 0
    assert run.differences == ("merged", "predicated")  # each sentence once, accesses first
    assert run.divergent_branches == 2
    unknown = dataclasses.replace(
        run, branches=(*branches, BranchAsRun(pc=2, line=1, text="", opcode="BRA", written=1, divergent=None))
    )
    assert unknown.divergent_branches is None
    extra = (("spilled registers", 2), ("branches of a division", 1))
    assert dataclasses.replace(run, extra=extra).divergent_branches is None


def test_bytes_of_a_pool() -> None:
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


def test_launches_hazards_and_activities() -> None:
    trace = launch_trace([(0, 0, 0, 7), (1, 1, 2, 5)], (3, 4, 5), 6, 4)
    assert (trace.span_ns, trace.blocks_per_wave, trace.waves) == (7, 24, 60 / 24)
    assert trace.occupancy.fraction == 8 / 64
    assert (
        Occupancy(
            provenance=MODELLED,
            block_threads=1,
            registers_per_thread=1,
            shared_bytes=1,
            blocks_per_sm=1,
            warps_per_sm=1,
            max_warps_per_sm=0,
            blocks_by_limit={},
            limiters=(),
        ).fraction
        == 0.0
    )
    assert len(warp_trace([0, 1, 1])) == 3
    assert (
        Activity(
            kind="MEMCPY", name="copy", device_id=0, stream_id=7, correlation_id=1, start_ns=30, end_ns=100
        ).duration_ns
        == 70
    )
    assert Provenance("measured", "H200").label == "measured on H200"
    assert Provenance("recorded", "H200", "in May").label == "recorded on H200 (in May)"

    place = Place(3, "x;", (0, 0, 0), (1, 0, 0))
    error, note = (
        Hazard(
            tool="race",
            kind=kind,
            severity=severity,
            space="shared",
            kernel="k",
            first=None,
            second=place,
            address=0,
            array="tile",
            count=1,
            message="",
        )  # type: ignore[arg-type]
        for kind, severity in (("RAW", "error"), ("NaN", "info"))
    )
    report = SanitizerReport(
        provenance=MODELLED,
        kernel_name="k",
        grid=(1, 1, 1),
        block=(32, 1, 1),
        shared_bytes=0,
        tools=("race",),
        block_order="in order",
        hazards=(error, note),
    )
    assert (report.found("RAW"), report.found("NaN"), report.found("WAR")) == ((error,), (note,), ())
    assert not report.clean
    assert dataclasses.replace(report, hazards=(note,)).clean
    assert not dataclasses.replace(report, hazards=(), fault="CUDA_ERROR").clean


# Files --------------------------------------------------------------------------------------------------


def test_records_survive_their_file(tmp_path: Path) -> None:
    trace = warp_trace([0, 1, 1], detail=detail([0, 0, 0], range(2), [(1, 1)]), note="°C")
    counters = KernelCounters(
        provenance=MODELLED,
        kernel_name="k",
        grid=(1, 1, 1),
        block=(32, 1, 1),
        shared_bytes=0,
        warp_instructions=1,
        thread_instructions=2,
        accesses=(_access("global", "load", 1, 2),),
        line_warp_instructions={3: 4, 10: 1},
    )
    run = AsRun(
        provenance=MODELLED,
        kernel_name="k",
        target="sm_90",
        grid=(1, 1, 1),
        block=(32, 1, 1),
        accesses=(_run("global", "load", None, 1),),
        branches=(),
    )
    for record in (trace, counters, run, launch_trace([(0, 0, 0, 7)], (1, 1, 1), 1, 1), device_info("H200")):
        for name, written in (("record", "record.npz"), ("record.gpu", "record.gpu")):
            target = save(record, tmp_path / name)
            assert target == tmp_path / written
            back = load(target)
            assert type(back) is type(record)
            _assert_same(back, record)
    assert save(counters, str(tmp_path / "a.npz")) == tmp_path / "a.npz"
    scalar = dataclasses.replace(counters, warp_instructions=np.int64(7))
    assert load(save(scalar, tmp_path / "b")).warp_instructions == 7


def _assert_same(left: object, right: object) -> None:
    if isinstance(right, np.ndarray):
        assert isinstance(left, np.ndarray)
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    elif dataclasses.is_dataclass(right):
        for field in dataclasses.fields(right):
            _assert_same(getattr(left, field.name), getattr(right, field.name))
    else:
        assert left == right
        assert type(left) is type(right)


def test_what_is_no_record_is_neither_written_nor_read(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="int is no record of gpulab"):
        save(5, tmp_path / "x")
    assert not list(tmp_path.iterdir())
    with pytest.raises(TraceFormatError, match=r"notes\.txt holds no gpulab record"):
        read(b"not a zip", "notes.txt")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(TraceFormatError, match=r"other\.npz holds no gpulab record"):
        load(tmp_path / "other.npz")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.npz")
    for version in (0, 1):
        check_version({"format": "f", "version": version}, "f", "x")
    check_version({"format": "f"}, "f", "x")
    with pytest.raises(TraceFormatError, match="written by a newer gpulab"):
        check_version({"format": "f", "version": 2}, "f", "x")
    for header in ({"format": "g", "version": 1}, {}, [], None):
        with pytest.raises(TraceFormatError, match="x is no f file"):
            check_version(header, "f", "x")


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(record="Nothing"),
        lambda record: record["fields"].pop("name"),
        lambda record: record["fields"].update(name={"array": "lost"}),
    ],
)
def test_a_damaged_file_says_so(change: object, tmp_path: Path) -> None:
    """And a field that this version does not know is passed over."""
    target = save(device_info("H200"), tmp_path / "h200")
    with np.load(target) as file:
        header = json.loads(bytes(file["header"]))
    header["record"]["fields"]["to_come"] = 5
    np.savez(target, header=np.frombuffer(json.dumps(header).encode(), np.uint8))
    assert load(target) == device_info("H200")
    change(header["record"])  # type: ignore[operator]
    np.savez(target, header=np.frombuffer(json.dumps(header).encode(), np.uint8))
    with pytest.raises(TraceFormatError, match=r"h200\.npz is damaged or incomplete"):
        load(target)


def test_a_measured_record_becomes_a_recorded_one_throughout() -> None:
    trace = launch_trace([(0, 0, 0, 7)], (1, 1, 1), 1, 1)
    bare = dataclasses.replace(trace.occupancy, provenance=Provenance("measured", "H200"))
    found = as_recorded(dataclasses.replace(trace, occupancy=bare), "in May")
    assert found.provenance == Provenance("recorded", "A100", "by hand; in May")
    assert found.occupancy.provenance == Provenance("recorded", "H200", "in May")
    assert found.sm_id is trace.sm_id
    assert trace.provenance == MODELLED
