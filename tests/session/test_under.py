"""Jobs under NVIDIA's tools, with shell scripts instead of the tools and a fake device instead of the GPU."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

import gpulab as gl
from gpulab import session
from gpulab.analysis.files.compute_sanitizer import TOOL_OPTIONS
from gpulab.lab.faults import nvidia, under
from gpulab.lab.faults.jobs import Call, pack_job
from virtualgpu.protocol import Launch
from virtualgpu.records import KernelSource

JOB = Call(len, ((),))


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a shell script that replaces the tool ``look``. ``$wrote`` and ``$ended`` are files."""
    gl.use_device("virtual:T4")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(session, "which_device", lambda: SimpleNamespace(kind="cuda", device="T4", count=1))

    def make(script: str) -> None:
        path = tmp_path / "look"
        path.write_text(f"#!/bin/sh\nfor ended; do :; done\nwrote=$1\n{script}\n")
        path.chmod(0o755)

    return make


def looked(limit_s: float = 30.0, *options: str, refusal: Callable[[str], str] = lambda text: "") -> Any:
    return under.run_under_tool("look", options, lambda: JOB, refusal, limit_s)


def test_the_tool_runs_the_job_with_this_python_and_device(
    tool: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(
        f'printf "%s\\n" "$@" > {tmp_path}/argv; cp "$8" {tmp_path}/job; : > "$ended"\n'
        f'printf "%s %s %s" "$GPULAB_DEVICE" "$PYTHONPATH" "$GPULAB_MARK" > "$3"'
    )
    monkeypatch.setenv("GPULAB_MARK", "kept")
    monkeypatch.setattr(sys, "path", [*sys.path, ""])
    wrote, raised, why_not = looked(30.0, "--first", "--second")
    assert (raised, why_not) == ("", "")
    assert wrote.decode() == f"cuda:0 {os.pathsep.join(path for path in sys.path if path)} kept"
    first, second, file, *program = (tmp_path / "argv").read_text().split("\n")
    assert (first, second) == ("--first", "--second")
    assert program[:4] == [sys.executable, "-m", "gpulab.lab.faults.under", "look"]
    assert {Path(path).parent for path in (file, *program[4:6])} == {Path(file).parent}
    assert pickle.loads((tmp_path / "job").read_bytes()) == JOB
    assert not Path(file).exists()


def test_the_tool_does_not_read_standard_input(tool: Callable[[str], None]) -> None:
    tool('cat > "$wrote"; : > "$ended"')
    source, target = os.pipe()
    stdin = os.dup(0)
    try:
        os.write(target, b"ours")
        os.close(target)
        os.dup2(source, 0)
        assert looked() == (b"", "", "")
        assert os.read(0, 9) == b"ours"
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        os.close(source)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("exit 3", "ended with status 3: no word"),
        (': > "$wrote"; exit 0', "ended with status 0: no word"),
        (': > "$ended"; echo a word >&2', "ended with status 0: a word"),
        ('printf "w%d " $(seq 41) >&2', "ended with status 0: " + " ".join(f"w{n}" for n in range(2, 42))),
        (r"printf 'not \377 text'", "ended with status 0: not \ufffd text"),
    ],
)
def test_a_failing_tool_is_reported_with_its_last_output(
    script: str, reason: str, tool: Callable[[str], None]
) -> None:
    tool(script)
    assert looked() == (b"", "", f"look {reason}")


