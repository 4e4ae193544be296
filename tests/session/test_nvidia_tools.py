"""NVIDIA's tools in processes of their own: their files, found or missing, refusals, and what is shown.

The tools are scripts here, which run the program under them on a virtual GPU and write what the real ones do.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpulab as gl
from gpulab.analysis.files import ncu
from gpulab.analysis.files.compute_sanitizer import SanitizerFileError, find_refusal, read_hazards
from gpulab.lab.faults import nvidia, under
from gpulab.views.tables.profile import ProfileTable
from virtualgpu.compile import toolkit
from virtualgpu.errors import GpulabError, ToolMissingError

CODE = """extern "C" __global__ void k(int* x, int* y) {
    __shared__ int s[32];
    s[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = s[31 - threadIdx.x];
}"""


def record(content: str, line: int, thread: int = 0, level: str = "Error", kind: str = "Precise") -> str:
    return (
        f"<record><kind>{kind}</kind><level>{level}</level><what>{content}</what>"
        f"<who><threadIdx><x>{thread}</x><y>0</y><z>0</z></threadIdx>"
        "<blockIdx><x>3</x><y>0</y><z>0</z></blockIdx></who>"
        f"<where><func>k</func><path>/tmp/kernel.cu</path><line>{line}</line><pc>0xe0</pc></where>"
        "<hostStack><saveLocation>launch</saveLocation><frame><func>main</func><line>99</line></frame></hostStack>"
        "</record>"
    )


def file(*records: str) -> bytes:
    head = '<?xml version="1.0" encoding="utf-8"?>\n'
    return f"{head}<ComputeSanitizerOutput>{''.join(records)}</ComputeSanitizerOutput>".encode()


PAST_END = (
    "<text>Invalid __global__ read of size 4 bytes: Access is out of bounds</text><size>4</size>"
    "<direction>read</direction><accessAddress>0x7f00000000a0</accessAddress>"
)
RACE = (
    "<text>Potential RAW hazard detected at __shared__ 0x7c in block (3,0,0) : Write Thread (31,0,0) at "
    "k+0x90 in kernel.cu:3 Read Thread (0,0,0) at k+0xd0 in kernel.cu:4</text>"
)


def test_reports_of_many_threads_are_merged_into_one_finding() -> None:
    (hazard,) = read_hazards(file(*(record(PAST_END, 4, thread) for thread in (7, 8, 9))), "memory", CODE)
    assert (hazard.tool, hazard.kind, hazard.space) == ("memory", "out of bounds", "global")
    assert (hazard.severity, hazard.count, hazard.address) == ("error", 3, 0x7F00000000A0)
    assert (hazard.second.thread, hazard.second.block) == ((7, 0, 0), (3, 0, 0))
    assert (hazard.second.line, hazard.second.source) == (4, "y[threadIdx.x] = s[31 - threadIdx.x];")


# As compute-sanitizer 2025.3.1 wrote it on an H200, without its host stack.
RECORDED_RACE = """<record><kind>Hazard</kind><what><text>Potential RAW hazard detected</text>
<common><gridid>2</gridid><type>RAW</type><address>0x47c</address>
<blockIdx><x>2</x><y>0</y><z>0</z></blockIdx><current>0</current><isCudaBarrierOp>false</isCudaBarrierOp></common>
<thread0><access>Write</access><threadIdx><x>31</x><y>0</y><z>0</z></threadIdx>
<where><func>k</func><path>/tmp/a9f6.cubin.cu</path><line>3</line><pc>0xf0</pc></where></thread0>
<thread1><access>Read</access><threadIdx><x>32</x><y>0</y><z>0</z></threadIdx>
<where><func>k</func><path>/tmp/a9f6.cubin.cu</path><line>4</line><pc>0x100</pc></where></thread1></what></record>"""


def test_recorded_race_has_shared_memory_and_both_accesses() -> None:
    (hazard,) = read_hazards(file(RECORDED_RACE), "race", CODE)
    assert (hazard.kind, hazard.space, hazard.address) == ("RAW", "shared", 0x47C)
    assert hazard.first is not None
    assert (hazard.first.line, hazard.first.thread, hazard.first.block) == (3, (31, 0, 0), (2, 0, 0))
    assert (hazard.second.line, hazard.second.thread, hazard.second.block) == (4, (32, 0, 0), (2, 0, 0))
    assert hazard.message == "Potential RAW hazard detected"


def test_race_report_has_both_accesses() -> None:
    (hazard,) = read_hazards(file(record(RACE, 3, level="Warning")), "race", CODE)
    assert (hazard.kind, hazard.space, hazard.severity) == ("RAW", "shared", "warning")
    assert hazard.first is not None
    assert (hazard.first.line, hazard.first.thread) == (3, (31, 0, 0))
    assert (hazard.second.line, hazard.second.thread) == (4, (0, 0, 0))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Invalid __shared__ write of size 4 bytes: Access is misaligned", "misaligned"),
        ("Uninitialized __global__ memory read of size 4 bytes", "uninitialised read"),
        ("Barrier error detected. Divergent thread(s) in warp.", "divergent barrier"),
        ("Barrier error detected. Invalid arguments.", "lane outside its mask"),
        ("Stack overflow", "stack overflow"),
        ("Warp assert", "assert"),
        ("A message of a later version", "A message of a later version"),
    ],
)
def test_messages_of_compute_sanitizer_have_a_kind(text: str, kind: str) -> None:
    (hazard,) = read_hazards(file(record(f"<text>{text}</text>", 3)), "memory", CODE)
    assert hazard.kind == kind


def test_host_api_errors_are_not_findings() -> None:
    call = "<api>cudaDeviceSynchronize</api><result>700</result>"
    assert read_hazards(file(f"<record><kind>Api</kind><what>{call}</what></record>"), "memory") == ()
    assert read_hazards(file(), "memory") == ()


def test_missing_and_invalid_values_are_ignored() -> None:
    (hazard,) = read_hazards(
        file("<record><what><text>Invalid __global__ write</text></what></record>"), "memory"
    )
    assert (hazard.second.line, hazard.count, hazard.address) == (0, 1, None)
    odd = record(PAST_END, 4).replace("0x7f00000000a0", "9" * 40).replace("<x>0</x>", "<x>-1e9</x>")
    assert read_hazards(file(odd), "memory")[0].address == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'<!DOCTYPE x [<!ENTITY a "b">]><ComputeSanitizerOutput/>', "document type or entities"),
        (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><ComputeSanitizerOutput/>', "document type or entities"),
        (file(record(PAST_END, 4))[:-30], "incomplete or damaged"),
        (b"", "incomplete or damaged"),
        (b"\xff\xfe\x00", "incomplete or damaged"),
        (b"<other/>", "not written by compute-sanitizer"),
        (file("<a>" * 100 + "</a>" * 100), "not written by compute-sanitizer"),
        (b" " * ((16 << 20) + 1), "bytes, but at most 16,777,216 can be read"),
    ],
)
def test_a_file_that_is_damaged_or_foreign_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(SanitizerFileError, match=words):
        read_hazards(data, "memory")


def test_the_number_of_records_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpulab.analysis.files.compute_sanitizer.MAX_RECORDS", 5)
    (hazard,) = read_hazards(file(*[record(PAST_END, 4)] * 9), "memory")
    assert hazard.count == 5


def test_a_tool_is_found_by_path_by_home_and_by_pathfinder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_HOME", "CUDA_PATH", "PATH"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    with pytest.raises(ToolMissingError, match=r"some-tool was not found. It is part of the CUDA Toolkit"):
        toolkit.find_tool("some-tool")
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_binary_utility", lambda tool: f"/found/{tool}")
    assert toolkit.find_tool("some-tool") == "/found/some-tool"
    for version in ("2025.3", "2026.1"):
        newest = tmp_path / f"nsight-compute-{version}" / "some-tool"
        newest.parent.mkdir()
        newest.touch(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert toolkit.find_tool("some-tool") == str(newest)
    (tmp_path / "some-tool").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolkit.find_tool("some-tool") == str(tmp_path / "some-tool")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a script that replaces a tool, on a machine that seems to have a GPU."""
    gl.use_device("virtual:T4")

    def make(name: str, writes: bytes, runs: bool = True, says: str = "", more: str = "") -> None:
        script = tmp_path / name
        (tmp_path / f"{name}.out").write_bytes(writes)
        script.write_text(
            f"#!{sys.executable}\nimport os, subprocess, sys, json, time\n"
            "wrote = next(i for i, a in enumerate(sys.argv) if a in ('--save', '--log-file')) + 1\n"
            f"open({str(tmp_path / 'argv')!r}, 'a').write(json.dumps(sys.argv) + '\\n')\n"
            f"print({says!r})\n{more}\n"
            "here = os.environ | {'GPULAB_DEVICE': 'virtual:T4'}\n"
            + ("subprocess.run(sys.argv[wrote + 1:], env=here, check=True)\n" if runs else "")
            + f"open(sys.argv[wrote], 'wb').write(open({str(tmp_path / f'{name}.out')!r}, 'rb').read())\n"
        )
        script.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    seems = SimpleNamespace(kind="cuda", device="T4", count=1)
    monkeypatch.setattr(under.session, "which_device", lambda: seems)
    return make


def checked(tools: Any = ("memory",), kernel: Any = None, limit_s: float = 60.0) -> Any:
    from gpulab.views.tables.sanitizer import SanitizerTable
    from virtualgpu.protocol import Launch

    x = gl.cp.arange(64, dtype=np.int32)
    kernel = kernel or gl.cp.RawKernel(CODE, "k")
    launch = Launch.of(kernel, 4, 32, (x[32:], x[:32]))
    return SanitizerTable.of(nvidia.run_sanitizer(launch, tools, limit_s))


def test_a_launch_runs_in_processes_under_the_tools(tool: Callable[..., None], tmp_path: Path) -> None:
    tool(nvidia.CHECKER, file(record(RACE, 3)))
    report = checked(("memory", "race"))
    assert [json.loads(line)[1:3] for line in sorted((tmp_path / "argv").read_text().splitlines())] == [
        ["--tool", "memcheck"],
        ["--tool", "racecheck"],
    ]
    assert report.tools == ("memory", "race")
    assert not report.unavailable
    assert not report.clean
    assert [hazard.kind for hazard in report.found("RAW")] == ["RAW", "RAW"]
    ours = gl.sanitize(gl.cp.RawKernel(CODE, "k"), 4, 32, (gl.cp.zeros(32, "i4"), gl.cp.zeros(32, "i4")))
    text = repr(ours.compare(report))
    row = next(line for line in text.splitlines() if "s[31 - threadIdx.x]" in line)
    assert row.split()[0] == "4"
    assert row.count("RAW race, shared memory") == 2
    assert "compute-sanitizer: " in text
    assert "<table" in ours.compare(report)._repr_html_()
    with pytest.raises(TypeError, match=r"the result of gl.sanitize"):
        ours.compare(3)  # type: ignore[arg-type]


def test_arguments_are_passed_with_their_surrounding_memory(tool: Callable[..., None]) -> None:
    tool(nvidia.CHECKER, file())
    refuses = 'extern "C" __global__ void k(int* x, int* y) { if (x[-32] != y[0] || x[0] != 32) __trap(); }'
    assert checked(kernel=gl.cp.RawKernel(refuses.replace("x[-32]", "x[0] - 32"), "k")).clean
    view = gl.cp.arange(64, dtype=np.int32)[::-2]
    (low, high), whole, offset = nvidia._detach_arguments((view,))[0]
    assert (high - low, offset) == (4 * 63, 4 * 62)
    assert whole.view(np.int32)[-1] == 63


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {
                "runs": False,
                "says": "========= Error: Device not supported. Please refer to the release notes.",
            },
            "Device not supported.*install a CUDA Toolkit that supports this GPU",
        ),
        ({"runs": False, "says": "cannot open a shared file"}, "ended with status 0: .*cannot open"),
        ({"more": "time.sleep(60)"}, "did not finish within 0.5 s: check a smaller launch"),
        (None, "compute-sanitizer was not found. It is part of the CUDA Toolkit"),
    ],
)
def test_report_explains_why_no_check_ran(
    options: dict[str, Any] | None, reason: str, tool: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if options is None:
        monkeypatch.setenv("PATH", "/nothing")
    else:
        tool(nvidia.CHECKER, file(), **options)
    report = checked(limit_s=0.5 if options and "more" in options else 60.0)
    assert not report.clean
    assert not report.complete
    assert report.tools == ()
    assert re.search(reason, report.unavailable, re.DOTALL), report.unavailable
    assert report.verdict == "not available on this machine"
    assert report.unavailable in report.caption


def test_a_launch_that_does_not_begin_is_an_error(tool: Callable[..., None]) -> None:
    tool(nvidia.CHECKER, file())
    broken = gl.cp.RawKernel(CODE.replace("int* y", "int* y, nothing z"), "k")
    with pytest.raises(GpulabError, match=r"launch did not start .*nothing"):
        checked(kernel=broken)


def test_the_tools_are_not_available_on_a_virtual_gpu() -> None:
    gl.use_device("virtual:T4")
    kernel = gl.cp.RawKernel(CODE, "k")
    x = gl.cp.zeros(64, "i4")
    report = gl.sanitize(kernel, 1, 32, (x, x), tool="compute-sanitizer")
    assert report.unavailable == "it needs a real GPU, but a virtual GPU is in use"
    assert "not available on this machine" in repr(gl.sanitize(kernel, 1, 32, (x, x)).compare(report))
    with pytest.raises(ValueError, match="'compute-sanitizer', or leave out"):
        gl.sanitize(kernel, 1, 32, (x, x), tool="memcheck")
    p = gl.profile(lambda: x.sum(), counters=True)
    assert p.record.counters == ()
    assert "Hardware counters: not available on this machine: it needs a real GPU" in p.describe()
    with pytest.raises(TypeError, match="needs a function"):
        gl.profile(counters=True)


def test_normal_tool_output_is_not_a_refusal() -> None:
    assert find_refusal("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 3 errors") == ""
    assert ncu.find_refusal('==PROF== Connected\n"ID","Kernel Name"') == ""


LD = ncu._SECTOR_METRICS[0]
DRAM = ncu._DRAM_METRICS[0]
L1 = ncu._L1_HIT_METRIC
FFMA = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
ADD = "void add<float>(float *, int)"
COUNTED = (
    (0, ADD, {LD: "1,000", DRAM: "4096", FFMA: "10", L1: "50", ncu.DURATION_METRIC: "100"}),
    (1, ADD, {LD: "3,000", DRAM: "0", FFMA: "5", L1: "90", ncu.DURATION_METRIC: "300"}),
    (2, "k", {LD: "n/a", ncu.DURATION_METRIC: "900"}),
)
NCU = "\n".join(
    [
        "==PROF== Connected to process 7",
        '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"',
        *(
            f'"{n}","7","{kernel}","{metric}","","{x}"'
            for n, kernel, metrics in COUNTED
            for metric, x in metrics.items()
        ),
    ]
)


def test_counters_of_all_launches_of_a_kernel_are_added_up() -> None:
    k, add = ncu.sum_counters(ncu.parse_csv(NCU))
    assert (k.key, k.count, k.sectors, k.flop, k.l1_hit_rate) == ("k", 1, None, None, None)
    assert (add.key, add.count, add.sectors, add.dram_bytes) == ("add<float>", 2, 4000, 4096)
    assert add.flop == 30  # a multiply-add is two
    assert add.l1_hit_rate == pytest.approx((0.5 * 100 + 0.9 * 300) / 400)
    assert add.warp_instructions is None


def test_profile_counters_come_from_a_separate_run(
    tool: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("ncu", NCU.encode())
    calls = []
    p = gl.profile(lambda a: calls.append(1) or (a * 2).sum(), gl.cp.ones(100, np.float32), counters=True)
    assert calls == [1]  # here once; the others were in the process under the tool
    assert [counter.key for counter in p.record.counters] == ["k", "add<float>"]
    assert p.record.no_counters == ""
    text = p.describe()
    assert "Hardware counters" in text
    assert "4,096" in text
    assert "measured by Nsight Compute" in text
    argv = json.loads((tmp_path / "argv").read_text())
    assert argv[argv.index("--profile-from-start") + 1] == "off"
    assert isinstance(ProfileTable.of(p.record).record.counters, tuple)

    tool("ncu", b"==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")
    refused = gl.profile(lambda: gl.cp.ones(3).sum(), counters=True)
    assert "has no permission to read counters" in refused.record.no_counters
    assert "not available on this machine" in refused.describe()

    tool("ncu", NCU.encode())
    failed = gl.profile(lambda: 1 // (not sys.argv[0].endswith("under.py")), counters=True)
    assert "the function raised ZeroDivisionError" in failed.record.no_counters
