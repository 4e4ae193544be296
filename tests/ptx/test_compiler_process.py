"""NVRTC runs in a process that has limits, can be interrupted, and ends with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from virtualgpu.compile import cache, nvrtc
from virtualgpu.compile.child.process import compiler

pytestmark = pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")

# Ten million statements of eight short lines.
BOMB = "#define A0 *x += 1;\n" + "".join(f"#define A{n + 1} {f'A{n} ' * 10}\n" for n in range(7))
BOMB += 'extern "C" __global__ void k(float* x) { A7 }'


def source(number: float) -> str:
    return f'extern "C" __global__ void k(float* x) {{ *x = {number}f; }}'


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "load_entry", lambda *key: None)
    monkeypatch.setattr(cache, "store_entry", lambda *entry: None)


def pid() -> int:
    assert compiler._process is not None
    return compiler._process.pid


def test_one_process_compiles_consecutive_sources() -> None:
    nvrtc.compile_ptx(source(1.5), target=80)
    first = pid()
    assert "1075838976" in nvrtc.compile_ptx(source(2.5), target=80).ptx, "2.5 as the number of its bits"
    with pytest.raises(nvrtc.NvrtcCompileError, match=r"kernel.cu\(1\): error"):
        nvrtc.compile_ptx("nonsense", target=80)
    assert pid() == first


def test_a_macro_bomb_is_stopped_and_the_next_source_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nvrtc.TIME_LIMIT_VARIABLE, "0.5")
    with pytest.raises(nvrtc.NvrtcCompileError, match=r"0\.5 s of processor time.*macros"):
        nvrtc.compile_ptx(BOMB, target=80)
    monkeypatch.delenv(nvrtc.TIME_LIMIT_VARIABLE)
    assert "k(" in nvrtc.compile_ptx(source(3.5), target=80).ptx


@pytest.mark.skipif(sys.platform != "linux", reason="what a process takes is read from /proc")
def test_memory_of_the_compiler_process_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_MEMORY_LIMIT_BYTES", 300 << 20)
    with pytest.raises(nvrtc.NvrtcCompileError, match=r"0\.29 GiB of memory"):
        nvrtc.compile_ptx(BOMB, target=80)


@pytest.mark.parametrize("expressions", [[], ["k"]])
def test_ctrl_c_ends_the_compiler_process(expressions: list[str]) -> None:
    nvrtc.compile_ptx(source(4.5), target=80)
    first = psutil.Process(pid())
    # a suite that was started in the background ignores the signal
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while first.cpu_times().user < 0.5:  # it is compiling
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            nvrtc.compile_ptx(BOMB, target=80, name_expressions=expressions)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert not first.is_running()
    for thread in threading.enumerate():
        if thread.name == "gpulab-compiler":
            thread.join()
    assert compiler._process is None, "nobody compiles on unheeded"
    assert "k(" in nvrtc.compile_ptx(source(5.5), target=80).ptx


def test_compiler_process_ends_when_its_parent_is_killed() -> None:
    program = f"""
import threading, time
from virtualgpu.compile import cache, nvrtc
from virtualgpu.compile.child.process import compiler
nvrtc.disk_cache.load_entry = lambda *key: None
nvrtc.compile_ptx({source(6.5)!r}, target=80)
print(compiler._process.pid, flush=True)
nvrtc.compile_ptx({BOMB!r}, target=80)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    server = psutil.Process(int(parent.stdout.readline()))
    while server.cpu_times().user < 0.5:
        time.sleep(0.02)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    server.wait(60)


def test_include_paths_follow_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.compile_ptx(source(4.25), target=80)
    (tmp_path / "mine.h").write_text("#define VALUE 2.5f")
    monkeypatch.chdir(tmp_path)
    code = '#include "mine.h"\nextern "C" __global__ void k(float* x) { *x = VALUE; }'
    assert "1075838976" in nvrtc.compile_ptx(code, target=80, options=["-I."]).ptx


def test_each_thread_receives_its_own_ptx() -> None:
    ptx_by_number: dict[int, str] = {}

    def compile_one(number: int) -> None:
        ptx_by_number[number] = nvrtc.compile_ptx(
            source(number + 0.5).replace("k(", f"k{number}("), target=80
        ).ptx

    threads = [threading.Thread(target=compile_one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f".entry k{number}(" in ptx_by_number[number] for number in range(6))


def test_compiles_in_process_if_no_process_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    compiler.stop()
    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert "k(" in nvrtc.compile_ptx(source(10.5), target=80).ptx
    with pytest.raises(nvrtc.NvrtcCompileError, match=r"kernel.cu\(1\): error"):
        nvrtc.compile_ptx("nonsense", target=80)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_process_starts_its_own_compiler() -> None:
    program = f"""
import os
from virtualgpu.compile import cache, nvrtc
from virtualgpu.compile.child.process import compiler
nvrtc.disk_cache.load_entry = lambda *key: None
nvrtc.compile_ptx({source(7.5)!r}, target=80)
first = compiler._process.pid
if os.fork() == 0:
    nvrtc.compile_ptx({source(8.5)!r}, target=80)
    print(compiler._process.pid != first, flush=True)
    compiler.stop()
    os._exit(0)
os.wait()
nvrtc.compile_ptx({source(9.5)!r}, target=80)
print(compiler._process.pid == first)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True"]
