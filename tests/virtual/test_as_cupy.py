"""Unchanged CuPy programs on the virtual GPU, and the functions of ``cupyx``."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import virtualgpu
from virtualgpu.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
ABSENT = """
import sys
for name in ("gpulab", "matplotlib", "IPython", "ipywidgets", "anywidget", "ipykernel"):
    sys.modules[name] = None
"""
PROGRAM = """
import sys
import helper
import cupy
import cupy as cp
import cupy.cuda.runtime
import cupyx
from cupy.cuda import stream
from cupy.cuda.stream import Event
from cupy.cuda.memory import MemoryPool
from cupyx.profiler import benchmark, time_range
from cupy.testing import assert_array_equal

double = cp.RawKernel(r'''
extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }''', "twice")
x = cp.arange(32, dtype=cp.float32)
with stream.Stream():
    double((1,), (32,), (x,))
assert_array_equal(x, 2 * cp.arange(32))
assert Event is cupy.cuda.Event and stream.Event is Event
print(sys.argv[1:], cupy.cuda.runtime.getDeviceProperties(0)["name"].decode(), cupy.__version__)
"""


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=120
    )


def printed(*arguments: str, **variables: str) -> str:
    done = python(*arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_virtualgpu_cp_works_without_gpulab() -> None:
    code = (
        ABSENT + "import virtualgpu.cp as cp\n"
        'k = cp.RawKernel(\'extern "C" __global__ void k(int* x) { x[threadIdx.x] = threadIdx.x; }\', "k")\n'
        "x = cp.zeros(4, cp.int32)\nk((1,), (4,), (x,))\nprint(x, cp.cuda.Device().compute_capability)"
    )
    assert printed("-c", code, VIRTUALGPU_DEVICE="T4") == "[0 1 2 3] 75\n"


def test_a_script_runs_unchanged(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    (tmp_path / "helper.py").write_text("import cupy")
    out = printed("-m", "virtualgpu", "--device", "T4", str(script), "--size", "3")
    assert out.startswith("['--size', '3'] T4 ")


def test_processes_that_a_program_starts_find_the_same_gpus(tmp_path: Path) -> None:
    script = tmp_path / "workers.py"
    script.write_text(
        "import multiprocessing, subprocess, sys\nimport cupy\n"
        "def name(n):\n    return n, cupy.cuda.runtime.getDeviceProperties(0)['name'].decode()\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(name, [1, 2]))\n"
        "    code = 'import cupyx.scipy.fft, cupy; print(cupy.cuda.runtime.getDeviceCount())'\n"
        "    print(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout)\n"
    )
    output = printed("-m", "virtualgpu", "--device", "T4", "--count", "2", str(script))
    assert output.split("\n")[:2] == ["[(1, 'T4'), (2, 'T4')]", "2"]


def test_a_module_runs_on_the_gpus_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(
        "import cupy, sys\nprint(__name__, sys.argv[1:], cupy.cuda.runtime.getDeviceCount())\n"
        "print(cupy.cuda.runtime.getDeviceProperties(0)['name'].decode())\nsys.exit(7)"
    )
    environment = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    environment |= {"VIRTUALGPU_DEVICE": "H200", "VIRTUALGPU_COUNT": "3"}
    done = python("-m", "virtualgpu", "-m", "tool", "-v", **environment)
    assert (done.stdout, done.returncode) == ("__main__ ['-v'] 3\nH200\n", 7)


FAILURES = {
    "in a kernel": (
        """k = cupy.RawKernel('extern "C" __global__ void k(int* x) { x[1 << 20] = 1; }', "k")
