"""`gl.sandbox` and `%%gpu_sandbox`: whatever happens inside, this process lives on and reports the reason."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from IPython.core.error import UsageError
from IPython.testing.globalipapp import start_ipython

import gpulab as gl
from gpulab import session
from gpulab.lab.faults import jobs
from gpulab.lab.faults.sandbox import _find_spare_process
from virtualgpu.errors import GpulabError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")

SHIFTED = r"""extern "C" __global__ void shifted(float* x, int n, long long by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i + by] = i;
}"""
KERNELS: dict[str, str] = {
    "assert": 'extern "C" __global__ void k(float* x) { assert(x[0] == 1); }',
    "misaligned": 'extern "C" __global__ void k(char* x) { *(double*)(x + 1) = 1; }',
    "trap": 'extern "C" __global__ void k(float* x) { if (x[0] == 0) __trap(); }',
    "illegal": 'extern "C" __global__ void k(float* x) { x[1ll << 40] = 1; }',
}


def faulty(kind: str) -> None:
    cp = gl.cp
    kernel = cp.RawKernel(KERNELS[kind], "k")
    x = cp.zeros(256, dtype=cp.float32)
    x += 1
    x -= 1
    kernel((2,), (32,), (x,))
    y = x * 2
    y.get()


@pytest.mark.parametrize(
    ("kind", "status"), [("illegal", 700), ("assert", 710), ("misaligned", 716), ("trap", 719)]
)
def test_a_fault_appears_at_the_next_wait_and_its_launch_is_named(kind: str, status: int) -> None:
    run = gl.sandbox(faulty, kind)
    record = run.record
    assert not run.ok
    assert record.status == status
    assert record.sticky
    assert record.raised is not None
    assert record.raised.text == "y.get()"
    assert record.culprit is not None
    assert record.culprit.source is not None
    assert record.culprit.source.text == "kernel((2,), (32,), (x,))"
    assert record.culprit.launch == 3  # CuPy's two came before
    assert record.culprit.place is not None
    assert record.culprit.place.block == (0, 0, 0)


def test_with_launch_blocking_the_launch_itself_raises() -> None:
    run = gl.sandbox(faulty, "illegal", launch_blocking=True)
    assert run.record.raised is not None
    assert run.record.raised.text == "kernel((2,), (32,), (x,))"
    assert "an illegal memory access" in run.record.error  # CUDA's words, which name no kernel
    assert "the context was lost" in repr(run).lower()


def test_a_fault_that_no_call_waits_for_is_reported_at_the_end() -> None:
    def forgotten() -> None:
        gl.cp.RawKernel(KERNELS["illegal"], "k")((1,), (1,), (gl.cp.zeros(1, dtype="f4"),))

    run = gl.sandbox(forgotten)
    assert run.record.at_end
    assert run.record.raised is None
    assert "the program never waits" in repr(run)


def test_non_sticky_error_keeps_the_context() -> None:
    def large() -> Any:
        return gl.cp.zeros(1 << 50)

    run = gl.sandbox(large)
    assert "OutOfMemoryError" in run.record.error
    assert not run.record.sticky

    def refused() -> None:
        gl.cp.RawKernel(SHIFTED, "shifted")((1,), (4096,), (gl.cp.zeros(1, dtype="f4"), 1, 0))

    run = gl.sandbox(refused)
    assert run.record.status == 1
    assert not run.record.sticky


def test_arrays_are_copied_and_declared_results_returned() -> None:
    x = gl.cp.arange(8, dtype=gl.cp.float32)
    factor = np.float32(3)

    def change() -> Any:
        x[...] = x * factor
        print("changed", int(x.sum()))
        return {"x": x, "pid": os.getpid()}

    run = gl.sandbox(change, returns=True)
    assert run.ok, run
    assert run.output == "changed 84\n"
    np.testing.assert_array_equal(run.result["x"].get(), 3 * np.arange(8))
    assert run.result["pid"] != os.getpid()
    np.testing.assert_array_equal(x.get(), np.arange(8))
    with pytest.raises(GpulabError, match="returns=True"):
        gl.sandbox(change).result  # noqa: B018


def test_sandbox_fault_does_not_affect_the_main_process() -> None:
    x = gl.cp.arange(4)
    launches = session.virtual_side().machine.kernel_launches
    gl.sandbox(faulty, "illegal")
    assert session.virtual_side().machine.kernel_launches == launches
    assert (x + 1).get().tolist() == [1, 2, 3, 4]


def killed() -> None:
    print("so far", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def much() -> None:
    while True:
        os.write(1, b"x" * 65535 + b"\n")


def forked() -> int:
    if not os.fork():
        signal.pause()
    return 5


def both_return() -> int:
    forked = os.fork()
    return os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) if forked else 5


def endless() -> None:
    kernel = gl.cp.RawKernel('extern "C" __global__ void g(volatile int* x) { while (x[0] == 0); }', "g")
    x = gl.cp.zeros(1, dtype=gl.cp.int32)
    kernel((1,), (1,), (x,))
    x.get()


def unpicklable() -> Any:
    return (n for n in range(3))


def memory() -> None:
    arrays = []
    while True:
        arrays.append(np.ones(1 << 22))


def sleeps() -> None:
    threading.Event().wait()


@pytest.mark.parametrize(
    ("function", "words", "limit_s"),
    [
        (killed, "SIGKILL", 3),
        (much, "prints more than 256 MiB", 3),
        (forked, "processes that were still running", 3),
        (both_return, "", 3),
        # A third of the limit is the watchdog's, which is reached first on a busy machine, too.
        (endless, "cudaErrorLaunchTimeout", 4.5),
        (unpicklable, "a generator, cannot leave the sandbox", 3),
        (memory, "GiB of memory", 20),
        (sleeps, "it waits", 3),
        (sys.exit, "exit()", 3),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_functions_that_fail_or_hang_are_reported(
    function: Callable[[], Any], words: str, limit_s: float
) -> None:
    run = gl.sandbox(function, returns=True, limit_s=limit_s, memory_bytes=1 << 29)
    assert words in repr(run._picture())
    if function is both_return:
        assert run.result == 0  # the status of the fork, which ends in silence
    assert gl.sandbox(lambda: 7, returns=True).result == 7


def test_output_before_the_end_is_returned() -> None:
    assert gl.sandbox(killed).output == "so far\n"
    run = gl.sandbox(much)
    assert len(run.output) == 64 << 10
    assert "more lines" in run._picture().printed


def test_values_that_cannot_be_sent_are_listed_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = gl.cp.cuda.Stream()
    lock = threading.Lock()
    with pytest.raises(GpulabError, match=r"stream \(a Stream\).*lock \(lock\)|lock \(lock\).*stream"):
        gl.sandbox(lambda: (stream, lock))
    monkeypatch.setattr(jobs, "MAX_JOB_BYTES", 1000)
    large = gl.cp.zeros(1000)
    with pytest.raises(GpulabError, match=r"large with 8,000 bytes"):
        gl.sandbox(lambda: large + 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"limit_s": limit}, f"above 0 and up to 50, not {limit}") for limit in (0, -1, 51, float("nan"))),
        *(({"memory_bytes": size}, "must be a positive number") for size in (-1, 0, 0.5, "1 GiB")),
    ],
)
def test_wrong_limits_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gl.sandbox(len, (), **options)


def test_argument_that_is_not_a_function_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a function, not int"):
        gl.sandbox(3)  # type: ignore[arg-type]


def test_matplotlib_figures_are_returned_as_images() -> None:
    pytest.importorskip("matplotlib")

    def drawn() -> None:
        import matplotlib.pyplot as plt

        plt.plot([1, 2])

    run = gl.sandbox(drawn)
    assert [figure[:4] for figure in run.figures] == [b"\x89PNG"]
    bundle = run._repr_mimebundle_()
    assert bundle is not None
    assert "data:image/png;base64" in bundle[0]["text/html"]


def test_the_sandbox_uses_the_device_of_the_session() -> None:
    def which() -> str:
        return str(session.which_device().device)

    with session.on_device("virtual:T4", 2):
        assert gl.sandbox(which, returns=True).result == "T4"
        assert gl.sandbox(lambda: gl.cp.cuda.runtime.getDeviceCount(), returns=True).result == 2
    assert gl.sandbox(which, returns=True).result == session.which_device().device


def test_spare_process_is_kept_and_replaced_if_it_died() -> None:
    gl.sandbox(len, ())
    spare = _find_spare_process(os.getpid())._waiting_process
    assert spare is not None
    assert spare[2].daemon, "Python ends without waiting for it"
    spare[2].join()
    os.kill(spare[1]._process.pid, signal.SIGKILL)
    assert gl.sandbox(lambda: 1, returns=True).result == 1


def test_a_run_is_saved_as_a_page(tmp_path: Any) -> None:
    path = gl.sandbox(faulty, "illegal").save(tmp_path / "run.html")
    assert "launch 3" in path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shell() -> Any:
    from gpulab.lab import magics

    shell = start_ipython()  # type: ignore[no-untyped-call]
    magics.register_magics(shell)
    return shell


def test_cell_takes_used_names_and_returns_declared_names(shell: Any) -> None:
    shell.user_ns.update(factor=3, unused=threading.Lock())
    run = shell.run_cell_magic(
        "gpu_sandbox", "-o s -r y,z", "y = factor * 2\nz = [y]\nfactor = 9\nprint('hi')\ny"
    )
    assert run.ok, run
    assert (shell.user_ns["y"], shell.user_ns["z"], shell.user_ns["factor"]) == (6, [6], 3)
    assert shell.user_ns["s"] is run
    assert run.output == "hi\n"
    assert run._repr_mimebundle_()[0]["text/plain"].endswith("\n6")


@pytest.mark.parametrize(("magic", "start"), [("gpu_timeline", "Timeline of"), ("gpu_profile", "Profile of")])
def test_a_recorded_cell_is_kept_under_its_name_and_its_error_is_shown_once(
    shell: Any, capsys: pytest.CaptureFixture[str], magic: str, start: str
) -> None:
    gl.use_device("virtual:T4")
    shell.user_ns.update(cp=gl.cp, kept=None)
    shell.run_cell("one = 1", store_history=True)
    before = shell.execution_count
    report = shell.run_cell_magic(magic, "-o kept", "x = cp.zeros(8)\ny = float(x[0])")
    assert shell.user_ns["kept"] is report
    assert (shell.user_ns["y"], shell.execution_count) == (0, before)
    assert repr(report).startswith(start)
    rows = report.record.calls if magic == "gpu_timeline" else report.record.lines
    lines = {row.source.line for row in rows if row.source}
    assert lines
    assert lines <= {2, 3}, "below the line of the magic"
    capsys.readouterr()
    for cell, error in (("x.fill(2)\n1 / 0", ZeroDivisionError), ("1 +", SyntaxError)):
        with pytest.raises(error):
            shell.run_cell_magic(magic, "-o again", cell)
        assert "Error" not in "".join(capsys.readouterr())
        assert repr(shell.user_ns.pop("again")).startswith(start)
    assert not {"showtraceback", "showsyntaxerror"} & {*shell.__dict__}
    unnamed = shell.run_cell_magic(magic, "", "x.fill(3)")
    assert unnamed is not report
    with pytest.raises(GpulabError, match=f"%%{magic} -o needs the name of a variable, not 'a b'"):
        shell.run_cell_magic(magic, "a b", "x.fill(4)")
    assert float(gl.cp.asnumpy(shell.user_ns["x"])[0]) == 3
    line = shell.run_line_magic(magic, "-o kept y = cp.ones(8).sum(axis=0)")
    assert shell.user_ns["kept"] is line
    assert repr(line).startswith(start)
    assert float(shell.user_ns["y"]) == 8


def test_magics_of_version_1_0_warn_and_work(shell: Any) -> None:
    gl.use_device("virtual:T4")
    shell.user_ns.update(cp=gl.cp)
    with pytest.warns(DeprecationWarning, match="write `%%gpu_timeline -o t`"):
        run = shell.run_cell_magic("gpu_timeline", "t", "x = cp.zeros(8)")
    assert shell.user_ns["t"] is run
    with pytest.warns(DeprecationWarning, match="write `%%gpu_sandbox -o s -r y,z`"):
        run = shell.run_cell_magic("gpu_sandbox", "s -o y, z", "y = 1\nz = 2")
    assert (shell.user_ns["s"], shell.user_ns["y"], shell.user_ns["z"]) == (run, 1, 2)
    with pytest.warns(DeprecationWarning, match="write `%%gpu_sandbox -r y`"):
        shell.run_cell_magic("gpu_sandbox", "-o y", "y = 5")
    assert shell.user_ns["y"] == 5


def test_the_extension_registers_the_magics(shell: Any) -> None:
    del shell.magics_manager.magics["line"]["gpu_profile"]
    shell.run_line_magic("load_ext", "gpulab")
    assert shell.find_line_magic("gpu_profile")


def test_sandbox_cell_error_has_its_line_number(shell: Any) -> None:
    shell.user_ns["gl"] = gl
    run = shell.run_cell_magic("gpu_sandbox", "--blocking", "x = 1\nraise ValueError('here')")
    assert run.record.raised.text == "raise ValueError('here')"
    assert run.record.raised.line == 3  # line 1 is the magic
    assert run.record.blocking


def test_function_defined_in_a_cell_keeps_its_source_lines(shell: Any) -> None:
    shell.run_cell("def late():\n    one = 1\n    raise ValueError(one)")
    run = gl.sandbox(shell.user_ns["late"])
    assert (run.record.raised.line, run.record.raised.text) == (3, "raise ValueError(one)")
    assert "dynamic-code" not in str(run._repr_mimebundle_())


def test_missing_declared_name_is_an_error(shell: Any) -> None:
    run = shell.run_cell_magic("gpu_sandbox", "-r nothing_there", "x = 1")
    assert "nothing_there" in run.record.error
    with pytest.raises(UsageError, match="unrecognized arguments: one two"):
        shell.run_cell_magic("gpu_sandbox", "one two", "x = 1")
