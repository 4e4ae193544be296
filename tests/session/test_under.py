"""NVIDIA's tools around a job: scripts stand for them, and a device that only notes stands for the GPU."""

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
from gpulab.analysis.files.compute_sanitizer import OPTIONS
from gpulab.lab.faults import nvidia, under
from gpulab.lab.faults.jobs import Call, packed
from virtualgpu.protocol import Hazards, Launch
from virtualgpu.records import KernelSource, SanitizerReport

JOB = Call(len, ((),))


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make a shell script that stands for the tool ``look``: ``$wrote`` and ``$ended`` are files."""
    gl.use_device("virtual:T4")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(session, "which_device", lambda: SimpleNamespace(kind="cuda", device="T4", count=1))

    def make(script: str) -> None:
        path = tmp_path / "look"
        path.write_text(f"#!/bin/sh\nfor ended; do :; done\nwrote=$1\n{script}\n")
        path.chmod(0o755)

    return make


def looked(limit_s: float = 30.0, *options: str, refusal: Callable[[str], str] = lambda text: "") -> Any:
    return under.run("look", options, lambda: JOB, refusal, limit_s)


def test_what_it_wrote_and_what_the_job_raised_come_back(tool: Callable[[str], None]) -> None:
    tool('echo said; echo louder >&2; printf wrote > "$wrote"; printf raised > "$ended"')
    words: list[str] = []
    assert looked(refusal=lambda text: words.append(text) or "") == (b"wrote", "raised", "")  # type: ignore[func-returns-value]
    assert words == ["said\nlouder\nwrote"]


def test_it_runs_this_python_with_the_job_on_the_same_device(
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


def test_it_reads_nothing_of_ours(tool: Callable[[str], None]) -> None:
    tool('cat > "$wrote"; : > "$ended"')
    given, to = os.pipe()
    before = os.dup(0)
    try:
        os.write(to, b"ours")
        os.close(to)
        os.dup2(given, 0)
        assert looked() == (b"", "", "")
        assert os.read(0, 9) == b"ours"
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(given)


@pytest.mark.parametrize(
    ("script", "last"),
    [
        ("exit 3", "ended with status 3: no word"),
        (': > "$wrote"; exit 0', "ended with status 0: no word"),
        (': > "$ended"; echo a word >&2', "ended with status 0: a word"),
        ('printf "w%d " $(seq 41) >&2', "ended with status 0: " + " ".join(f"w{n}" for n in range(2, 42))),
        ('printf "w%d " $(seq 40)', "ended with status 0: " + " ".join(f"w{n}" for n in range(1, 41))),
        (r"printf 'not \377 text'", "ended with status 0: not \ufffd text"),
    ],
)
def test_one_that_did_not_get_there_is_told_with_its_last_words(
    script: str, last: str, tool: Callable[[str], None]
) -> None:
    tool(script)
    assert looked() == (b"", "", f"look {last}")


def test_a_refusal_is_its_reason(tool: Callable[[str], None]) -> None:
    tool('echo no; : > "$wrote"; : > "$ended"')
    assert looked(refusal=lambda text: f"it says {text.strip()}") == (b"", "", "look: it says no")


def test_where_it_is_missing_or_the_gpu_is_none_that_is_the_reason(
    tool: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = under.run("some-tool", (), lambda: JOB, lambda text: "")
    assert told[:2] == (b"", "")
    assert told[2].startswith("some-tool is not installed; it comes with the CUDA Toolkit")
    tool(': > "$wrote"; : > "$ended"')
    virtual = SimpleNamespace(kind="virtual", device="T4", count=1)
    monkeypatch.setattr(session, "which_device", lambda: virtual)
    assert looked() == (b"", "", "it looks at a real GPU, and a virtual one is in use")


def test_one_that_does_not_end_is_ended_with_all_that_it_started(
    tool: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(
        f"sleep 60 & echo $$ $! > {tmp_path}/pids.new; mv {tmp_path}/pids.new {tmp_path}/pids; exec sleep 60"
    )
    waits = subprocess.Popen.wait
    begun: list[Any] = []

    def until_it_stands(self: Any, timeout: float | None = None) -> int:
        begun.append(self)
        if timeout is None:
            return waits(self)
        while not (tmp_path / "pids").exists():
            pass
        raise subprocess.TimeoutExpired("look", timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", until_it_stands)
    helps = "give it a smaller launch, or one that ends"
    assert looked(0.25) == (b"", "", f"look was not done after 0.25 s: {helps}")
    assert begun[0].returncode == -9  # read, so that it is no zombie
    tool_pid, started = map(int, (tmp_path / "pids").read_text().split())
    assert not psutil.pid_exists(tool_pid)
    assert not psutil.pid_exists(started) or psutil.Process(started).status() == psutil.STATUS_ZOMBIE
    # As long as is documented, where nothing else is said.
    assert under.run("look", (), lambda: JOB, lambda text: "")[2] == f"look was not done after 60 s: {helps}"


def test_of_what_it_writes_a_little_more_than_may_be_read_is_taken(tool: Callable[[str], None]) -> None:
    tool('truncate -s 67108870 "$wrote"; : > "$ended"')
    wrote, raised, why_not = looked()
    assert (len(wrote), raised, why_not) == ((64 << 20) + 1, "", "")


# What runs under it --------------------------------------------------------------------------------------

SAID: list[str] = []


def noted() -> None:
    SAID.append("job")


def fails() -> None:
    raise ValueError("x" * 3000)


@pytest.mark.parametrize(
    ("tool_name", "steps"),
    [("ncu", ["job", "waits", "counts", "job", "waits"]), ("compute-sanitizer", ["no pool", "job", "waits"])],
)
def test_what_is_loaded_once_is_not_counted_and_what_is_checked_lies_in_no_pool(
    tool_name: str, steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SAID.clear()
    cuda = SimpleNamespace(
        Device=lambda: SimpleNamespace(synchronize=lambda: SAID.append("waits")),
        runtime=SimpleNamespace(profilerStart=lambda: SAID.append("counts")),
        set_allocator=lambda allocator: SAID.append("no pool" if allocator is None else "pool"),
    )
    monkeypatch.setattr(session, "cp", lambda: SimpleNamespace(cuda=cuda))
    given = tmp_path / "given"
    ended = tmp_path / "ended"
    given.write_bytes(packed(Call(noted, ())))
    under.main(tool_name, str(given), str(ended))
    assert steps == SAID
    assert ended.read_text() == ""
    given.write_bytes(packed(Call(fails, ())))
    under.main(tool_name, str(given), str(ended))
    assert ended.read_text() == "ValueError: " + "x" * 1988  # 2,000 characters
    given.unlink()
    under.main(tool_name, str(given), str(ended))
    assert ended.read_text().startswith("FileNotFoundError: ")


def test_it_ends_at_once_when_it_is_done(tmp_path: Path) -> None:
    given = tmp_path / "given"
    ended = tmp_path / "ended"

    def late() -> None:
        import atexit

        atexit.register(os._exit, 9)  # as a lost context ends
        raise ValueError("here")

    given.write_bytes(packed(Call(late, ())))
    program = [sys.executable, "-m", "gpulab.lab.faults.under", "memcheck", str(given), str(ended)]
    here = os.environ | {"GPULAB_DEVICE": "virtual:T4", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    assert subprocess.run(program, env=here, timeout=60, check=False).returncode == 0
    assert ended.read_text() == "ValueError: here"


# A launch under compute-sanitizer ------------------------------------------------------------------------

CODE = """template <typename T> __global__ void add(T* to, const T* x, T by) {
  extern __shared__ T part[];
  part[threadIdx.x] = x[threadIdx.x] + by;
  to[threadIdx.x] = part[threadIdx.x];
}"""


def test_a_launch_over_copies_does_what_it_does_here(monkeypatch: pytest.MonkeyPatch) -> None:
    gl.use_device("virtual:A100")
    cp = gl.cp
    whole = cp.arange(100, dtype="f4")
    args = nvidia._by_value((whole[10:40], whole[60:2:-1], np.float32(5)))
    (bounds, data, offset), (other, more, begins), by = args
    assert (bounds[1] - bounds[0], offset, by) == (120, 0, 5)
    assert data.view("f4").tolist() == list(range(10, 40))
    assert (other[1] - other[0], begins) == (4 * 58, 4 * 57)
    assert more.view("f4").tolist() == list(range(3, 61))
    made: list[Any] = []
    monkeypatch.setattr(cp, "asarray", lambda data: made.append(cp.array(data)) or made[-1])  # type: ignore[func-returns-value]
    source = KernelSource("add<float>", CODE, ("-std=c++17",), ("add<float>",))
    held = (args[0], (bounds, data, 0), np.float32(5))
    nvidia.launched(source, (1, 1, 1), (30, 1, 1), held, 4 * 30)
    assert len({array.data.ptr for array in made[-1:]}) == 1
    assert made[-1].view("f4").tolist() == list(range(15, 45))
    assert whole[10:12].get().tolist() == [10, 11]


PLAIN = r"""extern "C" __global__ void k(float* x) {
  __shared__ float own[STATIC];
  extern __shared__ float part[];
  own[threadIdx.x] = part[threadIdx.x] = threadIdx.x + 1;
  x[threadIdx.x] = own[threadIdx.x] + part[threadIdx.x];
}"""


@pytest.mark.parametrize(("static", "shared"), [(10240, 10240), (1, 49152), (1, 4), (1, 60000)])
def test_a_launch_gets_the_shared_memory_that_it_was_to_have(
    static: int, shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gl.use_device("virtual:A100")
    kept: list[Any] = []
    asarray = gl.cp.asarray
    monkeypatch.setattr(gl.cp, "asarray", lambda data: kept.append(asarray(data)) or kept[-1])  # type: ignore[func-returns-value]
    x = gl.cp.zeros(4, dtype="f4")
    args = nvidia._by_value((x[1:],))
    source = KernelSource("k", PLAIN, (f"-DSTATIC={static}",))
    nvidia.launched(source, (1, 1, 1), (1, 1, 1), args, shared)
    assert kept[0].view("f4").tolist() == [2, 0, 0]


def test_a_kernel_is_compiled_with_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Kernel(SimpleNamespace):
        def __call__(self, *args: Any, **how: Any) -> None:
            told.append((args, how, vars(self)))

    class Module:
        def __init__(self, **how: Any) -> None:
            told.append(how)

        def get_function(self, name: str) -> Kernel:
            return Kernel(name=name)

    monkeypatch.setattr(session, "cp", lambda: SimpleNamespace(RawModule=Module, asarray=np.asarray))
    nvidia.launched(KernelSource("k", "code", ("-a", "-lineinfo", "-b")), (2, 1, 1), (3, 1, 1), (7,), 0)
    assert told == [
        {"code": "code", "options": ("-a", "-lineinfo", "-b"), "name_expressions": None},
        (((2, 1, 1), (3, 1, 1), (7,)), {"shared_mem": 0}, {"name": "k"}),
    ]
    told.clear()
    data = np.arange(8, dtype=np.uint8)
    args = (((0, 8), data, 2), ((0, 8), data, 5))
    nvidia.launched(KernelSource("f<int>", "c", ("-a",), ("f<int>",)), (1, 1, 1), (1, 1, 1), args, 5)
    assert told[0] == {"code": "c", "options": ("-a", "-lineinfo"), "name_expressions": ("f<int>",)}
    (_, _, (first, second)), how, kernel = told[1]
    assert (first.tolist(), second.tolist()) == ([2, 3, 4, 5, 6, 7], [5, 6, 7])
    assert np.shares_memory(first, second)
    assert (how, kernel) == ({"shared_mem": 5}, {"name": "f<int>", "max_dynamic_shared_size_bytes": 5})


FOUND = (
    '<?xml version="1.0" encoding="utf-8"?>\n<ComputeSanitizerOutput><record><level>Error</level><what><text>'
    "Invalid __global__ read of size 4 bytes</text></what><where><line>3</line></where></record>"
    "</ComputeSanitizerOutput>"
)


def test_the_report_is_of_the_launch_and_says_which_checks_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    gl.use_device("virtual:T4")
    asked: list[Any] = []

    def run(tool: str, options: Any, job: Any, refusal: Any, limit_s: float) -> tuple[bytes, str, str]:
        asked.append((tool, options, job().function, job().args[0].code, job().args[1:], limit_s))
        answers = {"memory": (FOUND.encode(), "", ""), "race": (b"", "", "it was busy")}
        return answers["memory" if options is OPTIONS["memory"] else "race"]

    monkeypatch.setattr(nvidia, "run", run)
    launch = Launch.of(gl.cp.RawKernel(PLAIN.replace("STATIC", "1"), "k"), (2, 3), 4, (np.int32(6),), 8)
    report = nvidia.check(launch, ("race", "memory"))
    assert {(each[0], each[2], *each[4], each[5]) for each in asked} == {
        ("compute-sanitizer", nvidia.launched, (2, 3, 1), (4, 1, 1), (6,), 8, 60.0)
    }
    assert {tuple(each[1]) for each in asked} == {tuple(OPTIONS["memory"]), tuple(OPTIONS["race"])}
    assert all(each[3] == launch.source.code for each in asked)
    (hazard,) = report.hazards
    assert (hazard.kind, hazard.second.line, hazard.second.source) == (
        "out of bounds",
        3,
        "extern __shared__ float part[];",
    )
    assert (report.kernel_name, report.grid, report.block, report.shared_bytes) == (
        "k",
        (2, 3, 1),
        (4, 1, 1),
        8,
    )
    assert (report.tools, report.block_order, report.checker) == (
        ("memory",),
        "as the GPU has it",
        "compute-sanitizer",
    )
    assert report.provenance.detail == "compute-sanitizer"
    assert report.provenance.device == session.backend().provenance.device
    assert "Not done: it was busy." in report.left_out
    nothing = nvidia.check(launch, ("race",), 1.5)
    assert asked[-1][5] == 1.5
    assert (nothing.unavailable, nothing.hazards, nothing.tools) == ("it was busy", (), ())
    assert isinstance(nothing, SanitizerReport)
    assert Hazards(("race",)).tools == ("race",)