k((1,), (1,), (cupy.zeros(1, 'i4'),))""",
        "IllegalAddressError",
    ),
    "of an import": ("from cupy import arrange", "Did you mean cp.arange"),
    "of a module": ("import cupyx.scipy.sparse", "scipy.sparse"),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_tracebacks_contain_only_frames_of_the_program(tmp_path: Path, kind: str) -> None:
    body, message = FAILURES[kind]
    script = tmp_path / "program.py"
    script.write_text(
        "import cupy\ndef f():\n" + "".join(f"    {line}\n" for line in body.split("\n")) + "f()\n"
    )
    done = python("-m", "virtualgpu", str(script))
    assert done.returncode == 1
    assert message in done.stderr
    frames = [line.split('"')[1] for line in done.stderr.splitlines() if line.startswith("  File ")]
    assert frames == [str(script)] * 2
    assert "During handling" not in done.stderr


def test_library_frames_are_left_out_of_tracebacks(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import cupy\ndef fail(*_):\n    raise KeyError('mine') from ValueError('cause')\n"
        "cupy.cuda.get_current_stream().launch_host_func(fail, None)\n"
    )
    stderr = python("-m", "virtualgpu", str(script)).stderr
    assert "ValueError: cause" in stderr
    assert [line.split(", ")[1] for line in stderr.splitlines() if "File" in line] == ["line 4", "line 3"]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "pass a script"),
        (("nothing.py",), "nothing.py does not exist"),
        (("--device", "T5", "-c", "1"), "Did you mean 'T4'"),
        (("--count", "0", "-c", "1"), "integer above 0"),
    ],
)
def test_a_wrong_command_line_is_explained(
    arguments: tuple[str, ...], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert part in capsys.readouterr().err


def test_as_cupy_removes_its_modules_at_the_end() -> None:
    code = """
import sys, virtualgpu, virtualgpu.cp as cp
virtualgpu.use_device("H200")
spec = cp.cuda.__spec__
with virtualgpu.as_cupy("T4", count=2) as cupy:
    import cupy.cuda.runtime, cupyx.profiler
    assert cupy is cp and sys.modules["cupy.cuda"] is cp.cuda and cp.cuda.__spec__ is spec
    with virtualgpu.as_cupy():
        import cupy.linalg
    assert "cupy" in sys.modules
    assert cupy.cuda.runtime.getDeviceCount() == 2
assert cp.cuda.Device().compute_capability == "90"
assert not [name for name in sys.modules if name.split(".")[0] in ("cupy", "cupyx")]
assert not [finder for finder in sys.meta_path if type(finder).__module__ == "virtualgpu.aliases"]
"""
    printed("-c", code)


def test_as_cupy_restores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    monkeypatch.delenv("VIRTUALGPU_DEVICE", raising=False)
    before = list(sys.path)
    with virtualgpu.as_cupy("T4"):
        assert os.environ["VIRTUALGPU_DEVICE"] == "T4"
        assert os.environ["PYTHONPATH"].endswith(os.pathsep + "somewhere")
    assert os.environ["PYTHONPATH"] == "somewhere"
    assert "VIRTUALGPU_DEVICE" not in os.environ
    assert sys.path == before


def test_as_cupy_does_not_replace_an_imported_cupy(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("real = True")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport cupy, virtualgpu\n"
    refused = "try:\n    virtualgpu.as_cupy()\nexcept RuntimeError as error:\n    print(error)\n"
    out = printed("-c", code + refused + "assert cupy.real and sys.modules['cupy'] is cupy")
    assert "already been imported" in out
    assert str(tmp_path / "cupy.py") in out


def test_gpulab_does_not_mistake_the_virtual_gpu_for_a_real_one() -> None:
    code = """
import cupy, gpulab as gl
choice = gl.which_device()
assert choice.kind == "virtual" and gl.cp is cupy and "measured on it" not in str(choice)
try:
    gl.use_device("cuda")
except gl.errors.GpulabError as error:
    print(error)
"""
    assert "imports the virtual GPU here" in printed("-m", "virtualgpu", "-c", code, GPULAB_DEVICE="auto")


# The plugins that are installed here take a second to load.
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PYTEST = ("-m", "pytest", "-p", "virtualgpu.pytest_plugin", "-p", "no:cacheprovider")
SUITE = """
import cupy as cp
import pytest

def test_addition():
    assert (cp.arange(3) + 1).tolist() == [1, 2, 3]

def test_device():
    assert cp.cuda.runtime.getDeviceProperties(0)["name"] == b"T4"