def test_a_tool_that_takes_too_long_is_ended_with_its_processes(
    tool: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(f"sleep 60 & echo $$ $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; exec sleep 60")
    wait = subprocess.Popen.wait
    processes: list[Any] = []
    limits: list[float] = []

    def wait_for_pids(self: Any, timeout: float | None = None) -> int:
        processes.append(self)
        if timeout is None:
            return wait(self)
        limits.append(timeout)
        while not (tmp_path / "pids").exists():
            pass
        raise subprocess.TimeoutExpired("look", timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_for_pids)
    file, error, reason = looked(0.25)
    assert (file, error) == (b"", "")
    assert "did not finish within 0.25 s" in reason
    assert processes[0].returncode == -9, "its status is read, so that it is no zombie"
    parent, child = map(int, (tmp_path / "pids").read_text().split())
    assert not psutil.pid_exists(parent)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    assert (
        "did not finish within 60 s" in under.run_under_tool("look", (), lambda: JOB, lambda text: "")[2]
    ), "the default"


def test_a_large_file_is_read_to_one_byte_beyond_the_limit(tool: Callable[[str], None]) -> None:
    tool('truncate -s 67108870 "$wrote"; : > "$ended"')
    wrote, raised, why_not = looked()
    assert (len(wrote), raised, why_not) == ((64 << 20) + 1, "", "")


# In the process under the tool -------------------------------------------------------------------------

STEPS: list[str] = []


def noted() -> None:
    STEPS.append("job")


def fails() -> None:
    raise ValueError("x" * 3000)


@pytest.mark.parametrize(
    ("tool_name", "steps"),
    [("ncu", ["job", "waits", "counts", "job", "waits"]), ("compute-sanitizer", ["no pool", "job", "waits"])],
)
def test_counters_skip_a_warm_up_run_and_checks_use_no_pool(
    tool_name: str, steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    STEPS.clear()
    cuda = SimpleNamespace(
        Device=lambda: SimpleNamespace(synchronize=lambda: STEPS.append("waits")),
        runtime=SimpleNamespace(profilerStart=lambda: STEPS.append("counts")),
        set_allocator=lambda allocator: STEPS.append("no pool" if allocator is None else "pool"),
    )
    monkeypatch.setattr(session, "cp", lambda: SimpleNamespace(cuda=cuda))
    job = tmp_path / "job"
    ended = tmp_path / "ended"
    job.write_bytes(pack_job(Call(noted, ())))
    under.main(tool_name, str(job), str(ended))
    assert steps == STEPS
    assert ended.read_text() == ""
    job.write_bytes(pack_job(Call(fails, ())))
    under.main(tool_name, str(job), str(ended))
    assert ended.read_text() == "ValueError: " + "x" * 1988  # 2,000 characters
    job.unlink()
    under.main(tool_name, str(job), str(ended))
    assert ended.read_text().startswith("FileNotFoundError: ")


def test_the_process_ends_without_exit_handlers(tmp_path: Path) -> None:
    job = tmp_path / "job"
    ended = tmp_path / "ended"

    def late() -> None:
        import atexit

        atexit.register(os._exit, 9)  # like the exit handler of a lost context
        raise ValueError("here")

    job.write_bytes(pack_job(Call(late, ())))
    program = [sys.executable, "-m", "gpulab.lab.faults.under", "memcheck", str(job), str(ended)]
    variables = {"GPULAB_DEVICE": "virtual:T4", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run(program, env=os.environ | variables, timeout=60, check=False).returncode == 0
    assert ended.read_text() == "ValueError: here"


# A launch under compute-sanitizer ------------------------------------------------------------------------

CODE = """template <typename T> __global__ void add(T* to, const T* x, T by) {
  extern __shared__ T part[];
  part[threadIdx.x] = x[threadIdx.x] + by;
  to[threadIdx.x] = part[threadIdx.x];
}"""


def test_a_launch_on_copied_arguments_gives_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    gl.use_device("virtual:A100")
    cp = gl.cp
    whole = cp.arange(100, dtype="f4")
    args = nvidia._detach_arguments((whole[10:40], whole[60:2:-1], np.float32(5)))
    (bounds, data, offset), (other, more, start), by = args
    assert (bounds[1] - bounds[0], offset, by) == (120, 0, 5)
    assert data.view("f4").tolist() == list(range(10, 40))
    assert (other[1] - other[0], start) == (4 * 58, 4 * 57)
    assert more.view("f4").tolist() == list(range(3, 61))
    copies: list[Any] = []
    monkeypatch.setattr(cp, "asarray", lambda data: copies.append(cp.array(data)) or copies[-1])  # type: ignore[func-returns-value]
    source = KernelSource("add<float>", CODE, ("-std=c++17",), ("add<float>",))
    nvidia.launch_copy(source, (1, 1, 1), (30, 1, 1), (args[0], (bounds, data, 0), np.float32(5)), 4 * 30)
    assert copies[-1].view("f4").tolist() == list(range(15, 45))
    assert whole[10:12].get().tolist() == [10, 11]


PLAIN = r"""extern "C" __global__ void k(float* x) {
  __shared__ float own[STATIC];
  extern __shared__ float part[];
  own[threadIdx.x] = part[threadIdx.x] = threadIdx.x + 1;
  x[threadIdx.x] = own[threadIdx.x] + part[threadIdx.x];
}"""


@pytest.mark.parametrize(("static", "shared"), [(10240, 10240), (1, 49152), (1, 4), (1, 60000)])
def test_a_copied_launch_gets_its_shared_memory(
    static: int, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gl.use_device("virtual:A100")
    copies: list[Any] = []
    asarray = gl.cp.asarray
    monkeypatch.setattr(gl.cp, "asarray", lambda data: copies.append(asarray(data)) or copies[-1])  # type: ignore[func-returns-value]
    args = nvidia._detach_arguments((gl.cp.zeros(4, dtype="f4")[1:],))
    source = KernelSource("k", PLAIN, (f"-DSTATIC={static}",))
    nvidia.launch_copy(source, (1, 1, 1), (1, 1, 1), args, shared)
    assert copies[0].view("f4").tolist() == [2, 0, 0]


@pytest.mark.parametrize(
    ("options", "compiled"),
    [(("-a", "-lineinfo", "-b"), ("-a", "-lineinfo", "-b")), (("-a",), ("-a", "-lineinfo"))],
)
def test_a_kernel_is_compiled_with_line_numbers(
    options: tuple[str, ...], compiled: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    modules: list[Any] = []

    def module(**arguments: Any) -> Any:
        modules.append(arguments)
        return SimpleNamespace(get_function=lambda name: lambda *launch, **more: None)

    monkeypatch.setattr(session, "cp", lambda: SimpleNamespace(RawModule=module, asarray=np.asarray))
    nvidia.launch_copy(KernelSource("f<int>", "c", options, ("f<int>",)), (2, 1, 1), (3, 1, 1), (7,), 0)
    assert modules == [{"code": "c", "options": compiled, "name_expressions": ("f<int>",)}]


def test_checks_that_could_not_run_are_listed_in_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    gl.use_device("virtual:T4")

    def run(tool: str, options: Any, job: Any, refusal: Any, limit_s: float) -> tuple[bytes, str, str]:
        return (REPORT, "", "") if options is TOOL_OPTIONS["memory"] else (b"", "", "it was busy")

    monkeypatch.setattr(nvidia, "run_under_tool", run)
    launch = Launch.of(gl.cp.RawKernel(PLAIN.replace("STATIC", "1"), "k"), (2, 3), 4, (np.int32(6),), 8)
    report = nvidia.run_sanitizer(launch, ("race", "memory"))
    (hazard,) = report.hazards
    assert (hazard.kind, hazard.second.line) == ("out of bounds", 3)
    assert (report.grid, report.block, report.shared_bytes) == ((2, 3, 1), (4, 1, 1), 8)
    assert report.tools == ("memory",)
    assert "it was busy" in report.left_out
    assert report.provenance.device == session.backend().provenance.device
    nothing = nvidia.run_sanitizer(launch, ("race",))
    assert (nothing.unavailable, nothing.hazards, nothing.tools) == ("it was busy", (), ())


REPORT = (
    b'<?xml version="1.0" encoding="utf-8"?>\n<ComputeSanitizerOutput><record><level>Error</level><what>'
    b"<text>Invalid __global__ read of size 4 bytes</text></what><where><line>3</line></where></record>"
    b"</ComputeSanitizerOutput>"
)