"""


def test_a_suite_runs_with_the_pytest_option(tmp_path: Path) -> None:
    workers = () if importlib.util.find_spec("xdist") is None else ("-p", "xdist", "-n", "1")
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text("import cupy")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    out = printed(*PYTEST, *workers, "--virtual-gpu=T4", str(tmp_path), **ALONE)
    assert "2 passed" in out
    assert "cupy: modelled on virtual T4" in out


def test_a_notebook_runs_with_the_pytest_option(tmp_path: Path) -> None:
    pytest.importorskip("nbval")
    nbformat = pytest.importorskip("nbformat")
    code = "import cupy as cp\nprint(int(cp.arange(5).sum()), cp.cuda.Device().attributes['WarpSize'])\n"
    code += "print(cp.cuda.runtime.getDeviceCount(), cp.cuda.Device(1).compute_capability)"
    output = nbformat.v4.new_output("stream", name="stdout", text="10 32\n2 75\n")
    cell = nbformat.v4.new_code_cell(code, execution_count=1, outputs=[output])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "it.ipynb")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = "-p", "nbval.plugin", "--nbval", "--virtual-gpu=T4", "--virtual-gpu-count=2"
    assert "1 passed" in printed(*PYTEST, *options, str(tmp_path), **ALONE)


def test_an_import_of_nvidias_python_packages_names_an_alternative() -> None:
    with (
        virtualgpu.as_cupy(),
        pytest.raises(ModuleNotFoundError, match=r"No module named 'cuda.*cp\.RawModule"),
    ):
        importlib.import_module("cuda.core")


def test_the_plugin_alone_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import sys\n\ndef test_it():\n    assert not {'cupy', 'virtualgpu.cp'} & set(sys.modules)"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    printed(*PYTEST, str(tmp_path), **ALONE)
    assert "needs --virtual-gpu" in python(*PYTEST, str(tmp_path), "--virtual-gpu-count=2", **ALONE).stderr


def test_the_error_for_a_missing_gpu_uses_names_of_virtualgpu() -> None:
    message = python("-m", "virtualgpu", "-c", "import cupy; cupy.cuda.Device(1).use()").stderr
    assert "use_device(name, count=2)" in message
    assert "gl." not in message


def test_the_plugin_explains_a_path_that_follows_the_option(tmp_path: Path) -> None:
    test = tmp_path / "test_it.py"
    test.write_text(SUITE)
    message = python(*PYTEST, "--virtual-gpu", f"{test}::test_addition", **ALONE).stderr
    assert f"Write `{test}::test_addition` before --virtual-gpu" in message


# cupyx


def test_benchmark_counts_modelled_time() -> None:
    from virtualgpu import cp, cupyx

    calls = []

    def work(x: cp.ndarray, times: int = 1) -> None:
        calls.append(times)
        for _ in range(times):
            x *= 2

    x = cp.ones(1 << 20)
    once = cupyx.profiler.benchmark(work, (x,), n_repeat=5, n_warmup=2)
    assert len(calls) == 7
    assert once.cpu_times.shape == (5,)
    assert once.gpu_times.shape == (1, 5)
    bytes_moved = 2 * 8 * (1 << 20)
    bandwidth = cp.cuda.Device().attributes["MemoryClockRate"] * 2e3 * 5120 / 8
    assert bytes_moved / bandwidth * 0.9 < once.gpu_times.mean() < 1e-3
    four = cupyx.profiler.benchmark(work, (x,), {"times": 4}, n_repeat=5, name="four")
    assert four.gpu_times.mean() > 2 * once.gpu_times.mean()
    assert four.cpu_times.mean() > 2 * once.cpu_times.mean()
    assert str(four).startswith("four                :    CPU: ")
    assert "GPU-0:" in str(four)
    assert "GPU-0:" not in four.to_str()
    short = cupyx.profiler.benchmark(work, (x,), n_repeat=1000, max_duration=float(once.gpu_times[0, 0]))
    assert short.cpu_times.size < 5
    with pytest.raises(ValueError, match="tuple"):
        cupyx.profiler.benchmark(work, [x])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "message"), [("jit", "RawKernel"), ("cusparse", "NVIDIA's libraries"), ("rsqr", "cupyx.rsqrt")]
)
def test_absent_names_of_cupyx_are_explained(name: str, message: str) -> None:
    from virtualgpu import cupyx

    with pytest.raises(AttributeError, match=message):
        getattr(cupyx, name)
